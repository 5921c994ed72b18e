"""Promise 10, as small stories: what comes from outside leads no secret astray, reaches no host that is not named, and drives no
terminal."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from urllib.parse import quote

from streams_importer.adapters.http import HttpClient
from streams_importer.adapters.log_events import LogEvents
from streams_importer.adapters.mongo_catalogue import MongoCatalogue
from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.redis_budget import RedisBudget
from streams_importer.adapters.redis_catalogue import RedisCatalogue
from streams_importer.adapters.upstream import HttpUpstream
from streams_importer.application.cancellation import CancelToken
from streams_importer.cli import output
from streams_importer.domain.errors import UpstreamError
from streams_importer.domain.hosts import HostRule
from streams_importer.domain.model import Checkpoint, Failure, Lease, Reject
from streams_importer.domain.rates import parse_limit
from streams_importer.domain.redaction import SECRETS
from streams_importer.ports import Pause
from tests.stored import stored_texts

from .scenarios import DEFINITION, IMPORT, KEYS, NOON, STREAM, World, page, record

SECRET = "canary+/=&<>\"'%key"
HOSTILE = "[/]\x1b[2J\nfake"


def a_secret_that_everybody_repeats_is_stored_nowhere(world: World) -> None:
    SECRETS.learn(SECRET)
    failure = Failure("http_500", f"GET /?key={quote(SECRET)} answered {SECRET}")
    world.sink().store(DEFINITION, "ids:0..10", page(record(1, "good"), rejects=(Reject("no_id", json.dumps({"a": SECRET})),)))
    ledger = MongoLedger(world.db, "si")
    row = ledger.plan(IMPORT, ["ids:0..10"], "run-1")[0]["ids:0..10"]
    lease = Lease(IMPORT, "1-1", "w:1", 1, row.shard_key, row.job, row.run)
    ledger.start([lease], NOON)
    ledger.put_back([(lease, Checkpoint(), 1, failure)])
    queue = world.queue("w:1")
    world.queued("ids:10..20")
    world.redis.xadd(STREAM, {"nonsense": SECRET})
    claimed = queue.claim([IMPORT], 2)
    assert [queue.dead_letter(lease, Checkpoint(), failure, 1).is_written for lease in claimed.leases] == [True]
    assert [queue.dead_letter(garbage, Checkpoint(), failure, 1).is_written for garbage in claimed.garbage] == [True]
    pause = Pause(f"refused with {SECRET}", "w:1", "")
    for catalogue in (MongoCatalogue(world.db, "si"), RedisCatalogue(world.redis, KEYS)):
        catalogue.save(DEFINITION, "run-1")
        catalogue.pause(IMPORT, pause)
    assert not any("canary" in text for text in stored_texts(world.redis, world.db))


def an_answer_that_repeats_the_key_is_blanked_before_anybody_reads_it(world: World) -> None:
    upstream = world.stand_in(pois=[{"ID": 1, "Title": f"for {SECRET} and {quote(SECRET)}"}], key=SECRET)
    budget = RedisBudget(world.redis, KEYS, "test", parse_limit("1000/s"))
    http = HttpClient(hosts=HostRule.of("", [upstream.base_url]))
    body = HttpUpstream(http, upstream.base_url, budget, SECRET).get("poi", {}, CancelToken()).body
    http.close()
    assert b"canary" not in body


def a_secret_is_not_sent_to_a_host_that_nobody_named(world: World) -> None:
    assert (
        refusal_of(lambda http: http.get("https://public.invalid/", {}, {"X-API-Key": SECRET}, CancelToken())) == "host_refused"
    )


def a_public_name_that_leads_inside_is_not_connected_to(world: World) -> None:
    upstream = world.stand_in(points=1)
    url = upstream.base_url.replace("http://127.0.0.1", "https://localhost")
    assert refusal_of(lambda http: http.get(url, {}, {}, CancelToken())) == "host_refused"


def refusal_of(call: Callable[[HttpClient], object]) -> str:
    http = HttpClient(total_s=1.0)
    try:
        call(http)
    except UpstreamError as error:
        return error.code
    finally:
        http.close()
    return "sent"


def a_hostile_name_is_one_harmless_line_of_a_log(world: World) -> None:
    stream = io.StringIO()
    for form in ("text", "json"):
        LogEvents(form, stream=stream)("shard done", shard=HOSTILE, more=[HOSTILE])
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()


def a_hostile_name_is_one_harmless_line_of_a_terminal(world: World) -> None:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        output.say(f"{HOSTILE}: ready")
        output.complain(f"there is no import {HOSTILE}")
    assert len(stream.getvalue().splitlines()) == 2
    assert "\x1b" not in stream.getvalue()
