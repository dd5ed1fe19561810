"""What the tests of backends share."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def killable(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of handlers that worker processes can import."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "handlers"))
    return importlib.import_module("killable_handlers")
