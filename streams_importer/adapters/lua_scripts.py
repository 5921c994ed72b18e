"""Loads `lua/`, resolves includes, and runs scripts by name.

`--@include _name` puts the file `_name.lua` there, once a script. The folder lies inside the installed package, or beside it in
a checkout.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import redis

_INCLUDE = re.compile(r"^--@include (_\w+)$", re.MULTILINE)


def lua_folder() -> Path:
    inside = Path(str(resources.files("streams_importer"))) / "lua"
    return inside if inside.is_dir() else inside.parent.parent / "lua"


def read_part(name: str) -> str:
    return (lua_folder() / f"{name}.lua").read_text(encoding="utf-8")


def script_names() -> list[str]:
    return sorted(path.stem for path in lua_folder().glob("[a-z]*.lua"))


def script_source(name: str, read: Callable[[str], str] = read_part) -> str:
    """The whole text of a script. Tests replace `read` to take one mechanism out."""
    included: set[str] = set()

    def resolve(match: re.Match[str]) -> str:
        part = match[1]
        if part in included:
            return ""
        included.add(part)
        return _INCLUDE.sub(resolve, read(part))

    return _INCLUDE.sub(resolve, read(name))


class LuaScripts:
    """Scripts on one client; a flushed script cache is healed by redis-py's register_script."""

    def __init__(self, client: redis.Redis, read: Callable[[str], str] = read_part) -> None:
        self._client = client
        self._read = read
        self._scripts: dict[str, Any] = {}

    def run(self, name: str, keys: Sequence[str], args: Sequence[str | int | float]) -> Any:
        script = self._scripts.get(name)
        if script is None:
            script = self._scripts[name] = self._client.register_script(script_source(name, self._read))
        return script(keys=list(keys), args=list(args))
