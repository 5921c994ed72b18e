"""What a private and a shared pair have in common: how both programs are run, where they answer, and what a start-up left behind.

Both run in the folder that holds their data and name it relatively, so its path may be anything: Redis splits arguments at
blanks and mongod at commas. The sockets' folder is short and plain (see socket_folder). From the standard library only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote_plus

REDIS, MONGOD = NAMES = ("redis", "mongod")
DATABASE = "streams_importer"
REPLICA_SET = "streams-importer"

_LOG_LINES = 5
_LOG_BYTES = 65536


def find_programs() -> dict[str, str]:
    """Where both are. Raises BadSetting with one line that says how to get them."""
    from .binaries import MONGOD as mongod  # who joins a running pair needs none
    from .binaries import REDIS_SERVER as redis_server
    from .binaries import find_binary

    return {REDIS: os.path.abspath(find_binary(redis_server)), MONGOD: os.path.abspath(find_binary(mongod))}


def command_lines(programs: Mapping[str, str], sockets: str) -> dict[str, list[str]]:
    """For a working folder with a folder of data for each, by name."""
    return {
        REDIS: [programs[REDIS], *_redis_arguments(sockets)],
        MONGOD: [programs[MONGOD], *_mongod_arguments(sockets)],
    }


def _redis_arguments(sockets: str) -> list[str]:
    arguments = ["--port", "0", "--unixsocket", socket_path(sockets, REDIS), "--unixsocketperm", "700"]
    arguments += ["--dir", f"./{REDIS}", "--daemonize", "no"]
    return [*arguments, "--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]


def _mongod_arguments(sockets: str) -> list[str]:
    arguments = ["--bind_ip", socket_path(sockets, MONGOD), "--unixSocketPrefix", sockets]
    arguments += ["--dbpath", f"./{MONGOD}", "--replSet", REPLICA_SET, "--quiet"]
    # Its defaults are half of the memory and a twentieth of the disk.
    arguments += ["--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "256"]
    # On SIGTERM a primary would wait 15 s for its clients to leave.
    for parameter in ("diagnosticDataCollectionEnabled=false", "shutdownTimeoutMillisForSignaledShutdown=0"):
        arguments += ["--setParameter", parameter]
    return arguments


def socket_path(sockets: str, name: str) -> str:
    return f"{sockets}/{name}.sock"


def redis_url(sockets: str) -> str:
    return f"unix://{socket_path(sockets, REDIS)}"


def mongodb_uri(sockets: str, database: str = DATABASE) -> str:
    # Direct: there is one member, and nothing to discover.
    return f"mongodb://{quote_plus(socket_path(sockets, MONGOD))}/{database}?directConnection=true"


def last_words(log: Path) -> str:
    """Why a program ended, as far as its log tells."""
    try:
        lines = log.read_bytes()[-_LOG_BYTES:].decode(errors="replace").splitlines()
    except OSError:
        lines = []
    entries = [_understood(line) for line in lines]
    words = [text for is_error, text in entries if is_error] or [text for _, text in entries]
    return " | ".join(text[:300] for text in words[-_LOG_LINES:] if text) or "its log is empty"


def _understood(line: str) -> tuple[bool, str]:
    """Whether it may be why, and the line in words. mongod logs JSON, a page of it even when all is well."""
    try:
        entry = json.loads(line)
        details = entry.get("attr") or {}
        reasons = [details.get(name) for name in ("error", "message", "msg")]
        inner = [one.get("errmsg") or one.get("msg") if isinstance(one, dict) else one for one in reasons]
        text = " ".join(str(one) for one in (entry["msg"], *inner) if one)
        return entry.get("s") in ("E", "F"), text
    except (ValueError, KeyError, AttributeError):
        return True, line.strip()
