"""A cassette: the recorded calls of a session, which answer for its backends, or are written while they do."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, get_args

from toolexec.cassette.matching import call_key, kept_args, miss
from toolexec.cassette.modes import CassetteMode
from toolexec.cassette.recording_lock import RecordingLock
from toolexec.cassette.records import CassetteCall, CassetteTool, schema_digest
from toolexec.cassette.secrets import SessionRedactor
from toolexec.cassette.text import FORMAT, FORMAT_KEY, read_file, read_text, write_text
from toolexec.discovery.index import Registered
from toolexec.errors import CassetteDriftError, CassetteError, CassetteMissError, ConfigurationError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.redaction import Redactor, redactor
from toolexec.model.tool import TRANSFORMED, Tool
from toolexec.process.atomic import replace_files

_KEYS: Final = (FORMAT_KEY, "tools", "calls")


class Cassette:
    """The calls of a session, in the file *path*; give it to `Exec(cassette=...)`.

    *mode* says what is done with it: `replay` answers every call from the file and reaches no backend; `record` begins
    it again; `auto` replays the calls that it has and records the others behind them; `refresh` makes all calls again
    and keeps what has not changed. A call is found by its tool, with the version, and its arguments; equal ones answer
    in the order in which they were recorded. With *repeats* the last of them answers again, as often as it is asked.

    Secrets are replaced by *redact* in arguments, results and errors, before they are compared or written, and so are
    values that a schema or a name has shown to be secret, wherever the session repeats them; a definition of a tool
    that has one of *redact* is refused when the file is written. `misses` are the calls that nothing was recorded for.
    Raises CassetteError for a file that cannot be used, and for one that another process is recording.
    """

    def __init__(
        self, path: str | Path, mode: CassetteMode = "replay", *, redact: Redactor = redactor, repeats: bool = False
    ) -> None:
        if mode not in get_args(CassetteMode):
            raise ConfigurationError(
                f"the mode of a cassette is one of {', '.join(get_args(CassetteMode))}, not {mode!r}",
                details={"setting": "cassette_mode"},
            )
        self.path: Path = Path(path)
        self.mode: CassetteMode = mode
        self.redact: SessionRedactor = SessionRedactor(redact)
        self.repeats = repeats
        self.misses: list[CassetteMissError] = []
        self._lock = threading.Lock()
        self._right = RecordingLock(self.path)
        self._loaded_text: str | None = None
        self._tools: dict[str, CassetteTool] = {}
        self._calls: list[CassetteCall] = []
        self._used: set[int] = set()
        self._waiting: defaultdict[bytes, deque[int]] = defaultdict(deque)
        self._reserved: defaultdict[bytes, int] = defaultdict(int)
        self._seen: dict[str, CassetteTool] = {}
        self._made: list[CassetteCall] = []
        self._digests: dict[str, tuple[Tool, str]] = {}
        if mode in ("record", "refresh"):
            self._right.take()
        try:
            if mode != "record":
                self._load(needed=mode == "replay")
        except BaseException:
            self._right.release()
            raise

    @property
    def tools(self) -> Mapping[str, CassetteTool]:
        """The tools in it, by ID; while it is made again, those that were seen until now."""
        return {**self._seen} if self._makes_all else {**self._tools, **self._seen}

    @property
    def calls(self) -> Sequence[CassetteCall]:
        """The calls in it, in the order in which they began; while it is made again, those made until now."""
        made = [call for call in self._made if call.ended]
        return made if self._makes_all else [*self._calls, *made]

    @property
    def unused(self) -> Sequence[CassetteCall]:
        """The recorded calls that were not asked for; none while all are made again."""
        return [] if self._makes_all else [call for number, call in enumerate(self._calls) if number not in self._used]

    @property
    def _makes_all(self) -> bool:
        return self.mode in ("record", "refresh")

    # -- replaying ----------------------------------------------------------------------------------------------

    def take(self, tool: Tool, args: JSONObject | None) -> CassetteCall:
        """Return the recorded call that answers this one. Raises CassetteMissError, CassetteDriftError, and as
        `kept_args`."""
        self.check_tool(tool)
        asked = kept_args(tool, args, self.redact)
        key = call_key(tool.id, asked)
        with self._lock:
            waiting = self._waiting[key]
            if waiting:
                self._reserved[key] = max(0, self._reserved[key] - 1)
                number = waiting[0] if self.repeats and len(waiting) == 1 else waiting.popleft()
                self._used.add(number)
                return self._calls[number]
            error = miss(tool.id, asked, self._calls, str(self.path))
            self.misses.append(error)
        raise error

    def reserve(self, tool: Tool, args: JSONObject | None) -> bool:
        """Return whether a recorded call is left for this one, which `take` then gives; raises as `take` does."""
        self.check_tool(tool)
        key = call_key(tool.id, kept_args(tool, args, self.redact))
        with self._lock:
            if len(self._waiting[key]) <= self._reserved[key]:
                return False
            self._reserved[key] += not self.repeats
            return True

    def is_left(self, tool: Tool, args: JSONObject | None) -> bool:
        """Return whether `reserve` would find a recorded call; raises as that does."""
        self.check_tool(tool)
        key = call_key(tool.id, kept_args(tool, args, self.redact))
        with self._lock:
            return len(self._waiting[key]) > self._reserved[key]

    def unreserve(self, tool: Tool, args: JSONObject | None) -> None:
        """Leave a recorded call that was reserved to others; raises as `reserve` does."""
        key = call_key(tool.id, kept_args(tool, args, self.redact))
        with self._lock:
            self._reserved[key] = max(0, self._reserved[key] - 1)

    # -- recording ----------------------------------------------------------------------------------------------

    def begin(self, entry: Registered, tool: Tool, args: JSONObject | None) -> CassetteCall:
        """Record that a call of *tool* begins, in this place among the others; `end` or `fail` it, or `leave_out`.

        Raises CassetteError, CassetteDriftError, and as `kept_args`.
        """
        self.check_tool(tool)
        call = CassetteCall(tool=tool.id, args=kept_args(tool, args, self.redact), ended=False)
        with self._lock:
            if self.mode == "auto":
                self._take_right()
            if tool.id not in self._seen:
                self._seen[tool.id] = CassetteTool.of(tool, entry.binding)
            self._made.append(call)
        return call

    def see(self, entry: Registered) -> None:
        """Keep a tool that may not be called, so that a replay finds it, too; one that is shown in another form than
        its own is kept with its first call only."""
        with self._lock:
            if entry.tool.id not in self.tools and TRANSFORMED not in entry.tool.meta:
                self._seen[entry.tool.id] = CassetteTool.of(entry.tool, entry.binding)

    def leave_out(self, call: CassetteCall) -> None:
        """Take back that a call began: it was not made."""
        with self._lock:
            self._made = [each for each in self._made if each is not call]

    def save(self) -> None:
        """Write the file, if there is anything new to write. Raises CassetteError for a secret in a definition, and
        for a file that cannot be written."""
        if self.mode == "replay" or (self.mode == "auto" and not self._made):
            return
        with self._lock:
            text = write_text(self._data(), str(self.path))
            if text == self._loaded_text:
                return
            try:
                replace_files({self.path: text})
            except OSError as error:
                raise CassetteError(f"the cassette {self.path} cannot be written: {error.strerror or error}") from error
            self._loaded_text = text

    def close(self) -> None:
        """Write what is new, and let others record it; raises as `save` does."""
        try:
            self.save()
        finally:
            self._right.release()

    def leave(self) -> None:
        """Let others record it, and write it only if there were calls; raises as `save` does."""
        if self._made:
            self.close()
        self._right.release()

    # -- drift --------------------------------------------------------------------------------------------------

    def check(self, tools: Iterable[Tool]) -> None:
        """Compare *tools*, as they are now, with those of the file. Raises CassetteDriftError for the first one whose
        schemas are not those that were recorded."""
        for tool in tools:
            self.check_tool(tool)

    def check_tool(self, tool: Tool) -> None:
        """Raise CassetteDriftError where the schemas of *tool* are not those that were recorded."""
        recorded = self._tools.get(tool.id)
        if recorded is None or recorded.tool is tool:
            return
        known = self._digests.get(tool.id)
        if known is None or known[0] is not tool:
            known = self._digests[tool.id] = tool, schema_digest(tool)
        if known[1] != recorded.digest:
            raise CassetteDriftError(
                f"{tool.id} does not have the schemas that it had when {self.path} was recorded ({recorded.digest}, "
                f"now {known[1]}); if that is meant, record the session again with cassette_mode='record'",
                tool_id=tool.id,
                details={"recorded": recorded.digest, "present": known[1]},
            )

    # -- the file -----------------------------------------------------------------------------------------------

    def _load(self, *, needed: bool) -> None:
        text = read_file(self.path)
        if text is None:
            if needed:
                raise CassetteError(f"there is no cassette {self.path}; record it with cassette_mode='record'")
            return
        where, data = str(self.path), read_text(text, str(self.path))
        unknown = sorted(data.keys() - set(_KEYS))
        if unknown:
            raise CassetteError(f"the cassette {where} has the unknown key {unknown[0]}; there are {', '.join(_KEYS)}")
        for number, each in enumerate(_list(data, "tools", where), 1):
            tool = CassetteTool.read(each, f"{where}: tool {number}")
            if tool.tool.id in self._tools:
                raise CassetteError(f"{where}: tool {number}: {tool.tool.id} is there twice; remove one of them")
            self._tools[tool.tool.id] = tool
        for number, each in enumerate(_list(data, "calls", where)):
            call = CassetteCall.read(each, f"{where}: call {number + 1}")
            if call.tool not in self._tools:
                raise CassetteError(
                    f"{where}: call {number + 1} is of {call.tool}, which is not among the recorded tools; "
                    "record the session again"
                )
            self._calls.append(call)
            self._waiting[call_key(call.tool, call.args)].append(number)
        self._loaded_text = text

    def _data(self) -> JSONDict:
        """Return what the file is to say. Raises CassetteError for a secret in a definition."""
        for call in self._made:
            if call.ended:
                call.hide(self.redact)  # what a later call has shown to be a secret
        used: set[int] = set()
        calls = [self._as_before(call, used) for call in self.calls]
        tools = self._seen if self._makes_all else self.tools
        kept = [tools[tool_id].to_json() for tool_id in sorted(tools)]
        for tool in kept:
            self._refuse_secrets(tool, str(tool["id"]), "")
        return {FORMAT_KEY: FORMAT, "tools": kept, "calls": [call.to_json() for call in calls]}

    def _as_before(self, call: CassetteCall, used: set[int]) -> CassetteCall:
        """Return the call as it was recorded before where it came to the same, so that only its time would differ; of
        equal ones the first that is not *used*."""
        if self.mode == "refresh":
            now = {**call.to_json(), "seconds": 0}
            for number in self._waiting[call_key(call.tool, call.args)]:
                if number not in used and {**self._calls[number].to_json(), "seconds": 0} == now:
                    used.add(number)
                    return self._calls[number]
        return call

    def _refuse_secrets(self, value: JSONValue, tool_id: str, place: str) -> None:
        """Raise CassetteError for a string with a secret anywhere in a definition, which is kept as it is."""
        if isinstance(value, str):
            if self.redact.general.text(value) != value:
                raise CassetteError(
                    f"the cassette {self.path} is not written: {place or 'the ID'} of {tool_id} has what looks like a "
                    "secret, which nothing may write down; take it out of the definition",
                    tool_id=tool_id,
                    code="cassette_secret",
                )
            return
        if isinstance(value, dict):
            for key, item in value.items():
                self._refuse_secrets(key, tool_id, place)
                self._refuse_secrets(item, tool_id, f"{place}.{key}" if place else key)
        elif isinstance(value, list):
            for item in value:
                self._refuse_secrets(item, tool_id, place)

    def _take_right(self) -> None:
        """Take the right to write, before the first call that is added. Raises CassetteError where another process has
        it, or has written since this one read the file."""
        if self._made:
            return
        self._right.take()
        text = read_file(self.path)
        if text != self._loaded_text:
            self._right.release()
            raise CassetteError(
                f"another process has recorded {self.path} since it was read; run this again",
                code="cassette_busy",
                retryable=True,
            )


def _list(data: JSONDict, key: str, where: str) -> list[JSONValue]:
    found = data.get(key, [])
    if found is None:
        return []
    if not isinstance(found, list):
        raise CassetteError(f"the cassette {where}: {key} must be a list")
    return found
