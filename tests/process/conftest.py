"""What the tests of processes share with those of backends."""

from tests.backend.conftest import killable

__all__ = ["killable"]
