"""The child process in which a suspect runs (see application.apart): one shard, and nothing else."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

from .adapters.child_process import ChildProcess, dump_outcome
from .adapters.mongo_sink import MongoSink
from .adapters.redis_queue import RedisQueue
from .application.cancellation import CancelToken
from .application.intake import lease_until
from .application.lease_keeper import LeaseKeeper
from .application.shard_importer import ShardImporter
from .domain.definition import Definition
from .domain.errors import BadSetting
from .domain.model import Failure, Lease, Outcome, Released, Retry
from .settings import Servers, Upstreams, learn_secrets
from .wiring import Wiring

_PR_SET_PDEATHSIG = 1


class Job(msgspec.Struct):
    """What the parent says first. The upstream's key comes by the environment, as the parent got it."""

    servers: dict[str, Any]
    namespace: str
    data_dir: str
    lease: Lease
    definitions: list[Definition]
    """All that the parent serves: imports with one key share the strictest of their limits."""


def launch(wiring: Wiring, lease: Lease, definition: Definition, others: Mapping[str, Definition]) -> ChildProcess:
    definitions = [definition, *(other for name, other in others.items() if name != definition.name)]
    job = Job(asdict(wiring.servers), wiring.namespace, wiring.data_dir, lease, definitions)
    upstreams = wiring.upstreams
    environment = {"OCM_API_KEY": upstreams.ocm_api_key or "", "OCM_BASE_URL": upstreams.ocm_base_url}
    return ChildProcess("streams_importer.apart_process", msgspec.to_builtins(job), environment, wiring.events)


class _Telling:
    """Lines for the parent, on what was the standard output: nobody else can write there."""

    def __init__(self) -> None:
        self._stream = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def __call__(self, event: str, *, level: str = "info", **details: Any) -> None:
        shown = {name: value if isinstance(value, int | float | str) else str(value) for name, value in details.items()}
        self.tell({"event": event, "level": level, "details": shown})

    def leave(self, outcome: Outcome) -> NoReturn:
        """The last words."""
        self.tell(dump_outcome(outcome))
        os._exit(0)

    def tell(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            self._stream.write(msgspec.json.encode(message) + b"\n")
            self._stream.flush()


def main() -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a platform signals every process of a dyno; the parent tells when to stop
    _die_first()
    learn_secrets(os.environ)
    telling = _Telling()
    source = sys.stdin.buffer
    job = msgspec.json.decode(source.readline(), type=Job)
    try:
        telling.leave(_import(job, source, telling))
    except Exception as error:
        telling.leave(_outcome_of(error, job.lease))


def _die_first() -> None:
    """If memory runs out: this process, not its parent. And when the parent is gone, this one must be, whatever it does."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _import(job: Job, source: BinaryIO, telling: _Telling) -> Outcome:
    token = CancelToken()
    wiring = Wiring(Servers(**job.servers), Upstreams.from_environment(os.environ), job.namespace, telling, data_dir=job.data_dir)
    wiring.redis_connections = 1
    threading.Thread(target=_listen, args=(source, token, wiring), daemon=True).start()
    return _run(wiring, job, token, lambda error: telling.leave(_outcome_of(error, job.lease)))


def _outcome_of(error: Exception, lease: Lease) -> Outcome:
    """Told like one within a worker: no traceback, which may show a secret, and no crash, which would be the shard's fault."""
    if isinstance(error, BadSetting):
        return Released(lease.checkpoint, Failure("setting", str(error)))
    return Retry(lease.checkpoint, Failure("internal_error", f"{type(error).__name__}: {error}"))


def _run(wiring: Wiring, job: Job, token: CancelToken, failed: Callable[[Exception], None]) -> Outcome:
    definition = job.definitions[0]
    for each in reversed(job.definitions):
        source = wiring.source_of(each)
    queue = RedisQueue(wiring.redis, wiring.keys, job.lease.consumer)
    keeper_queue = RedisQueue(wiring.connect_redis(1), wiring.keys, job.lease.consumer)
    # The parent renews as well, unless it stands still.
    keeper = LeaseKeeper(keeper_queue, wiring.outages, lambda _: None, lambda: definition.lease_s, failed)
    keeper.hold(job.lease, token)
    keeper.start()
    ahead = ThreadPoolExecutor(1, thread_name_prefix="fetch")
    importer = ShardImporter(queue, wiring.ledger, MongoSink(wiring.database), wiring.outages, ahead, lease_until)
    return importer.run(job.lease, definition, source, token)


def _listen(source: BinaryIO, token: CancelToken, wiring: Wiring) -> None:
    for line in source:
        said = msgspec.json.decode(line, type=dict[str, str])
        if "cancel" in said:
            token.cancel(said["cancel"])
        else:
            wiring.heard(said.get("heard", ""))
    os._exit(1)  # the parent is gone: whoever takes the shard next goes on from its checkpoint


if __name__ == "__main__":
    main()
