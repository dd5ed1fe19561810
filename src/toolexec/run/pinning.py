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
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError, DefinitionChangedError
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.run.layer import Layer
from toolexec.run.pins_file import Pin, PinKey, PinsFile, Seen
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner

__all__ = ["PinState", "PinStatus", "Pinned", "Pins", "definition_of"]

logger: logging.Logger = logging.getLogger(__name__)

PinState: TypeAlias = Literal["accepted", "new", "changed"]

MOST_PER_BACKEND: Final = 5000
_LOOK_EVERY: Final = 1.0
_MANY: Final = 20_000


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
    """What was found out about a tool; it holds as long as the tool, its backend and the file are the same."""

    tool: Tool
    backend: str
    version: int
    digest: str
    allowed: bool
    used: bool


@checked("Pins")
class Pins:
    """Keeps tools whose definition changed from being seen and called, until the new definition is accepted.

    A definition is what a model reads of a tool: name, title, description, schemas, annotations. Local tools are not
    pinned. With *accept_first* the first definition of a tool is accepted as it comes, else it waits, too. *path* is
    the file that remembers all this, safe to share between processes (None: only in memory); what another process
    accepts counts here at the next call. *clock* gives seconds.

    At most 5,000 tools of one backend are remembered. Then those that were never called are forgotten, the oldest
    first; where there are none, further tools wait to be accepted. Raises ConfigurationError when the file cannot be
    read.
    """

    def __init__(
        self,
        path: str | Path | None,
        *,
        accept_first: bool = True,
        clock: Callable[[], float] = time.monotonic,
        most_per_backend: int = MOST_PER_BACKEND,
    ) -> None:
        self._file = PinsFile(Path(path) if path is not None else None)
        self._accept_first = accept_first
        self._clock = clock
        self._most = most_per_backend
        self._lock = threading.RLock()
        self._verdicts: dict[str, _Verdict] = {}
        self._fresh: dict[PinKey, Pin] = {}
        self._full: set[str] = set()
        self._counts: dict[str, int] = {}
        self._counted = -1
        self._complaint = ""
        self._next_look = 0.0
        self._next_save = 0.0
        self._file.load_if_changed()

    # -- the gate -----------------------------------------------------------------------------------------------

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that refuses calls of tools whose definition is not accepted."""
        return Pinned(inner, find, self.check)

    def shows(self, entry: Registered, origin: Origin) -> bool:
        """Return whether the tool's definition is accepted: the same for every origin."""
        return entry.binding.kind == "local" or self._verdict(entry, used=False).allowed

    def check(self, entry: Registered) -> None:
        """Raises DefinitionChangedError unless the tool's definition is accepted."""
        if entry.binding.kind == "local":
            return
        if not self._verdict(entry, used=True).allowed:
            raise self._refusal(entry)

    def _verdict(self, entry: Registered, *, used: bool) -> _Verdict:
        now = self._clock()
        known = self._verdicts.get(entry.tool.id)
        if (
            known is not None
            and known.allowed
            and known.tool is entry.tool
            and now < self._next_look
            and (known.used or not used)
            and known.version == self._file.version
            and known.backend == entry.binding.backend
        ):
            return known
        with self._lock:
            return self._judge(entry, now, known, used=used)

    def _judge(self, entry: Registered, now: float, known: _Verdict | None, *, used: bool) -> _Verdict:
        if now >= self._next_look or (known is not None and not known.allowed):  # it may have been accepted just now
            self._look(now)
        tool, backend = entry.tool, entry.binding.backend
        key = (backend, tool.id)
        verdict = self._compare(entry, known, used=used)
        first_use = used and key in self._fresh
        if self._fresh and (now >= self._next_save or first_use):
            saved = self._save(now)
            if first_use and not saved:
                self._verdicts.pop(tool.id, None)
                return verdict._replace(allowed=False)  # what cannot be remembered cannot be held to later
            if verdict.version != self._file.version:  # another process was here meanwhile
                verdict = self._compare(entry, verdict, used=used)
        if len(self._verdicts) >= _MANY:
            self._verdicts.clear()
        self._verdicts[tool.id] = verdict
        return verdict

    def _look(self, now: float) -> None:
        self._next_look = now + _LOOK_EVERY
        try:
            self._file.load_if_changed()
        except (ConfigurationError, OSError) as error:
            self._complain(f"what was accepted before still counts: {error}")
        else:
            self._complaint = ""

    def _complain(self, message: str) -> None:
        """Log an error, once as long as it is the same."""
        if message != self._complaint:
            self._complaint = message
            logger.error("%s", message)

    def _compare(self, entry: Registered, known: _Verdict | None, *, used: bool) -> _Verdict:
        """Compare the definition with the accepted one, and remember what is new about it."""
        tool, backend = entry.tool, entry.binding.backend
        key = (backend, tool.id)
        digest = known.digest if known is not None and known.tool is tool else _digest(definition_of(tool))
        pin = self._pin(key)
        allowed = pin is not None and pin.accepted is not None and pin.accepted.digest == digest
        if pin is not None and pin.accepted is not None and not allowed and _same(pin.accepted, tool):
            self._fresh[key] = replace(pin, accepted=Seen.of(digest, definition_of(tool)), pending=None)
            allowed = True
        elif pin is None:
            if self._has_room(backend):
                allowed = self._accept_first
                self._fresh[key] = _first(Seen.of(digest, definition_of(tool)), accept=allowed, used=used)
                self._counts[backend] = self._counts.get(backend, 0) + 1
        elif allowed:
            if pin.pending is not None or (used and not pin.used):
                self._fresh[key] = replace(pin, pending=None, used=pin.used or used)
        elif pin.pending is None or pin.pending.digest != digest:
            self._fresh[key] = replace(pin, pending=Seen.of(digest, definition_of(tool)))
            logger.warning("the definition of %s (%s) is not the accepted one; it is in quarantine", tool.id, backend)
        return _Verdict(tool, backend, self._file.version, digest, allowed, allowed and used)

    def _pin(self, key: PinKey) -> Pin | None:
        return self._fresh.get(key) or self._file.pins.get(key)

    def _has_room(self, backend: str) -> bool:
        """Return whether one more tool of the backend can be remembered, with old ones forgotten if need be."""
        if self._counted != self._file.version:
            self._counts = Counter(name for name, _ in self._file.pins | self._fresh)
            self._counted = self._file.version
        if self._counts.get(backend, 0) < self._most:
            return True
        pins = self._file.pins | self._fresh
        unused = [key for key, pin in pins.items() if key[0] == backend and _may_be_forgotten(pin)]
        if backend not in self._full:
            self._full.add(backend)
            what = "the oldest that were never called are forgotten" if unused else "further ones wait to be accepted"
            logger.warning("backend %s has had more than %d tools; %s", backend, self._most, what)
        oldest = unused[: max(self._most // 10, 1)]
        if not oldest or not self._change(lambda written: [written.pop(key, None) for key in oldest]):
            return False
        for key in oldest:
            self._fresh.pop(key, None)
        self._counted = -1
        return True

    def _change(self, apply: Callable[[dict[PinKey, Pin]], Any]) -> bool:
        """Change the file; says whether that worked."""
        try:
            self._file.change(apply)
        except (OSError, ConfigurationError) as error:
            self._complain(f"accepted tools cannot be written to {self._file.path}: {error}")
            return False
        return True

    def _save(self, now: float) -> bool:
        """Write what is new to the file; says whether that worked. The next time is not before 20 times as long as it
        took, so that it never takes much of the time."""
        began = time.perf_counter()
        saved = self._change(self._add_fresh)
        self._next_save = now + max(_LOOK_EVERY, 20 * (time.perf_counter() - began))
        if saved:
            self._fresh.clear()
        return saved

    def _add_fresh(self, written: dict[PinKey, Pin]) -> None:
        for key, pin in self._fresh.items():
            written[key] = _merged(written.get(key), pin)

    # -- for people ---------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write what is new to the file now; what cannot be written is logged."""
        with self._lock:
            if self._fresh:
                self._save(self._clock())

    def statuses(self) -> list[PinStatus]:
        """Return every tool that is remembered, by backend and ID."""
        with self._lock:
            self._look(self._clock())
            pins = self._file.pins | self._fresh
        return [_status(key, pin) for key, pin in sorted(pins.items())]

    def quarantined(self) -> list[PinStatus]:
        """Return the tools that are not shown and cannot be called."""
        return [status for status in self.statuses() if status.state != "accepted"]

    def diff(self, tool_id: str) -> str:
        """Return what has changed of the tool, as a unified diff of its definitions; empty when nothing has.

        Raises ConfigurationError for a tool that is not remembered.
        """
        parts: list[str] = []
        for (backend, _), pin in self._of(tool_id).items():
            if pin.pending is None:
                continue
            before = _lines(pin.accepted.text) if pin.accepted is not None else []
            names = (f"{tool_id} accepted", f"{tool_id} now, from {backend}")
            parts += difflib.unified_diff(before, _lines(pin.pending.text), *names, lineterm="")
        return "\n".join(parts)

    def accept(self, tool_ids: Iterable[str]) -> list[PinStatus]:
        """Accept what these tools are now, and write that to the file; gives how they are then.

        Raises ConfigurationError for a tool that is not remembered, with none of them accepted, and OSError when the
        file cannot be written.
        """
        with self._lock:
            wanted = {key: _accepted(pin) for tool_id in tool_ids for key, pin in self._of(tool_id).items()}

            def apply(written: dict[PinKey, Pin]) -> None:
                self._add_fresh(written)
                written.update(wanted)

            self._file.change(apply)
            self._fresh.clear()
            self._verdicts.clear()
        return [_status(key, pin) for key, pin in sorted(wanted.items())]

    def _of(self, tool_id: str) -> dict[PinKey, Pin]:
        with self._lock:
            self._look(self._clock())
            found = {key: pin for key, pin in (self._file.pins | self._fresh).items() if key[1] == tool_id}
        if not found:
            raise ConfigurationError(
                f"no remote tool {tool_id} has been seen; toolexec trust list shows those that were", tool_id=tool_id
            )
        return found

    def _refusal(self, entry: Registered) -> DefinitionChangedError:
        tool = entry.tool
        pin = self._pin((entry.binding.backend, tool.id))
        details: JSONDict = {
            "accept": f"toolexec trust accept {tool.id}",
            "diff": f"toolexec trust diff {tool.id}",
        }
        if pin is None or pin.accepted is None:
            why = f"nobody has accepted {tool.id} yet"
        else:
            details["changed"] = changed = _changed(pin.accepted.text, definition_of(tool))
            why = f"the definition of {tool.id} has changed since it was accepted ({', '.join(changed)})"
            if pin.accepted.text == definition_of(tool):
                why = f"the accepted definition of {tool.id} cannot be written to {self._file.path}"
        return DefinitionChangedError(
            f"{why}; it cannot be used until a person looks at it (toolexec trust diff {tool.id}) and accepts it "
            f"(toolexec trust accept {tool.id})",
            tool_id=tool.id,
            op="pinning",
            backend=entry.binding.backend,
            details=details,
        )


def definition_of(tool: Tool) -> str:
    """Return what a model reads of a tool, as JSON in one order and plain ASCII: the text that is compared."""
    data: JSONObject = tool.to_mcp()
    parts = {key: value for key, value in data.items() if key not in ("icons", "_meta")}
    return json.dumps(parts, sort_keys=True, ensure_ascii=True)


def _lines(text: str) -> list[str]:
    """Return a definition as people read it."""
    try:
        return json.dumps(json.loads(text), indent=2).splitlines()
    except ValueError:  # a very long one is kept in part
        return textwrap.wrap(text, 120)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _same(accepted: Seen, tool: Tool) -> bool:
    """Return whether a definition is the accepted one, only spelled as another version of this program does it."""
    if _digest(accepted.text) != accepted.digest:
        return False
    try:
        return json.loads(accepted.text) == json.loads(definition_of(tool))
    except ValueError:  # a very long one is kept in part
        return False


def _first(seen: Seen, *, accept: bool, used: bool) -> Pin:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return Pin(accepted=seen if accept else None, pending=None if accept else seen, used=accept and used, since=since)


def _may_be_forgotten(pin: Pin) -> bool:
    """Return whether nothing hangs on it: never called, and not in quarantine, which it would leave as a new tool."""
    return not pin.used and (pin.pending is None or pin.accepted is None)


def _changed(before: str, now: str) -> list[str]:
    """Return the parts of a definition that differ."""
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:  # a very long one is kept in part
        return ["definition"]
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _accepted(pin: Pin) -> Pin:
    return replace(pin, accepted=pin.pending or pin.accepted, pending=None, used=True)


def _merged(written: Pin | None, ours: Pin) -> Pin:
    """Our news of a tool on top of what the file says by now: a definition that is accepted there stays so."""
    if written is None or written.accepted is None:
        return ours
    news = ours.pending or (ours.accepted if ours.accepted != written.accepted else None)
    if news is not None and news.digest == written.accepted.digest:
        news = None
    return replace(written, pending=news, used=written.used or ours.used)


def _status(key: PinKey, pin: Pin) -> PinStatus:
    state: PinState = "accepted" if pin.pending is None else "changed" if pin.accepted is not None else "new"
    seen = pin.pending or pin.accepted
    return PinStatus(
        tool_id=key[1], backend=key[0], state=state, since=pin.since, digest=seen.digest if seen is not None else ""
    )


class Pinned(Layer):
    """Has *check* look at the tool of each call before *inner* makes it; what it raises is raised."""

    def __init__(self, inner: Runner, find: Find, check: Callable[[Registered], None]) -> None:
        super().__init__(inner)
        self._find = find
        self._check = check

    def before(self, call: ToolCall) -> None:
        """Raise DefinitionChangedError for a tool that is not accepted, and as *find* does; see `Layer.before`."""
        self._check(resolved(call, self._find))
