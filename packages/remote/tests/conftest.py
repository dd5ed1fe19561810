"""What the tests share with those of the sandboxes of this machine."""

from tests.runtime.conftest import compiled_science

__all__ = ["compiled_science"]
