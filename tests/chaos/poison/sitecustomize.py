"""Makes a shard deadly. Python loads this by its name when the folder is on PYTHONPATH, so children of a worker have it too.

The process that is to fetch a page of a shard listed in the file that CHAOS_POISON_FILE names ends at once by SIGKILL.
A file, so that the shard can be healed while its workers run.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def poison(listed_in: Path) -> None:
    from streams_importer.domain.model import Cursor, Page
    from streams_importer.domain.shard_key import Scope
    from streams_importer.ports import Cancel
    from streams_importer.sources.openchargemap import OpenChargeMap

    fetch = OpenChargeMap.fetch

    def deadly_fetch(self: OpenChargeMap, scope: Scope, cursor: Cursor | None, cancel: Cancel) -> Page:
        with suppress(FileNotFoundError):
            if scope.key in listed_in.read_text().splitlines():
                os.kill(os.getpid(), signal.SIGKILL)
        return fetch(self, scope, cursor, cancel)

    OpenChargeMap.fetch = deadly_fetch  # type: ignore[method-assign]


if "CHAOS_POISON_FILE" in os.environ:
    poison(Path(os.environ["CHAOS_POISON_FILE"]))
