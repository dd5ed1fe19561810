"""The promises on the newest Python."""

from __future__ import annotations

from typing import ClassVar

from tests.release.environments import supported
from tests.release.promises import Promises


class TestNewest(Promises):
    """A file of its own, so that it runs beside the others."""

    versions: ClassVar[list[tuple[int, int]]] = supported()[1:][-1:]
