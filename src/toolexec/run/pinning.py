"""Which definitions of remote tools are trusted: the one that was seen first, until another is accepted."""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

from toolexec.discovery.changes import ChangeLog
from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError, DefinitionChangedError
from toolexec.model.binding import Binding
from toolexec.model.call import ToolCall
from toolexec.model.forks import forks
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.model.settings import check_ranges, checked
from toolexec.model.tool import TRANSFORMED, Tool
from toolexec.run.layer import Layer
from toolexec.run.pins_file import Pin, PinKey, PinsFile, Sighting, merged, shortened
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.settings import PinningSettings

logger: logging.Logger = logging.getLogger(__name__)

PinState: TypeAlias = Literal["accepted", "new", "changed"]

MOST_PER_BACKEND: Final = 200_000
_LOOK_EVERY: Final = 1.0
_MANY: Final = 400_000
_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PinStatus:
    """How one tool of one backend is: `accepted`, `new` (not accepted yet) or `changed` since it was."""

    tool_id: str
    backend: str
    state: PinState
    since: str = ""
    digest: str = ""

    def to_dict(self) -> JSONDict:
        """Return the status as JSON-able data."""
        data = {"toolId": self.tool_id, "backend": self.backend, "state": self.state, "since": self.since}
        return data | {"digest": self.digest}


class _Verdict(NamedTuple):
    """What was found out about a tool; it holds as long as the tool, its binding and its pin are the same."""

    tool: Tool
    binding: Binding
    pin: Pin
    digest: str
    allowed: bool
    saved: bool


