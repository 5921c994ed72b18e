"""What a MongoDB server tells of itself, and whether our indexes are there. A hosted server, or a modest user, sees little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo.database import Database
from pymongo.errors import OperationFailure

from ..application.checkup import Facts
from ..domain.errors import BadSetting
from ..domain.text import plain
from .mongo_client import Document, mongo_errors
from .mongo_setup import missing_indexes


class MongoCheckup:
    """Implements application.checkup_ports.MongoServer."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def reach(self) -> None:
        with mongo_errors():
            self._database.command("ping")

    def facts(self) -> Facts:
        hidden: dict[str, str] = {}
        hello = self._asked("hello", hidden)
        told: dict[str, Any] = {name: hello[name] for name in ("setName", "msg") if name in hello}
        told["members"] = len(hello.get("hosts") or ())
        told |= {name: value for name, value in self._asked("buildInfo", hidden).items() if name == "version"}
        told |= {name: value for name, value in self._asked("dbStats", hidden).items() if name in ("fsUsedSize", "fsTotalSize")}
        connections = self._asked("serverStatus", hidden).get("connections")
        for name in ("current", "available"):
            if isinstance(connections, dict) and name in connections:
                told[f"connections_{name}"] = connections[name]
        return Facts(told, hidden)

    def missing_indexes(self, collections: Sequence[str]) -> list[str]:
        return missing_indexes(self._database, collections)

    def _asked(self, command: str, hidden: dict[str, str]) -> dict[str, Any]:
        """What it answers; nothing, and the reason in `hidden`, when it does not."""
        try:
            with mongo_errors():
                return dict(self._database.command(command))
        except (BadSetting, OperationFailure) as error:
            hidden[command] = plain(str(error).partition(", full error")[0], 160)
            return {}
