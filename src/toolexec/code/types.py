"""What goes into a run of code, and what comes out: request, captured output, calls, result."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, Literal, Self, TypeAlias, cast

from toolexec.code.gateway import Gateway
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.discovery.examples import copy_json
from toolexec.errors import InvalidRequestError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, has_surrogate
from toolexec.model.origin import HERE, Origin
from toolexec.model.protocols import provides
from toolexec.model.settings import checked
from toolexec.process.directory import check_names
from toolexec.run.types import OnError, UndoneStep

DEFAULT_TIMEOUT: Final = 30.0
SKILL: Final = "skill"
"""The key of a request's metadata with the ID of the skill whose workflow it is."""

PRINTED: Final = "the value is what the program printed; say it with `return`"
"""The note of a result whose value is in its output already; the guest of Python says it."""

Readiness: TypeAlias = Literal["prod", "beta", "stub"]
Stream: TypeAlias = Literal["stdout", "stderr"]
"""Where a program prints to."""
_DROPPED: Final = "\n... output limit reached: {} more characters were dropped\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendInfo:
    """The sandbox that ran the code: its `kind` (`wasm`, `docker`, ...), the isolation that really surrounds the code
    (`none`, `process`, `wasm`, `container`, `gvisor`, `vm`), and details.

    `readiness` is how ready for production it is, as `toolexec.runtime.doctor.examine` has measured it in this process:
    `prod` (isolated, and all limits held), `beta` (something is missing, or nothing was measured) or `stub` (nothing
    ran).
    """

    kind: str
    readiness: Readiness = "beta"
    isolation: str = "none"
    details: JSONObject = field(default_factory=JSONDict)

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "kind": self.kind,
            "readiness": self.readiness,
            "isolation": self.isolation,
            "details": dict(self.details),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeEvent:
    """Something that happened while code ran: it printed `text` to `stream`, a tool call began or ended (`call`), or it
    is done (`result`)."""

    kind: Literal["print", "call_start", "call_end", "done"]
    text: str = ""
    stream: Literal["stdout", "stderr"] = "stdout"
    call: ToolCallRecord | None = None
    result: CodeResult | None = None


EventCallback: TypeAlias = Callable[[CodeEvent], None]
"""Called in order, on the event loop; must not block. What it raises is logged."""


class Output:
    """The captured output of one run: at most *limit* characters for each stream, the rest is dropped and counted.

    Safe to use from several threads. *tell* receives each string that is kept.
    """

    def __init__(self, limit: int = 1 << 20, tell: Callable[[Stream, str], None] | None = None) -> None:
        self.limit = limit
        self._tell = tell
        self._parts: dict[Stream, list[str]] = {"stdout": [], "stderr": []}
        self._sizes: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._dropped: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._lock = threading.Lock()

    def write(self, text: str, stream: Stream = "stdout") -> None:
        """Keep *text*, or as much of it as there is room for."""
        if not text:
            return
        with self._lock:
            room = self.limit - self._sizes[stream]
            kept = text[:room] if room > 0 else ""
            self._dropped[stream] += len(text) - len(kept)
            if kept:
                self._parts[stream].append(kept)
                self._sizes[stream] += len(kept)
        if kept and self._tell is not None:
            self._tell(stream, kept)

    def drop(self, characters: JSONValue, stream: Stream = "stdout") -> None:
        """Count what the sandbox itself has dropped; a number that makes no sense counts as none."""
        if isinstance(characters, int) and characters > 0:
            with self._lock:
                self._dropped[stream] += min(characters, 1 << 62)

    def text(self, stream: Stream = "stdout") -> str:
        """Return all that was kept of *stream*; its end says how much was dropped, if anything was."""
        with self._lock:
            dropped = self._dropped[stream]
            return "".join(self._parts[stream]) + (_DROPPED.format(dropped) if dropped else "")

    @property
    def dropped(self) -> int:
        """How many characters of both streams did not fit."""
        return self._dropped["stdout"] + self._dropped["stderr"]