@checked("Pins")
class Pins:
    """Keeps tools whose definition changed from being seen and called, until the new definition is accepted.

    A definition is what a model reads of a tool (name, title, description, schemas, annotations) and the destination of
    its calls: the origins that they and their credentials go to, or the program. Local tools are not pinned. With
    *accept_first* the first definition of a tool is accepted as it comes, else it waits, too. *path* is the database
    that remembers all this, safe to share between processes (None: only in memory); what another process accepts counts
    here at the next call. *clock* gives seconds.

    What was accepted is never forgotten. Once *most_per_backend* tools of a backend are accepted, further ones wait to
    be accepted by a person; of those that wait, the newest as many are remembered. Raises ConfigurationError when the
    database cannot be read.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        accept_first: bool = PinningSettings.accept_first,
        clock: Callable[[], float] = time.monotonic,
        most_per_backend: int = MOST_PER_BACKEND,
    ) -> None:
        check_ranges("Pins", above={"most_per_backend": most_per_backend})
        self._file = PinsFile(Path(path) if path is not None else None)
        self._accept_first = accept_first
        self._clock = clock
        self._most = most_per_backend
        self._lock = threading.RLock()
        self._verdicts: dict[str, _Verdict] = {}
        self._seen: dict[PinKey, Sighting] = {}  # what is not written yet
        self._counts: Counter[tuple[str, bool]] | None = None
        self._full: set[str] = set()
        self._changes = ChangeLog()
        self._complaint = ""
        self._next_look = 0.0
        self._next_save = 0.0
        self._file.read_changes()
        forks.renew(self)

    def renew(self) -> None:
        """Implement `Renewed.renew`."""
        self._lock = threading.RLock()

    # -- the gate -----------------------------------------------------------------------------------------------

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that refuses calls of tools whose definition is not accepted."""
        return Pinned(inner, find, self.check)

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether the tool's definition is accepted: the same for every origin."""
        return entry.binding.kind == "local" or self._verdict(entry, used=False).allowed

    @property
    def version(self) -> int:
        """Grows whenever what is shown of the same tools changes; see `TracksChanges`."""
        now = self._clock()
        if now >= self._next_look or (self._seen and now >= self._next_save):
            with self._lock:
                self._look(now)
                self._save_some(now)
        return self._changes.version

    def changed_since(self, version: int) -> Collection[str] | None:
        """Return the tools whose state changed since then; see `TracksChanges`."""
        return self._changes.changed_since(version)

    def check(self, entry: Registered) -> None:
        """Raises DefinitionChangedError unless the tool's definition is accepted."""
        if entry.binding.kind == "local":
            return
        if not self._verdict(entry, used=True).allowed:
            raise self._refusal(entry)

    def _verdict(self, entry: Registered, *, used: bool) -> _Verdict:
        known = self._verdicts.get(entry.tool.id)
        if (
            known is not None
            and known.tool is entry.tool
            and known.binding is entry.binding
            and (known.saved or not used)
            and (known.allowed or not used)
            and self._clock() < self._next_look
        ):
            return known
        with self._lock:
            return self._judge(entry, self._clock(), used=used)

    def _judge(self, entry: Registered, now: float, *, used: bool) -> _Verdict:
        known = self._verdicts.get(entry.tool.id)
        if now >= self._next_look or (used and known is not None and not known.allowed):  # it may be accepted by now
            self._look(now)
        verdict = self._compare(entry)
        if used and verdict.allowed and not verdict.saved:
            key = (entry.binding.backend, entry.tool.id)
            if not self._save({key: self._seen[key]}):
                return verdict._replace(allowed=False)  # what cannot be remembered cannot be held to later
            verdict = self._compare(entry)
        self._save_some(now)
        return self._verdicts.get(entry.tool.id, verdict)

    def _compare(self, entry: Registered) -> _Verdict:
        """Compare the definition with the accepted one, and remember what is new about it."""
        tool, binding = entry.tool, entry.binding
        key = (binding.backend, tool.id)
        known = self._verdicts.get(tool.id)
        same = known is not None and known.tool is tool and known.binding.destination == binding.destination
        digest = known.digest if known is not None and same else _digest(definition_of(entry))
        pin = self._pin(key)
        if pin is None or digest not in (pin.accepted, pin.pending) or (digest == pin.accepted and pin.pending):
            pin = self._note(entry, key, digest, pin)
        verdict = _Verdict(tool, binding, pin, digest, digest == pin.accepted, key not in self._seen)
        if len(self._verdicts) >= _MANY:
            self._verdicts.clear()
        self._verdicts[tool.id] = verdict
        return verdict

    def _note(self, entry: Registered, key: PinKey, digest: str, pin: Pin | None) -> Pin:
        """Note a definition that is not the one that was seen last; returns what is known of the tool now."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = definition_of(entry)
        accept = pin is None and self._accept_first and self._has_room(key[0])
        respells = pin.accepted if pin is not None and self._same(key, text) else ""
        seen = Sighting(digest=digest, text=shortened(text), since=since, accept=accept, respells=respells)
        after = merged(pin, seen)
        self._count(key[0], pin, after)
        if pin is not None and pin.accepted and after.pending:
            logger.warning("the definition of %s (%s) is not the accepted one; it is in quarantine", key[1], key[0])
        self._seen[key] = seen
        return after

    def _same(self, key: PinKey, text: str) -> bool:
        """Return whether a definition is the accepted one, only spelled as another version of this program does it."""
        accepted = self._definitions(key)[0]
        pin = self._pin(key)
        if pin is None or _digest(accepted) != pin.accepted:
            return False
        try:
            return json.loads(accepted) == json.loads(text)
        except ValueError:  # a very long one is kept in part
            return False

    def _pin(self, key: PinKey) -> Pin | None:
        pin, seen = self._file.pins.get(key), self._seen.get(key)
        return merged(pin, seen) if seen is not None else pin

    def _definitions(self, key: PinKey) -> tuple[str, str]:
        """Return the accepted definition and the pending one; empty for none, and for what cannot be read."""
        try:
            accepted, pending = self._file.definitions(key)
        except OSError as error:
            self._complain(f"definitions cannot be read from {self._file.path}: {error}")
            accepted = pending = ""
        seen, pin = self._seen.get(key), self._pin(key)
        if seen is not None and pin is not None:
            accepted = seen.text if pin.accepted == seen.digest else accepted
            pending = seen.text if pin.pending == seen.digest else ""
        return accepted, pending

    # -- room ---------------------------------------------------------------------------------------------------

    def _has_room(self, backend: str) -> bool:
        """Return whether one more tool of the backend can be accepted at first sight."""
        if self._tallies()[backend, True] < self._most:
            return True
        if backend not in self._full:
            self._full.add(backend)
            logger.warning(
                "backend %s has had more than %d tools; further ones wait to be accepted", backend, self._most
            )
        return False

    def _count(self, backend: str, before: Pin | None, after: Pin) -> None:
        """Count a tool that is new; the oldest that only wait make room for it."""
        tallies = self._tallies()
        if before is not None:
            return
        tallies[backend, bool(after.accepted)] += 1
        if not after.accepted and tallies[backend, False] > self._most:
            self._forget_waiting(backend)

    def _forget_waiting(self, backend: str) -> None:
        self._save(dict(self._seen))
        try:
            self._file.forget_waiting(backend, max(self._most // 10, 1))
        except OSError as error:
            self._complain(f"{self._file.path} cannot be written: {error}")
        self._counts = None

    def _tallies(self) -> Counter[tuple[str, bool]]:
        """Return how many tools of each backend are accepted, and how many are not."""
        if self._counts is None:
            pins = self._all()
            self._counts = Counter((backend, bool(pin.accepted)) for (backend, _), pin in pins.items())
        return self._counts

    def _all(self) -> dict[PinKey, Pin]:
        return self._file.pins | {key: merged(self._file.pins.get(key), seen) for key, seen in self._seen.items()}

    # -- the file -----------------------------------------------------------------------------------------------

    def _look(self, now: float) -> None:
        self._next_look = now + _LOOK_EVERY
        try:
            changed = self._file.read_changes()
        except ConfigurationError as error:
            self._complain(f"what was accepted before still counts: {error}")
        else:
            self._complaint = ""
            self._reconsider(changed)

    def _reconsider(self, changed: Collection[PinKey]) -> None:
        """Forget what was found out about tools whose pins others have changed."""
        if not changed:
            return
        self._counts = None
        for _, tool_id in changed:
            self._verdicts.pop(tool_id, None)
        self._changes.add([tool_id for _, tool_id in changed])

    def _complain(self, message: str) -> None:
        """Log an error, once as long as it is the same."""
        if message != self._complaint:
            self._complaint = message
            logger.error("%s", message)

    def _save(self, seen: dict[PinKey, Sighting]) -> bool:
        """Write sightings to the file; says whether that worked."""
        try:
            changed = self._file.write(seen)
        except (OSError, ConfigurationError) as error:
            self._complain(f"accepted tools cannot be written to {self._file.path}: {error}")
            return False
        self._written(seen, changed)
        return True

    def _written(self, seen: Collection[PinKey], changed: Collection[PinKey]) -> None:
        for key in list(seen):
            self._seen.pop(key, None)
            known = self._verdicts.get(key[1])
            if known is not None and known.binding.backend == key[0]:
                self._verdicts[key[1]] = known._replace(saved=True)
        self._reconsider(changed)

    def _save_some(self, now: float) -> None:
        """Write some of what was seen. The next time is not before 20 times as long as it took, so that it never takes
        much of the time, and after a second once there is no more."""
        if not self._seen or now < self._next_save:
            return
        began = time.perf_counter()
        self._save(dict(islice(self._seen.items(), _AT_ONCE)))
        took = 20 * (time.perf_counter() - began)
        self._next_save = now + (took if len(self._seen) >= _AT_ONCE else max(_LOOK_EVERY, took))

    # -- for people ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is new to the file now; what cannot be written is logged."""
        with self._lock:
            if self._seen:
                self._save(dict(self._seen))

    def statuses(self) -> list[PinStatus]:
        """Return every tool that is remembered, by backend and ID."""
        with self._lock:
            self._look(self._clock())
            pins = self._all()
        return [_status(key, pin) for key, pin in sorted(pins.items())]

    def quarantined(self) -> list[PinStatus]:
        """Return the tools that are not shown and cannot be called."""
        return [status for status in self.statuses() if status.state != "accepted"]

    def diff(self, tool_id: str) -> str:
        """Return what has changed of the tool, as a unified diff of its definitions; empty when nothing has.

        Raises ConfigurationError for a tool that is not remembered.
        """
        parts: list[str] = []
        for key, pin in self._of(tool_id).items():
            if pin.pending:
                accepted, pending = self._definitions(key)
                before = _lines(accepted) if pin.accepted else []
                names = (f"{tool_id} accepted", f"{tool_id} now, from {key[0]}")
                parts += difflib.unified_diff(before, _lines(pending), *names, lineterm="")
        return "\n".join(parts)

    def accept(self, tool_ids: Iterable[str]) -> list[PinStatus]:
        """Accept what these tools are now, and write that to the file; gives how they are then.

        Raises ConfigurationError for a tool that is not remembered, with none of them accepted, and OSError when the
        file cannot be written.
        """
        with self._lock:
            wanted = {key: pin.pending for tool_id in tool_ids for key, pin in self._of(tool_id).items()}
            seen = {key: self._seen[key] for key in wanted if key in self._seen}
            changed = self._file.write(seen, wanted)
            self._written(seen, {*changed, *wanted})
            found = {key: pin for key in wanted if (pin := self._pin(key)) is not None}
        return [_status(key, pin) for key, pin in sorted(found.items())]

    def _of(self, tool_id: str) -> dict[PinKey, Pin]:
        with self._lock:
            self._look(self._clock())
            found = {key: pin for key, pin in self._all().items() if key[1] == tool_id}
        if not found:
            raise ConfigurationError(
                f"no remote tool {tool_id} has been seen; toolexec trust list shows those that were", tool_id=tool_id
            )
        return found

    def _refusal(self, entry: Registered) -> DefinitionChangedError:
        tool = entry.tool
        key = (entry.binding.backend, tool.id)
        with self._lock:
            pin, accepted = self._pin(key), self._definitions(key)[0]
        details: JSONDict = {
            "accept": f"toolexec trust accept {tool.id}",
            "diff": f"toolexec trust diff {tool.id}",
        }
        if pin is None or not pin.accepted:
            why = f"nobody has accepted {tool.id} yet"
        elif pin.accepted == _digest(definition_of(entry)):
            details["changed"] = []
            why = f"the accepted definition of {tool.id} cannot be written to {self._file.path}"
        else:
            details["changed"] = changed = _changed(accepted, definition_of(entry))
            why = f"the definition of {tool.id} has changed since it was accepted ({', '.join(changed)})"
        return DefinitionChangedError(
            f"{why}; it cannot be used until a person looks at it (toolexec trust diff {tool.id}) and accepts it "
            f"(toolexec trust accept {tool.id})",
            tool_id=tool.id,
            op="pinning",
            backend=entry.binding.backend,
            details=details,
        )


