"""What the tests of integrations share."""

from __future__ import annotations

from tests.cli.conftest import sandbox

__all__ = ["sandbox"]