@checked("ExecuteRequest", leave=("code", "gateway", "timeout", "env", "files"))  # `validate` checks these
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteRequest:
    """One program to run: what an `Exec`, an `Executor`, a `Runtime` and a sandbox are asked.

    `language`, `timeout` (seconds for the whole run) and `profile` default to those of whatever is asked. `limits` can
    only lower the operator's. `allowed_tools` are the IDs (or patterns such as `github:*`) that the code may see and
    call; None means all, an empty list means none. `env` are its only environment variables of the caller, and `files`
    are put into its private working directory, by relative path. `args` and `stdin` are for programs that read them.
    With `seed` and `now` (a Unix time) its random numbers and clock are the same in every run. `best_effort` accepts a
    sandbox that cannot enforce every limit. `on_event` gets prints and tool calls while the code runs. `metadata` is
    for the sandbox; known keys: `unsafeOptIn`, `wasm_module`, `wasm_module_b64`. `origin` is where the calls of the
    code come from. `gateway` is its way to the tools and `output` takes what it prints: an `Executor` makes both.
    For workflows only: with `on_error` "undo", an `Executor` undoes what a failed one has done; with `dry_run`, it only
    tries tools that are not read-only. An `Executor` fills in `names`, the words in the code that stand for tools where
    nothing else has them, and `note`, what the result says of its value.
    """

    code: str
    gateway: Gateway | None = None
    language: str = ""
    timeout: float | None = None
    limits: Limits = field(default_factory=Limits)
    allowed_tools: Collection[str] | None = None
    profile: str = ""
    output: Output = field(default_factory=Output)
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    args: Sequence[str] = ()
    stdin: bytes = b""
    seed: int | None = None
    now: float | None = None
    best_effort: bool = False
    on_event: EventCallback | None = None
    metadata: JSONObject = field(default_factory=JSONDict)
    origin: Origin = HERE
    on_error: OnError = "stop"
    dry_run: bool = False
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""

    def validate(self) -> Self:
        """Return the request itself if a sandbox can run it.

        Raises InvalidRequestError. A WebAssembly module in the metadata stands
        for the code.
        """
        if not provides(self.gateway, Gateway):
            raise InvalidRequestError(
                "a gateway is required: code without one could call no tool; use Tools", code="missing_gateway"
            )
        return self.check()

    def check(self) -> Self:
        """Return the request itself if a sandbox could run it, with a gateway; raises InvalidRequestError."""
        if not isinstance(self.code, str):
            raise InvalidRequestError(f"code must be text, not {type(self.code).__name__}", code="missing_code")
        if not self.code.isascii() and has_surrogate(self.code):
            raise InvalidRequestError("code has a lone surrogate, half a character, which UTF-8 cannot carry")
        if not self.code.strip() and not self.metadata.get("wasm_module") and not self.metadata.get("wasm_module_b64"):
            raise InvalidRequestError("code is required", code="missing_code")
        if self.timeout is not None and not _is_above_zero(self.timeout):
            raise InvalidRequestError(f"a timeout must be above 0 seconds, not {self.timeout!r}")
        if not _maps_names_to(str, self.env):
            raise InvalidRequestError("env must map names to strings")
        for name, value in self.env.items():
            if not name or "=" in name or "\0" in name + value or has_surrogate(name + value):
                raise InvalidRequestError(
                    f"env cannot have {name[:100]!r}: a name is not empty and without '=', and neither name nor value "
                    "has a NUL or half a character",
                    details={"name": name[:100].encode("utf-8", "replace").decode()},
                )
        if not _maps_names_to(bytes, self.files):
            raise InvalidRequestError("files must map relative paths to bytes")
        for what, strings in (("a file", self.files), ("an argument", self.args)):
            for each in strings:
                if isinstance(each, str) and ("\0" in each or has_surrogate(each)):
                    raise InvalidRequestError(
                        f"{what} cannot be {each[:100]!r}: no program can get a NUL or half a character there"
                    )
        if self.files:
            check_names(self.files)
        return self

    def given(self, **changes: Any) -> Self:
        """Return the request with these fields, which code of this package has made: they are not checked, as those of
        `dataclasses.replace` are, which costs 16 µs in place of 2."""
        request = object.__new__(type(self))
        for put, value in zip(_SETTERS, _values(self), strict=True):
            put(request, value)
        for name, value in changes.items():
            object.__setattr__(request, name, value)
        return request

    @property
    def seconds(self) -> float:
        """The time limit that holds in a sandbox: the one asked for, else 30 s."""
        return self.timeout if self.timeout is not None else DEFAULT_TIMEOUT


