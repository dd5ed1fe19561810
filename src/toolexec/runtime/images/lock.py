"""The versions of everything in an image, in a file that it can be built from once more."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONValue
from toolexec.runtime.images.packages import Pin

_VERSION: Final = 1
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """What an image was built from: `requirements` were asked for, `system` and `packages` are what came of it."""

    suite: str
    node: bool
    go: bool
    requirements: tuple[str, ...]
    system: Mapping[str, str]
    """Debian's packages: name → version."""
    packages: Mapping[str, Pin]
    """PyPI's."""

    @property
    def digest(self) -> str:
        """Another one for each content."""
        return hashlib.sha256(self._text().encode()).hexdigest()

    def write(self, path: Path) -> None:
        """Write it to the file *path*. Raises ConfigurationError when that does not work."""
        try:
            path.write_text(self._text(), "utf-8")
        except OSError as error:
            raise ConfigurationError(f"cannot write {path}: {error.strerror or error}") from error

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the lock in the file *path*. Raises ConfigurationError when there is none."""
        try:
            data = json.loads(path.read_text("utf-8"))
            if data["version"] != _VERSION:
                raise ValueError
            return cls(
                suite=_text(data["suite"]),
                node=data["node"] is True,
                go=data["go"] is True,
                requirements=tuple(_text(item) for item in data["requirements"]),
                system={_text(name): _text(version) for name, version in data["system"].items()},
                packages={
                    _text(name): Pin(version=_text(pin["version"]), sha256=_text(pin["sha256"]))
                    for name, pin in data["packages"].items()
                },
            )
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"{path} is no lock of an image; build one without --lock {path} first") from error

    def check_system(self, system: Mapping[str, str]) -> None:
        """Raise ConfigurationError when Debian's packages are not those of the lock: a mirror has one version only."""
        names = sorted(name for name in {*self.system, *system} if self.system.get(name) != system.get(name))
        if names:
            told = [f"{name} {self.system.get(name, 'none')} is {system.get(name, 'none')} now" for name in names]
            more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            raise ConfigurationError(
                f"Debian has moved on since the lock was written: {', '.join(told[:_SHOWN])}{more}; give a mirror "
                "of that time with --mirror, or write a new lock",
                details={"packages": names},
            )

    def _text(self) -> str:
        return json.dumps({"version": _VERSION, **asdict(self)}, indent=1, sort_keys=True) + "\n"


def _text(value: JSONValue) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
