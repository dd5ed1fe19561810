"""Runs code that calls tools: limits, deadline, allow-list and trace around one engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from time import perf_counter
from typing import Any, Final

from toolexec.code.deliveries import Deliveries
from toolexec.code.engine import Engine
from toolexec.code.limits import DEFAULT_RESULT_BYTES, Limits
from toolexec.code.repair import prepared
from toolexec.code.tools import Tools
from toolexec.code.types import (
    SKILL,
    CodeEvent,
    CodeResult,
    EventCallback,
    ExecuteRequest,
    Output,
    Stream,
    ToolCallRecord,
)
from toolexec.discovery.docs import DocStore, InMemoryDocStore
from toolexec.discovery.index import Index
from toolexec.errors import ClosedError, CodeTimeoutError, ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.model.languages import ALIASES, TYPED
from toolexec.model.settings import check_ranges, checked
from toolexec.run.ceilings import default_timeout, granted
from toolexec.run.runner import Runner
from toolexec.run.types import StepResult, UndoneStep
from toolexec.run.undo import DryRun, undo

logger: logging.Logger = logging.getLogger(__name__)

_ENGINES: Final = (
    "engine=EmbeddedEngine(), from toolexec.exec, runs Python and workflows with nothing to install; a Runtime([...]), "
    "from toolexec.runtime, runs what its sandboxes can"
)


@checked("CodeConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class CodeConfig:
    """The parts and limits of an `Executor`.

    `run` and `engine` are required, and `index`, unless `run` knows its own (a `DefaultRunner` does); `docs` are made
    from the index where there are none. An engine is a `Runtime` with sandboxes, or `toolexec.exec.EmbeddedEngine`.

    `default_timeout` is in seconds, for a run that asks for none (None: none), `max_timeout` the most that one may ask
    for (None: no ceiling). `limits` hold for a run that asks for none and are the most that one may ask for;
    `default_tool_calls` is how many calls a run that asks for no number may make, where that is less (0: as many as
    `limits` allows). What is above a ceiling is refused. `result_bytes` is how long a tool's result may be (as JSON) to
    go into the sandbox; a longer one stays outside and the code gets a handle. `output_chars` is how much of each
    stream is kept. `deliveries` is for a run that must be repeatable. `timeout` is another name for `default_timeout`,
    and `max_tool_calls` one for that of `limits`.

    Raises ConfigurationError that lists everything that is missing, and for two names of one setting that differ.
    """

    index: Index | None = None
    docs: DocStore | None = None
    run: Runner | None = None
    engine: Engine | None = None
    default_timeout: float | None = None
    max_timeout: float | None = None
    default_language: str = "python"
    limits: Limits = field(default_factory=Limits)
    default_tool_calls: int = 0
    result_bytes: int = DEFAULT_RESULT_BYTES
    output_chars: int = 1 << 20
    deliveries: Deliveries | None = None
    timeout: InitVar[float | None] = None
    max_tool_calls: InitVar[int | None] = None

    def __post_init__(self, timeout: float | None, max_tool_calls: int | None) -> None:
        index = self.index if self.index is not None else getattr(self.run, "index", None)
        parts = {"index": index, "run": self.run, "engine": self.engine}
        missing = [name for name, part in parts.items() if part is None]
        if missing:
            hint = f"; {_ENGINES}" if "engine" in missing else ""
            raise ConfigurationError(f"configuration error: missing required fields: {', '.join(missing)}{hint}")
        assert index is not None
        limits = self.limits if max_tool_calls is None else self.limits.narrow(Limits(max_tool_calls=max_tool_calls))
        if max_tool_calls and self.limits.max_tool_calls not in (0, max_tool_calls):
            raise _two_values("max_tool_calls", max_tool_calls, "limits.max_tool_calls", self.limits.max_tool_calls)
        if timeout is not None and self.default_timeout not in (None, timeout):
            raise _two_values("timeout", timeout, "default_timeout", self.default_timeout)
        found: JSONDict = {
            "index": index,
            "docs": self.docs if self.docs is not None else InMemoryDocStore(index),
            "limits": limits,
            "default_timeout": self.default_timeout if timeout is None else timeout,
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)
        check_timeout(self.default_timeout, "a timeout" if timeout is not None else "default_timeout")
        check_timeout(self.max_timeout, "max_timeout")
        above = {"result_bytes": self.result_bytes}
        least = {"default_tool_calls": self.default_tool_calls, "output_chars": self.output_chars}
        check_ranges("CodeConfig", above=above, least=least)


def _two_values(name: str, value: object, other: str, second: object) -> ConfigurationError:
    return ConfigurationError(f"configuration error: {name}={value!r} and {other}={second!r} differ; give one of them")


class Executor:
    """Runs code with tools. Safe for many runs at once; each has its own limits, trace and output."""

    def __init__(self, config: CodeConfig | Runner, engine: Engine | None = None) -> None:
        """*config* may be just the runner of the tools: `Executor(runner, engine)` is
        `Executor(CodeConfig(run=runner, engine=engine))`. Beside a CodeConfig, *engine* takes the place of its own.

        Raises ConfigurationError as `CodeConfig` does.
        """
        if not isinstance(config, CodeConfig):
            config = CodeConfig(run=config, engine=engine)
        elif engine is not None:
            config = replace(config, engine=engine)
        self.config: CodeConfig = config
        self._unasked = Limits(max_tool_calls=config.default_tool_calls)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run code.

        Whatever the code did and however it ended is in the result: its failure (CodeError), a limit
        (LimitExceededError, CodeTimeoutError), the failure of its sandbox, the closing of it (ClosedError). Raises when
        nothing was run: ConfigurationError, SandboxError. Cancelling stops the code.
        """
        tools, request = self.prepare(request)
        return await self.run(request, tools, self._engine.execute(request, tools))

    def prepare(self, request: ExecuteRequest, *, is_session: bool = False) -> tuple[Tools, ExecuteRequest]:
        """Return the tools for one run, and the parameters with all that holds filled in; raises ConfigurationError,
        and InvalidLimitsError for more than the ceilings.

        A request that comes with the tools of another run as its gateway is a part of that run. With *is_session* what
        the program defines is there for the next one of its session.
        """
        config = self.config
        language = (request.language or config.default_language).lower()
        limits, timeout = self.granted(request)
        language = ALIASES.get(language, language)
        spoken = TYPED.get(language, language)
        within = request.gateway if isinstance(request.gateway, Tools) else None
        check_trial(request, spoken)
        undoes = request.on_error == "undo" or (within is not None and within.undoes)
        is_dry = request.dry_run or (within is not None and within.is_dry)
        tell = _Teller(request.on_event) if request.on_event is not None else None
        assert config.index is not None
        assert config.docs is not None
        assert config.run is not None
        tools = Tools(
            config.index,
            config.docs,
            DryRun(config.run, config.index) if is_dry else config.run,
            limits=limits,
            allowed=request.allowed_tools,
            output=Output(config.output_chars, tell.printed if tell is not None else None),
            tell=tell,
            result_bytes=config.result_bytes,
            origin=request.origin,
            within=within,
            undoes=undoes,
            is_dry=is_dry,
            deliveries=config.deliveries,
        )
        program = prepared(request.code, language, tools, is_session=is_session)
        return tools, request.given(
            language=spoken,
            timeout=timeout,
            limits=limits,
            code=program.code,
            names=program.names,
            note=program.note,
        )

    def granted(self, request: ExecuteRequest) -> tuple[Limits, float | None]:
        """Return what a run gets: what it asks for, the defaults for the rest. Raises ConfigurationError for a time
        limit that makes no sense, and InvalidLimitsError for what is above a ceiling; the bounds of a skill ask for
        nothing, they only ever lower what holds."""
        check_timeout(request.timeout)
        config, asked = self.config, request.limits
        own: Limits | None = getattr(config.engine, "limits", None)
        ceilings = config.limits.narrow(own) if isinstance(own, Limits) else config.limits
        if request.metadata.get(SKILL):
            timeout = request.timeout if request.timeout is not None else config.default_timeout
            return ceilings.narrow(asked), default_timeout(timeout, config.max_timeout)
        limits = ceilings.grant(asked)
        if not asked.max_tool_calls:
            limits = limits.narrow(self._unasked)
        return limits, granted(request.timeout, config.default_timeout, config.max_timeout)

    async def run(self, request: ExecuteRequest, tools: Tools, work: Any) -> CodeResult:
        """Await the engine's *work* for prepared parameters, within the deadline, and complete its result. Raises what
        the origin's `on_effect` does; then nothing has run."""
        if (effect := request.origin.on_effect) is not None:
            try:
                if (kept := effect()) is not None:
                    await kept
            except BaseException:
                tools.close()
                work.close()
                raise
        started = perf_counter()
        timeout = request.timeout
        try:
            if timeout is None or _keeps_deadline(self._engine):
                result: CodeResult = await work
            else:
                async with asyncio.timeout(timeout):
                    result = await work
        except ClosedError as error:  # what was captured until then is returned all the same
            result = CodeResult(error=error)
        except TimeoutError as error:
            late = CodeTimeoutError(
                f"limit exceeded: timeout after {timeout:g} s" if timeout is not None else "limit exceeded: timeout",
                op="execute",
                details={"timeout": timeout},
            )
            late.__cause__ = error
            result = CodeResult(error=late)
        except asyncio.CancelledError as cancelled:
            tools.close()
            if tools.undoes and not tools.is_dry and not tools.is_durable:  # else it goes on elsewhere
                await self._undone(tools.tool_calls(), tools, cut_off=cancelled)
            raise
        finally:
            tools.close()
        result.tool_calls = tools.tool_calls()
        closed = result.error if isinstance(result.error, ClosedError) else None
        goes_on = closed is not None and tools.is_durable
        if result.error is not None and tools.undoes and not tools.is_dry and not goes_on:
            result.undone = await self._undone(result.tool_calls, tools, cut_off=closed)
        result.stdout = _both(result.stdout, tools.output.text("stdout"))
        result.stderr = _both(result.stderr, tools.output.text("stderr"))
        if result.error is None and result.value is not None and request.note:
            result.notes = [*result.notes, request.note]
        result.notes = [*result.notes, *tools.notes]
        result.duration = perf_counter() - started
        result.language = request.language
        logger.info("code ran %.3f s with %d tool calls", result.duration, len(result.tool_calls))
        return result

    async def _undone(
        self,
        calls: Sequence[ToolCallRecord],
        tools: Tools,
        cut_off: asyncio.CancelledError | ClosedError | None = None,
    ) -> list[UndoneStep]:
        """Undo what the calls of a run have done, the one that ended last first; see `undo`."""
        ended = sorted(enumerate(calls), key=lambda each: each[1].started + each[1].duration)
        steps = [
            StepResult(number, call.tool_id, args=call.args or {}, value=call.value, error=call.error)
            for number, call in ended
        ]
        cut = {number for number, call in ended if call.cut}
        assert self.config.run is not None
        undone = await undo(self.config.run, tools.index, steps, tools.origin, cut, cut_off=cut_off)
        if tools.unrecorded:
            why = f"{tools.unrecorded} calls after it were not recorded"
            undone.insert(0, UndoneStep(len(calls) - 1, calls[-1].tool_id, reason=why))
        return undone

    @property
    def _engine(self) -> Engine:
        assert self.config.engine is not None
        return self.config.engine


