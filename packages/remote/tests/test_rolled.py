"""Three servers that are rolled one by one under load: no run is lost, and none runs twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from packages.remote.tests.rolled import roll

pytestmark = [pytest.mark.soak]

RATE = int(os.environ.get("ROLLED_RATE", "200"))
SECONDS = int(os.environ.get("ROLLED_SECONDS", "60"))
KIND = os.environ.get("ROLLED_KIND", "scripted")


async def test_a_fleet_is_rolled_under_load(tmp_path: Path) -> None:
    """Each run has its value, and each call was made once."""
    found = await roll(tmp_path, KIND, rate=RATE, quiet=SECONDS / 4, seconds=SECONDS)
    assert len(found.rolled.took) >= RATE * SECONDS
    assert len(found.drains) == 3
    assert not found.lost, f"{len(found.lost)} runs were lost: {[*found.lost.items()][:3]}"
    assert not found.doubled, f"the calls of {len(found.doubled)} runs were made more than once"
