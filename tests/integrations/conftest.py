"""What the tests of integrations share."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def sandbox() -> None:
    """The embedded sandbox, built before the clock of a single test runs."""
    from toolexec.runtime.wasm.programs import load_program

    load_program()