def definition_of(entry: Registered) -> str:
    """Return what is pinned, as JSON in one order and plain ASCII: what a model reads of the tool, the digest of
    what it is `made_of`, if it is transformed, and the `destination` of its calls, if that is known."""
    data: JSONObject = entry.tool.to_mcp()
    parts = {key: value for key, value in data.items() if key not in ("icons", "_meta")}
    if entry.tool.has_meta and (made_of := entry.tool.meta.get(TRANSFORMED)) is not None:
        parts["made_of"] = made_of
    if entry.binding.destination:
        parts["destination"] = entry.binding.destination
    return json.dumps(parts, sort_keys=True, ensure_ascii=True)


def _lines(text: str) -> list[str]:
    """Return a definition as people read it."""
    try:
        return json.dumps(json.loads(text), indent=2).splitlines()
    except ValueError:  # a very long one is kept in part
        return textwrap.wrap(text, 120)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _changed(before: str, now: str) -> list[str]:
    """Return the parts of a definition that differ."""
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:  # a very long one is kept in part
        return ["definition"]
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _status(key: PinKey, pin: Pin) -> PinStatus:
    state: PinState = "accepted" if not pin.pending else "changed" if pin.accepted else "new"
    return PinStatus(tool_id=key[1], backend=key[0], state=state, since=pin.since, digest=pin.pending or pin.accepted)


class Pinned(Layer):
    """Has *check* look at the tool of each call before *inner* makes it; what it raises is raised."""

    def __init__(self, inner: Runner, find: Find, check: Callable[[Registered], None]) -> None:
        super().__init__(inner)
        self._find = find
        self._check = check

    def before(self, call: ToolCall) -> None:
        """Raise DefinitionChangedError for a tool that is not accepted, and as *find* does; see `Layer.before`."""
        self._check(resolved(call, self._find))
