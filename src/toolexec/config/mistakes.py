"""All that is wrong with a configuration, reported at once."""

from __future__ import annotations

from toolexec.errors import ConfigurationError

_SHOWN = 50


class Mistakes:
    """Gathers mistakes, to raise them together."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def __len__(self) -> int:
        return len(self._found)

    def add(self, where: str, message: str) -> None:
        """Record a mistake; *where* is a file with a line, a variable or a flag, or empty."""
        text = f"{where}: {message}" if where else message
        if text not in self._found:
            self._found.append(text)

    def check(self) -> None:
        """Raise a ConfigurationError with all of them, if there are any; its `details["mistakes"]` lists them."""
        if not self._found:
            return
        shown = self._found[:_SHOWN]
        if len(self._found) > _SHOWN:
            shown.append(f"... and {len(self._found) - _SHOWN} more")
        text = shown[0] if len(shown) == 1 else "\n".join([f"{len(self._found)} mistakes:", *shown])
        raise ConfigurationError(text, details={"mistakes": self._found[:_SHOWN], "count": len(self._found)})
