"""A new engine for containers is short to write: most of what it takes is shared."""

from __future__ import annotations

import pytest
from tests.launchers import count, engines

MOST = {
    "bubblewrap": 250,
    "containerd": 380,
    "docker": 250,
    "gvisor": 250,
    "kata": 250,
    "kubernetes": 500,
    "microvm": 250,
}


def test_every_engine_is_counted() -> None:
    """An engine that is added is held to 250 lines here."""
    assert engines() == sorted(MOST)


@pytest.mark.parametrize("engine", MOST)
def test_a_launcher_is_short(engine: str) -> None:
    """Count the lines of what starts containers and ends them; a client for an API and an image store are extra."""
    assert 0 < count(engine).launcher <= MOST[engine]