_FIELDS: Final = tuple(field.name for field in fields(ExecuteRequest))
_SETTERS: Final = tuple(getattr(ExecuteRequest, name).__set__ for name in _FIELDS)  # past what is frozen
_values: Final = attrgetter(*_FIELDS)


class ToolCallRecord:
    """One tool call that code made: a snapshot that no later change of arguments or results can reach.

    `error` is what went wrong, if anything did, and `error_op` whether that was a `run` or a step of a `chain`.
    `duration` is in seconds, `started` seconds after the run began; `backend_kind` says where the tool lives
    (`local`, `provider`, `mcp`; empty when it was never found). `at` is the line and column of the call in a workflow;
    None for other code. `cut` says that arguments or value were too large to be kept with all the others. `is_open` is
    true while the call is under way.
    """

    __slots__ = (
        "_text",
        "_value",
        "args",
        "at",
        "backend_kind",
        "cut",
        "duration",
        "error",
        "error_op",
        "is_open",
        "started",
        "tool_id",
    )

    def __init__(
        self,
        tool_id: str,
        args: JSONObject | None = None,
        *,
        value: JSONValue = None,
        text: str | None = None,
        error: ToolExecError | None = None,
        error_op: str = "",
        duration: float = 0.0,
        started: float = 0.0,
        backend_kind: str = "",
        at: tuple[int, int] | None = None,
    ) -> None:
        """*value* must be the record's own; *text* is the value as JSON, parsed at the first access."""
        self.tool_id: str = tool_id
        self.args: JSONObject | None = args
        self.error: ToolExecError | None = error
        self.error_op: str = error_op
        self.duration: float = duration
        self.started: float = started
        self.backend_kind: str = backend_kind
        self.at: tuple[int, int] | None = at
        self.cut: bool = False
        self.is_open: bool = False
        self._value = value
        self._text = text

    def settle(self, text: str) -> None:
        """Record the value, given as JSON."""
        self._text = text

    @property
    def value(self) -> JSONValue:
        """What the tool returned; None after a failure, unless the tool ran and only broke its output schema."""
        if self._text is not None:
            self._value, self._text = json.loads(self._text), None
        return self._value

    @property
    def ok(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.error is None

    def __repr__(self) -> str:
        outcome = f"error={self.error.code}" if self.error is not None else "ok"
        return f"<ToolCallRecord {self.tool_id} {outcome}, {self.duration * 1000:.2f} ms>"

    def to_dict(self) -> JSONDict:
        """Return the record as JSON-able data."""
        data: JSONDict = {"toolId": self.tool_id}
        if self.args is not None:
            data["args"] = dict(self.args)
        if self.error is None or self.value is not None:
            data["structured"] = self.value
        if self.backend_kind:
            data["backendKind"] = self.backend_kind
        if self.at is not None:
            data["line"], data["column"] = self.at
        if self.cut:
            data["cut"] = True
        if self.error is not None:
            data |= {"error": self.error.to_dict(), "errorOp": self.error_op}
        return data | {"durationMs": round(self.duration * 1000, 3)}


@dataclass(slots=True)
class CodeResult:
    """The outcome of a run of code.

    `value` is JSON. `error` is set when the program failed (CodeError), was stopped (LimitExceededError,
    SandboxViolationError) or lost its sandbox (SandboxFailedError); everything captured until then is here all the
    same: what it printed, its tool calls in order, its files. `duration` is in seconds. `files` are those that the code
    made or changed. `backend` says where it ran, `limits_enforced` which bounds would really have stopped the program.
    `undone` says what became of the calls of a workflow with `on_error="undo"`, the last one first. `notes` say what
    was understood in another way than it was written, such as a last line `result = ...`.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add")
    ...     result = ex.execute_code("print('adding')\\nreturn tools.math.add(a=1, b=2)")
    >>> result.value, result.stdout, [call.tool_id for call in result.tool_calls]
    (3, 'adding\\n', ['math:add'])
    """

    value: JSONValue = None
    stdout: str = ""
    stderr: str = ""
    tool_calls: list[ToolCallRecord] = field(default_factory=list[ToolCallRecord])
    duration: float = 0.0
    error: ToolExecError | None = None
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    language: str = ""
    backend: BackendInfo | None = None
    limits_enforced: LimitsEnforced = field(default_factory=LimitsEnforced)
    undone: list[UndoneStep] = field(default_factory=list[UndoneStep])
    notes: list[str] = field(default_factory=list[str])

    @property
    def ok(self) -> bool:
        """Whether the code ran to its end."""
        return self.error is None

    def raise_for_error(self) -> CodeResult:
        """Return the result itself, or its error raised."""
        if self.error is not None:
            raise self.error
        return self

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from toolexec.code.html import code_html

        return code_html(self)

    def to_dict(self) -> JSONDict:
        """Return the result as JSON-able data; of files only the sizes."""
        data: JSONDict = {"ok": self.ok, "value": self.value}
        if self.error is not None:
            data["error"] = self.error.to_dict()
        data |= {key: text for key, text in (("stdout", self.stdout), ("stderr", self.stderr)) if text}
        if self.tool_calls:
            data["toolCalls"] = [call.to_dict() for call in self.tool_calls]
        if self.notes:
            data["notes"] = list(self.notes)
        if self.undone:
            data["undone"] = [each.to_dict() for each in self.undone]
        if self.files:
            data["files"] = {name: len(content) for name, content in self.files.items()}
        data["durationMs"] = round(self.duration * 1000, 3)
        data["language"] = self.language
        if self.backend is not None:
            data["backend"] = self.backend.to_dict()
            data["limitsEnforced"] = self.limits_enforced.to_dict()
        return data


def _whole(text: str) -> str:
    """Return a text as a record shows it: a call with half a character is refused, and recorded with a mark there."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _maps_names_to(kind: type, value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    pairs = cast("Mapping[object, object]", value).items()
    return all(isinstance(name, str) and isinstance(item, kind) for name, item in pairs)


def _is_above_zero(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def snapshot(args: JSONObject | None, room: list[int]) -> tuple[JSONObject | None, bool]:
    """Return a copy of *args*, or None where there is no *room* for it, and whether there was none."""
    before = room[0]
    try:
        return _copied(args, room), False
    except RecursionError:  # the check of the arguments will say it better
        room[0] = before
        return None, False
    except OverflowError:
        room[0] = before
        return None, True


def _copied(value: JSONValue, room: list[int]) -> JSONValue:
    """Return a copy that shares no dict or list; the usual types first, as most values are of them. Raises
    OverflowError when there is no *room* for it: what a program sends in a few bytes can take twenty times as many
    here."""
    kind = type(value)
    if kind is int or value is None or kind is float or kind is bool:
        return value
    if kind is str:
        room[0] -= len(value)
        value = _whole(value)
    elif kind is dict:
        room[0] -= 64 + 100 * len(value)
        if room[0] >= 0:
            return {_whole(key): _copied(item, room) for key, item in value.items()}
    elif kind is list:
        room[0] -= 64 + 8 * len(value)
        if room[0] >= 0:
            return [_copied(item, room) for item in value]
    else:
        return copy_json(value)
    if room[0] < 0:
        raise OverflowError
    return value
