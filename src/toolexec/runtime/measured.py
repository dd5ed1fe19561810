"""Kinds of sandbox that are experimental, and what a check of this machine found of them.

`toolexec sandbox check` keeps a record of each, in the state directory, private to its user. While that holds, a kind
may serve profiles without being named. It is bound to what it was measured with: the engine, the image, the kernel and
the processor, the configuration, the user, and the promises of this release. Where one of them changes, and where a
later check finds a promise weaker, the kind is experimental again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.process.caches import state_directory
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.contract import PROMISES
from toolexec.runtime.plugin import SandboxPlugin
from toolexec.runtime.sandbox_settings import SandboxSettings
from toolexec.version import __version__

if TYPE_CHECKING:
    from toolexec.process.private import PrivateDirectory

_VERSION: Final = 1
_RECORD: Final = re.compile(r"(?P<kind>[a-z][a-z0-9_]*)\.(?P<profile>[a-z]+)\.[0-9a-f]{16}")
_UNBOUND: Final = "a check of it cannot be kept"
_CHANGED: Final[Mapping[str, str]] = {
    "toolexec": "toolexec is another release",
    "promises": "the promises are other ones",
    "user": "it was checked by another user",
    "configuration": "its configuration is another one",
    "engine": "its engine is of another version",
    "image": "its image is another one",
}
"""By what a record is bound to: what is said of one that differs. Those of the host say more, see `other_host`."""
_HOST: Final = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Whether an experimental kind may serve a profile by itself, by its record: if not, `why`.

    `checked` is the day of its check (empty: there is no record of one).
    """

    why: str = ""
    checked: str = ""

    @property
    def holds(self) -> bool:
        """Whether it may."""
        return not self.why


@runtime_checkable
class _Imaged(Protocol):
    """A sandbox that runs programs in images."""

    async def image_digest(self) -> str: ...


class Experiment:
    """The kind of *plugin*, which is experimental, as *settings* have it set up: *own* are those of its kind.

    Its records are in *directory* (default: `records_directory()`, which says what is raised).
    """

    def __init__(
        self, plugin: SandboxPlugin, own: object, settings: SandboxSettings, *, directory: Path | None = None
    ) -> None:
        self.kind: str = plugin.kind
        self.profiles: tuple[str, ...] = tuple(plugin.profiles)
        self._directory = directory or records_directory()
        self._configuration = _digest({"own": own, "image": settings.image, "egress": settings.egress})
        self._serving = {profile: self.standing(profile).holds for profile in self.profiles}

    def may_serve(self, profile: str) -> bool:
        """Return whether its record for *profile* held when this was made; `lapsed` says what has changed since."""
        return self._serving.get(profile, False)

    def standing(self, profile: str) -> Standing:
        """Return how it stands, by its record and by what can be seen without its engine. Reads files."""
        return self._standing(profile, self._facts())

    async def lapsed(self, backend: SandboxBackend, profile: str, version: str) -> str:
        """Return why *backend*, whose engine is of this *version*, may not serve *profile* by itself now; "" where it
        may. Does not raise."""
        try:
            facts = await self._all_facts(backend, version)
        except ToolExecError as error:
            return error.message
        return (await asyncio.to_thread(self._standing, profile, facts)).why

    async def facts(self, backend: SandboxBackend, version: str) -> JSONDict:
        """Return what a check of *backend*, whose engine is of this *version*, is bound to.

        Raises ConfigurationError for what cannot be compared later, as an image that is a directory, and what the
        engine raises for an image that is not there.
        """
        if not self._configuration:
            raise ConfigurationError(f"{_UNBOUND}: its configuration has values that cannot be compared")
        return await self._all_facts(backend, version)

    def note(self, facts: JSONObject, profile: str, language: str, weaker: Sequence[str], *, complete: bool) -> None:
        """Keep what a check under *facts* found: the programs that got out, in a *language*, and whether all programs
        for that were run. What earlier ones found under the same facts stays. Blocks.

        Raises ConfigurationError when it cannot be kept, as in a directory of another user.
        """
        name = self._name(profile)
        with self._opened() as directory, directory.locked():
            before = directory.open(name)
            languages: JSONDict = {}
            if before is not None:
                with before:
                    known = _read(before.read())
                if known is not None and known["facts"] == dict(facts):
                    languages = known["languages"]
            if not weaker and not complete:
                return
            languages[language] = {"weaker": list(weaker), "complete": complete}
            record: JSONDict = {
                "version": _VERSION,
                "kind": self.kind,
                "profile": profile,
                "checked": datetime.now(UTC).isoformat(timespec="seconds"),
                "facts": dict(facts),
                "languages": languages,
            }
            directory.store(name, json.dumps(record).encode(), {"kind": self.kind, "profile": profile})

    def _standing(self, profile: str, now: JSONObject) -> Standing:
        if profile not in self.profiles:
            return Standing(why=f"it does not serve {profile}")
        try:
            record = self._record(profile)
        except ConfigurationError as error:
            return Standing(why=error.message)
        if record is None:
            changed = any(_parts(name) == (self.kind, profile) for name in _names(self._directory))
            return Standing(why=_CHANGED["configuration"] if changed else "it was never checked on this machine")
        checked = str(record["checked"])[:10]
        languages: Mapping[str, Any] = record["languages"]
        weaker = [name for found in languages.values() for name in found["weaker"]]
        if weaker:
            return Standing(why=f"it was found weaker than it promises: {', '.join(weaker[:5])}", checked=checked)
        if not languages.get("python", {}).get("complete"):
            return Standing(why="not all was checked", checked=checked)
        return Standing(why=_difference(record["facts"], now), checked=checked)

    def _record(self, profile: str) -> dict[str, Any] | None:
        """Return what was kept. Raises ConfigurationError for a record that is not to be believed."""
        name = self._name(profile)
        if not self._configuration or name not in _names(self._directory):
            return None
        with self._opened() as directory:
            kept = directory.open(name)
            if kept is not None:
                with kept:
                    found = _read(kept.read())
                if found is not None and (found["kind"], found["profile"]) == (self.kind, profile):
                    return found
        raise ConfigurationError(f"its record {self._directory / name} is damaged, or others could have written to it")

    def _opened(self) -> PrivateDirectory:
        from toolexec.process.private import PrivateDirectory

        return PrivateDirectory(
            self._directory,
            called="directory of what checks of sandboxes found",
            fix="remove it, or set XDG_STATE_HOME=/path",
        )

    def _name(self, profile: str) -> str:
        return f"{self.kind}.{profile}.{self._configuration[:16]}"

    def _facts(self) -> JSONDict:
        """Return what is known without its engine."""
        from toolexec.runtime.host import host_facts

        return {
            "toolexec": __version__,
            "promises": _digest(PROMISES),
            "user": os.geteuid(),
            "configuration": self._configuration,
            _HOST: host_facts(),
        }

    async def _all_facts(self, backend: SandboxBackend, version: str) -> JSONDict:
        image = await backend.image_digest() if isinstance(backend, _Imaged) else "none"
        if not image:
            raise ConfigurationError(f"{_UNBOUND}: its image has no digest, so it may change without a word")
        return {**await asyncio.to_thread(self._facts), "engine": version, "image": image}


