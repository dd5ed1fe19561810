"""The file that remembers which definitions of remote tools were accepted."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows
    fcntl: Any = None

__all__ = ["Pin", "PinKey", "PinsFile", "Seen"]

PinKey: TypeAlias = tuple[str, str]
"""The backend's name and the tool's ID."""

_LONGEST: Final = 32 * 1024
_PATIENCE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A definition as it was seen: its digest, and its text (cut where it is very long)."""

    digest: str
    text: str

    @classmethod
    def of(cls, digest: str, text: str) -> Seen:
        """Return the definition, its text cut at 32 KiB."""
        return cls(digest=digest, text=text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n… cut")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What is known of one tool: the definition that was `accepted`, if any, and one that waits for that.

    `used` says that it was called, or accepted by a person: such a pin is never forgotten.
    """

    accepted: Seen | None = None
    pending: Seen | None = None
    used: bool = False
    since: str = ""

    def to_dict(self) -> JSONDict:
        """Return the pin as JSON-able data."""
        data: JSONDict = {"since": self.since}
        for name in ("accepted", "pending"):
            seen = getattr(self, name)
            if seen is not None:
                data[name] = {"digest": seen.digest, "definition": seen.text}
        return data | ({"used": True} if self.used else {})

    @classmethod
    def from_dict(cls, data: JSONDict) -> Pin:
        """Read what `to_dict` wrote; raises KeyError or TypeError for anything else."""
        parts = {
            name: Seen(digest=str(data[name]["digest"]), text=str(data[name]["definition"]))
            for name in ("accepted", "pending")
            if name in data
        }
        return cls(**parts, used=data.get("used") is True, since=str(data.get("since", "")))


class PinsFile:
    """Pins in *path*, or only in memory when that is None. Processes that share the file see each other's changes."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.pins: dict[PinKey, Pin] = {}
        self.version: int = 0
        """Grows whenever the file was read."""
        self._stamp: tuple[int, ...] = ()

    def load_if_changed(self) -> None:
        """Read the file if it is another than the one that was read last; `version` says whether it was.

        Raises ConfigurationError when it cannot be read or is not a file of pins.
        """
        if self.path is None:
            return
        try:
            if (stamp := self._look()) == self._stamp:
                return
            self.pins = _read(self.path) if stamp else {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"the file of accepted tools {self.path} cannot be read: {error or type(error).__name__}; mend it, or "
                "remove it to begin again (then every tool counts as new)"
            ) from error
        self._stamp = stamp
        self.version += 1

    def change(self, apply: Callable[[dict[PinKey, Pin]], None]) -> None:
        """Have *apply* change the pins, those that others have written meanwhile included, and write them.

        Raises ConfigurationError as `load_if_changed` does, OSError when the file cannot be written: then the pins are
        as they were.
        """
        if self.path is None:
            apply(self.pins)
            return
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(lock)
            self.load_if_changed()
            changed = dict(self.pins)
            apply(changed)
            _write(self.path, changed)
            self.pins = changed
            self._stamp = self._look()
        finally:
            os.close(lock)

    def _look(self) -> tuple[int, ...]:
        assert self.path is not None
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return ()
        return (found.st_mtime_ns, found.st_size, found.st_ino)


def _lock(fd: int) -> None:
    """Lock the file; raises OSError when another process keeps it locked for 2 s."""
    if fcntl is None:  # pragma: no cover - of two changes at once one is lost then, and the tool asked about again
        return
    ends = time.monotonic() + _PATIENCE
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.001)
        else:
            return


def _read(path: Path) -> dict[PinKey, Pin]:
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("v") != 1:
        raise ValueError("it is not of version 1")
    backends = cast("dict[str, dict[str, JSONDict]]", data["backends"])
    return {(backend, tool): Pin.from_dict(pin) for backend, tools in backends.items() for tool, pin in tools.items()}


def _write(path: Path, pins: dict[PinKey, Pin]) -> None:
    """Put the new file in the old one's place, whole."""
    backends: dict[str, JSONDict] = {}
    for (backend, tool), pin in pins.items():
        backends.setdefault(backend, {})[tool] = pin.to_dict()
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            json.dump({"v": 1, "backends": backends}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