class _Teller:
    """Carries events to the callback: in order, on the event loop, whatever thread they come from."""

    def __init__(self, callback: EventCallback) -> None:
        self._callback = callback
        self._loop = asyncio.get_running_loop()

    def __call__(self, event: CodeEvent) -> None:
        self._loop.call_soon_threadsafe(_tell, self._callback, event)

    def printed(self, stream: Stream, text: str) -> None:
        self(CodeEvent(kind="print", text=text, stream=stream))


def _tell(callback: Callable[[CodeEvent], None], event: CodeEvent) -> None:
    try:
        callback(event)
    except Exception:
        logger.exception("a callback for events of code failed")


def _keeps_deadline(engine: Engine) -> bool:
    """Return whether the engine stops code at the deadline by itself: then it reports more than one that is cancelled,
    and what it does before the code runs, such as building its sandbox, does not count."""
    return getattr(engine, "keeps_deadline", False) is True


def _both(engine: str, tools: str) -> str:
    """What the engine captured by itself, then what went through the tools; an engine may use just one of the ways."""
    return tools if engine in (tools, "") else f"{engine}{tools}"


def check_timeout(timeout: float | None, name: str = "a timeout") -> None:
    """Raise ConfigurationError for a time limit of code that is not above 0 seconds, or None."""
    if timeout is not None and (not isinstance(timeout, int | float) or isinstance(timeout, bool) or not timeout > 0):
        raise ConfigurationError(f"{name} must be above 0 seconds, not {timeout!r}")


def check_trial(request: ExecuteRequest, language: str) -> None:
    """Raise ConfigurationError for a request to undo or to try code that is not a workflow."""
    if (request.on_error != "stop" or request.dry_run) and language != "workflow":
        raise ConfigurationError(f"on_error and dry_run are for workflows, not for {language}")