def records_directory() -> Path:
    """Return where records are kept: `sandboxes` in the user's state directory.

    Raises ConfigurationError where there is no home, and where files have no owners.
    """
    if not hasattr(os, "geteuid"):
        raise ConfigurationError("what checks of sandboxes find is kept only where files have owners")
    try:
        return state_directory() / "sandboxes"
    except RuntimeError as error:
        raise ConfigurationError(f"there is no directory for what checks find: {error}; set XDG_STATE_HOME") from error


def recorded_kinds(directory: Path | None = None) -> frozenset[str]:
    """Return the kinds of which there are records, whatever those say. Reads a directory."""
    try:
        names = _names(directory or records_directory())
    except ConfigurationError:  # none can be kept
        return frozenset()
    return frozenset(kind for kind, _ in map(_parts, names) if kind)


def _difference(before: JSONObject, now: JSONObject) -> str:
    """Return in what the facts of a check differ from those of *now*, of which some may not be known yet."""
    from toolexec.runtime.host import other_host

    for name, value in now.items():
        if before.get(name) == value:
            continue
        if name == _HOST:
            saved = before.get(_HOST)
            assert isinstance(value, Mapping)
            return f"this machine is another one: {other_host(saved if isinstance(saved, Mapping) else {}, value)}"
        was = f": {value}, and was {before.get(name)}" if name in ("toolexec", "engine", "user") else ""
        return _CHANGED[name] + was
    return ""


def _names(directory: Path) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if _RECORD.fullmatch(name)]  # noqa: PTH208 - names are enough
    except OSError:
        return []


def _parts(name: str) -> tuple[str, str]:
    found = _RECORD.fullmatch(name)
    return (found["kind"], found["profile"]) if found else ("", "")


def _read(text: bytes) -> dict[str, Any] | None:
    """Return a record; None for anything else."""
    try:
        data: Any = json.loads(text)
        languages = data["languages"].values()
        sound = data["version"] == _VERSION and all(
            isinstance(found["weaker"], list) and isinstance(found["complete"], bool) for found in languages
        )
        _ = data["kind"], data["profile"], data["checked"], dict(data["facts"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return data if sound else None


def _digest(value: object) -> str:
    """Return the same for equal settings in every process; "" for those that cannot be compared."""
    try:
        return sha256(json.dumps(_plain(value), sort_keys=True).encode()).hexdigest()
    except TypeError:
        return ""


def _plain(value: object) -> JSONValue:
    """Return settings as JSON. Raises TypeError for what has no value of its own, such as a function."""
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum | Path):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        named: Mapping[Any, object] = value
        return {str(name): _plain(each) for name, each in named.items()}
    if isinstance(value, AbstractSet):
        return sorted(json.dumps(_plain(each), sort_keys=True) for each in value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [_plain(each) for each in value]
    dumped = getattr(value, "model_dump", None)
    if callable(dumped):
        return _plain(dumped())
    raise TypeError(f"{type(value).__name__} cannot be compared")
