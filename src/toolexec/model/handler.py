"""Handlers: the Python side of a local tool, and how it wants to be run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.call import Progress, ProgressCallback, ToolCall
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import LogListener, Origin

HandlerKind: TypeAlias = Literal["async", "sync", "generator", "async_generator"]
RunMode: TypeAlias = Literal["thread", "inline", "process"]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
_LOG_LEVELS: Final = get_args(LogLevel)


class ToolContext:
    """What a handler may ask for by annotating a parameter with it: the tool's ID, and ways to report progress and to
    say something to the caller.

    It is not part of the tool's input schema. `report` and `log` may be called from any thread. `origin` says who makes
    the call, and on which path; `run_id` names it in audit and traces, and is the `parent` of what the handler calls in
    turn where that is made for `context.inner`. `idempotency_key` is the same for all attempts at one effect, `step`
    names the call within its run; either may be empty.

    >>> from toolexec import Exec
    >>> def work(context: ToolContext) -> str:
    ...     context.report(1, 2, "half")
    ...     return "done"
    >>> with Exec().sync as ex:
    ...     _ = ex.add(work, "job:work")
    ...     [(event.kind, event.data) for event in ex.stream_tool("job:work")]
    [('progress', {'progress': 1, 'total': 2, 'message': 'half'}), ('done', 'done')]
    """

    __slots__ = ("_call", "_callback", "_hear", "tool_id")

    def __init__(
        self,
        tool_id: str,
        callback: ProgressCallback | None = None,
        hear: LogListener | None = None,
        call: ToolCall | None = None,
    ) -> None:
        self.tool_id: str = tool_id
        self._call: ToolCall = call or ToolCall(tool_id)
        self._callback = callback
        self._hear = hear

    @property
    def origin(self) -> Origin:
        """Where the call comes from."""
        return self._call.origin

    @property
    def run_id(self) -> str:
        """The ID of the call in audit and traces."""
        return self._call.identify()

    @property
    def step(self) -> str:
        """The name of the call within its run."""
        return self._call.step

    @property
    def idempotency_key(self) -> str:
        """The key that all attempts at this effect share."""
        return self._call.idempotency_key

    @property
    def inner(self) -> Origin:
        """The origin of what the handler does by the same `Exec`: `with acting(context.inner):` makes this call the
        parent of its calls in audit and traces."""
        return replace(self._call.origin, parent=self._call.identify())

    def report(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report the progress of the work to the caller; do nothing without a callback."""
        if self._callback is not None:
            self._callback(Progress(done=done, total=total, message=message))

    def log(self, level: LogLevel, message: str) -> None:
        """Send a message to the caller, who may show it to a person; do nothing without a listener.

        Raises ConfigurationError for an unknown level.
        """
        if level not in _LOG_LEVELS:
            raise ConfigurationError(f"unknown log level {level!r}; {did_you_mean(level, _LOG_LEVELS)}")
        if self._hear is not None:
            self._hear(level, message)


class Source(NamedTuple):
    """Where a worker process finds a function, and whether it takes its arguments by name (`typed`) or as a dict."""

    module: str
    function: str
    typed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function and how to run it.

    `call` takes the arguments as a mapping (and a ToolContext when `wants_context`) and returns a coroutine, a value, a
    generator or an async generator, as `kind` says. Before that, `convert` (if any) turns JSON arguments into what the
    function's types ask for, and raises InputValidationError when it cannot; after it, `finish` (if any) writes the
    result as its type says; what is not JSON then is converted as `to_json` does. `mode` is for sync kinds: in a worker
    `thread`, `inline` on the event loop, or in a worker `process` that is killed when the call is cancelled. `source`
    is where that process finds the function. `plain` is an async function that takes the arguments as a dict of its
    own, where there is nothing else to do: `call` without a frame between.
    """

    call: Callable[..., Any]
    kind: HandlerKind
    mode: RunMode = "thread"
    wants_context: bool = False
    convert: Callable[[JSONObject], JSONObject] | None = None
    finish: Callable[[Any], Any] | None = None
    source: Source | None = None
    plain: Callable[[JSONDict], Any] | None = None


def kind_of(function: Callable[..., Any]) -> HandlerKind:
    """Return which of the four kinds of function this is; partials and callable objects are looked through."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = function.__call__
    if inspect.isasyncgenfunction(function):
        return "async_generator"
    if inspect.iscoroutinefunction(function):
        return "async"
    return "generator" if inspect.isgeneratorfunction(function) else "sync"


def run_mode(function: Callable[..., Any], *, inline: bool, killable: bool) -> RunMode:
    """Return the mode that the two switches ask for; raises ConfigurationError when they contradict each other or the
    kind.
    """
    if not inline and not killable:
        return "thread"
    name = getattr(function, "__qualname__", repr(function))
    if inline and killable:
        raise ConfigurationError(f"{name} cannot be both inline and killable: inline code cannot be stopped")
    if killable and kind_of(function) != "sync":
        raise ConfigurationError(f"{name} cannot be killable: only plain sync functions run in a worker process")
    return "inline" if inline else "process"


def importable_source(function: Callable[..., Any], *, typed: bool = False) -> Source:
    """Return where a worker process finds *function*; raises ConfigurationError when it cannot, as for a lambda."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
        raise ConfigurationError(
            f"{name or function!r} cannot be killable: a worker process must be able to import it; "
            "define it at the top level of a module"
        )
    return Source(module, name, typed)


def mapping_handler(function: Callable[[JSONDict], Any], *, inline: bool = False, killable: bool = False) -> Handler:
    """Return a handler from a function that takes all arguments as one dict (its own copy)."""
    mode = run_mode(function, inline=inline, killable=killable)

    def call(args: Mapping[str, object]) -> Any:
        return function(dict(args))

    kind = kind_of(function)
    source = importable_source(function) if killable else None
    return Handler(call=call, kind=kind, mode=mode, source=source, plain=function if kind == "async" else None)
