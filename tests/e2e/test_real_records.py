"""The real charge points, odd rows included, all the way. They belong to others, so they lie outside of the project."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .fleet import Fleet

SAMPLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "ocm" / "ocm-sample.compact.ndjson.gz"


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample of real charge points is not on this machine")
@pytest.mark.slow
def test_all_real_charge_points_are_imported_exactly_once(fleet: Callable[..., Fleet]) -> None:
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as lines:
        pois = [json.loads(line) for line in lines]
    one = fleet(pois=pois)
    one.run("produce", "--rate", "200/s")
    one.work(2)
    assert len(one.stored_ids()) == 9107
    one.expect_everything_once()
    assert one.db["import_rejects"].count_documents({}) == 0
    assert one.repeated() == 0
