"""`services`: the embedded Redis and MongoDB that the commands of this folder share."""

from __future__ import annotations

import os
from typing import Any

import click

from ..embedded.pair_file import RUNNING, STOPPED
from ..embedded.pair_folder import NAME, SHOWN
from ..embedded.server_programs import MONGOD, REDIS, mongodb_uri, redis_url
from ..embedded.services import ServicesStatus, services_status, stop_services
from . import output

_NOTHING = "no embedded Redis and MongoDB run in this folder"


@click.group(epilog="Example: streams-importer services status")
def services() -> None:
    """The embedded Redis and MongoDB of this folder: look at them, stop them."""


@services.command("status", epilog="Example: streams-importer services status --json")
@click.option("--json", "json_", is_flag=True, help="For scripts.")
def status(json_: bool) -> None:
    """Show whether they run, where they answer, and when they will stop."""
    found = services_status()
    if json_:
        output.show_json(_as_json(found), indent=2)
        return
    for line in _lines(found):
        output.say(line)


@services.command("stop", epilog="Example: streams-importer services stop")
def stop() -> None:
    """Stop both and wait until they are down. The data stays."""
    before = stop_services()
    if before.state == STOPPED:
        output.say(_NOTHING)
        return
    output.say(f"stopped the embedded Redis and MongoDB; their data stays in {SHOWN}")
    if before.in_use:
        output.say("commands that were using them wait until they are started again: streams-importer setup", err=True)


def _lines(found: ServicesStatus) -> list[str]:
    pair = found.pair
    if pair is None or found.state == STOPPED:
        why = f"; they were stopped: {pair.why}" if pair is not None and pair.why is not None else ""
        return [f"{_NOTHING}{why}"]
    lines = [f"the embedded Redis and MongoDB in {SHOWN} are {found.state}, {'in use' if found.in_use else 'not in use'}"]
    if found.state == RUNNING:
        lines += [
            f"Redis    process {pair.pids.get(REDIS)}  {redis_url(pair.sockets)}",
            f"MongoDB  process {pair.pids.get(MONGOD)}  {mongodb_uri(pair.sockets)}",
            f"started {pair.started}; they stop when unused for {pair.idle_s:g} s, or with: streams-importer services stop",
        ]
    return lines


def _as_json(found: ServicesStatus) -> dict[str, Any]:
    """Where they answer is told only while they do."""
    told = {"state": found.state, "folder": os.path.abspath(NAME), "in_use": found.in_use, "keeper_pid": found.keeper_pid}
    pair = found.pair
    told["why"] = pair.why if pair is not None else None
    names = ("redis_url", "mongodb_uri", "redis_pid", "mongod_pid", "started", "idle_s")
    if pair is None or found.state != RUNNING:
        return told | dict.fromkeys(names)
    pids = pair.pids.get(REDIS), pair.pids.get(MONGOD)
    values = (redis_url(pair.sockets), mongodb_uri(pair.sockets), *pids, pair.started, pair.idle_s)
    return told | dict(zip(names, values, strict=True))
