"""Warnings that a caller can cause again and again."""

from __future__ import annotations

import logging

import pytest

from toolexec.server import rare_warnings
from toolexec.server.rare_warnings import RareWarning

logger = logging.getLogger(__name__)


def test_one_of_many_is_logged(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Log the first at once, and with the next one, some time later, how many came between."""
    now = 1000.0
    monkeypatch.setattr(rare_warnings, "monotonic", lambda: now)
    warning, other = RareWarning(logger), RareWarning(logger)
    for number in range(5):
        warning.log("%d of %s gave way", number, "100%")
    other.log("another kind")
    now += rare_warnings.EVERY
    warning.log("%d of %s gave way", 5, "them")
    now += rare_warnings.EVERY
    warning.log("no more")
    assert caplog.messages == [
        "0 of 100% gave way",
        "another kind",
        "5 of them gave way (4 more were not logged)",
        "no more",
    ]
