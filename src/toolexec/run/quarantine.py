"""Where held answers are kept, for a person to read."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from toolexec.errors import ConfigurationError, ResultNotFoundError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.origin import Caller
from toolexec.model.redaction import redactor
from toolexec.process.atomic import replace_files

__all__ = ["HeldAnswer", "Quarantine"]

_ID: Final = re.compile(r"\d{8}-\d{6}-[0-9a-f]{8}")
_OWNER: Final = 0o600
_MOST: Final = 1 << 20
"""Of a longer answer, in characters of JSON, the start is kept: a server cannot fill the disk with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAnswer:
    """An answer that is held: which tool gave it, on which backend, when and to whom, what was found in it, and the
    answer itself (`value`, and the `content` of a reply in parts, or an `error`), without secrets."""

    id: str
    time: str
    tool: str
    backend: str
    caller: str
    findings: Sequence[str]
    answer: JSONValue

    @classmethod
    def read(cls, data: JSONObject) -> Self:
        """Read what `asdict` wrote. Raises KeyError for what it did not."""
        return cls(**{part.name: data[part.name] for part in fields(cls)})  # type: ignore[arg-type]


class Quarantine:
    """Held answers as files of a *directory* that is its owner's alone; of more than *keep* the oldest go, and of an
    answer of more than 1 MB of JSON the start is kept.

    Several processes may use one directory; other files in it are left alone. Nothing is made before the first answer
    is held. Raises ConfigurationError for *keep* below 1.
    """

    def __init__(self, directory: str | Path, *, keep: int = 1000) -> None:
        if keep < 1:
            raise ConfigurationError(f"keep of a Quarantine must be 1 or more, not {keep}")
        self.directory: Path = Path(directory)
        self.keep = keep

    def hold(self, tool: str, backend: str, caller: Caller, findings: Sequence[str], answer: JSONDict) -> str:
        """Keep an answer, and return the ID under which it is. Raises OSError when it cannot be written."""
        now = datetime.now(UTC)
        held = HeldAnswer(
            id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(4)}",
            time=now.isoformat(timespec="seconds"),
            tool=tool,
            backend=backend,
            caller=caller.id,
            findings=[*findings],
            answer=_start_of(redactor.value(answer)),
        )
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(asdict(held))
        replace_files({self.directory / f"{held.id}.json": text}, mode=_OWNER)
        for old in self._files()[: -self.keep]:
            old.unlink(missing_ok=True)
        return held.id

    def all(self) -> list[HeldAnswer]:
        """Return what is held, the oldest first; files that are something else are left out."""
        return [held for file in self._files() if (held := _read(file)) is not None]

    def get(self, held: str) -> HeldAnswer:
        """Return one. Raises ResultNotFoundError for an ID that is not there."""
        found = _read(self._file(held))
        if found is None:
            raise _missing(held)
        return found

    def remove(self, held: str) -> None:
        """Remove one. Raises ResultNotFoundError for an ID that is not there."""
        try:
            self._file(held).unlink()
        except FileNotFoundError:
            raise _missing(held) from None

    def _files(self) -> list[Path]:
        found = (file for file in self.directory.glob("*.json") if _ID.fullmatch(file.stem))
        return sorted(found)  # an ID begins with the time

    def _file(self, held: str) -> Path:
        if _ID.fullmatch(held) is None:  # it must not lead elsewhere
            raise _missing(held)
        return self.directory / f"{held}.json"


def _start_of(answer: JSONValue) -> JSONValue:
    text = json.dumps(answer)
    return answer if len(text) <= _MOST else {"left_out": f"{len(text) - _MOST} characters", "start": text[:_MOST]}


def _read(file: Path) -> HeldAnswer | None:
    try:
        return HeldAnswer.read(json.loads(file.read_bytes()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _missing(held: str) -> ResultNotFoundError:
    return ResultNotFoundError(f"no answer is held as {held!r}; toolexec quarantine list shows those that are")
