"""Runs programs for the host and reports what came of them."""

from __future__ import annotations

import builtins
import io
import os
import sys
from collections.abc import Callable
from typing import Any

from .bare import Module, current_loop, with_names
from .channel import Channel, HostCalls
from .compiling import compile_program
from .errors import CLASSES, ToolError
from .importing import make_importable
from .lenient import Printing, take_on
from .program import LAST, NOTHING
from .streams import Printed
from .tools import Tools
from .values import from_text, to_text

_MAX_TEXT = 20_000
_MAX_LINES = 60
_MAX_CAUSES = 8
_MAX_CAUSE = 1000


def _keep_source(filename: str, entry: Any) -> None:
    import linecache

    linecache.cache[filename] = entry


class _Never:
    """Where nothing stops a program from within."""

    def begin(self, run_id: str) -> None:
        pass

    def end(self, result: str) -> str:
        return result

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Guest:
    """One guest: the names of its programs stay from one run to the next."""

    def __init__(self, channel: Channel, new_loop: Callable[[], Any]) -> None:
        """*new_loop* makes an event loop that listens to the channel."""
        self.keep_source: Callable[[str, Any], None] = _keep_source
        """Has tracebacks find the text of a program: its file name, and what `linecache` keeps for it."""
        self.stopping: Any = _Never()
        """Surrounds the program; see `Stopping`."""
        self._channel = channel
        self._new_loop = new_loop
        self._runs = 0
        self._files: set[str] = set()
        self._noted: set[str] = set()
        self._main = Module("__main__")  # so that pickle, dataclasses and the like find what programs define
        self._namespace: dict[str, Any] = self._main.__dict__
        self._namespace.update(__builtins__=__builtins__, **CLASSES)

    def execute(self, payload: dict[str, Any]) -> str:
        """Run the program in *payload*; gives the payload of the `result` message, as JSON."""
        self._runs += 1
        filename = "<code>" if self._runs == 1 else f"<code {self._runs}>"
        source = payload.get("code") or ""
        self._files.add(filename)
        self.keep_source(filename, (len(source), None, source.splitlines(True), filename))
        self._prepare(payload)
        self._noted.clear()
        limit = int(payload.get("output_limit") or 1 << 20)
        streams = Printed(self._channel, "stdout", limit), Printed(self._channel, "stderr", limit)
        own = sys.stdout, sys.stderr
        sys.stdout, sys.stderr = streams
        depth = sys.getrecursionlimit()
        try:
            with self.stopping:
                try:
                    value = self._value(source, filename, payload.get("names"))
                finally:
                    if sys.getrecursionlimit() < depth:  # what follows may take more calls than a program has left
                        sys.setrecursionlimit(depth)
                text = to_text(value)
            return '{"value":' + text + "}"
        except BaseException as error:
            return to_text({"error": self._describe(error, source, filename)})
        finally:
            sys.stdout, sys.stderr = own
            for stream in streams:
                stream.finish()

    def connect(self, exchange: Callable[[str], str], post: Callable[[str], None]) -> None:
        """Reach the host by these two functions from now on."""
        if isinstance(self._channel, HostCalls):
            self._channel.connect(exchange, post)

    def warm_up(self, payload: dict[str, Any]) -> None:
        """Touch what nearly every program needs, so that a pre-warmed guest has it ready; leaves no trace.

        The host has to answer the tool calls in it with anything.
        """
        for code in _WARM_UP:
            Guest(self._channel, self._new_loop).execute({**payload, "code": code})

    def _prepare(self, payload: dict[str, Any]) -> None:
        if payload.get("env"):
            os.environ.update(payload["env"])
        stdin = payload.get("stdin")
        if stdin is not None:
            import base64

            sys.stdin = io.TextIOWrapper(io.BytesIO(base64.b64decode(stdin)), "utf-8", "replace")
        sys.argv = ["<code>", *(payload.get("args") or [])]
        cwd = payload.get("cwd")
        if cwd and os.getcwd() != cwd:  # noqa: PTH109 - a Path for it would be made at each run
            os.chdir(cwd)
        cwd = cwd or os.getcwd()  # noqa: PTH109
        if cwd not in sys.path and "" not in sys.path:
            sys.path.append(cwd)  # last, so that a program's own modules hide none
            sys.dont_write_bytecode = True
        seed, random = payload.get("seed"), sys.modules.get("random")
        if seed is not None and random is not None and self._runs == 1:
            random.seed(seed)  # what was imported when the sandbox was made would be alike in all of them

    def _value(self, source: str, filename: str, names: dict[str, str] | None) -> Any:
        space = self._namespace
        space.pop("__out", None)
        tools = space["tools"] = make_importable(Tools(self._channel, names or {}))
        space["__builtins__"] = with_names(tools, names)
        take_on(source, self._note)
        printing = Printing() if names and "print(" in names else None
        if printing is not None:
            space["__builtins__"].__dict__["print"] = printing
        sys.modules["__main__"] = self._main
        program = compile_program(source, filename)
        self._install_loop()
        try:
            value = program.run(space)
            if program.is_async:
                value = run_to_end(self._new_loop(), value)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            value = NOTHING
        for candidate in (value, space.get("__out", NOTHING), space.get(LAST, NOTHING)):
            if candidate is not NOTHING and (candidate is not None or printing is None):
                return candidate
        return self._printed(printing) if printing is not None else None

    def _printed(self, printing: Printing) -> Any:
        """Return the only thing that a program without a value has printed, if it can be a value; None without one."""
        try:
            value = printing.value(None)
            to_text(value)
        except Exception:
            return None
        if value is not None:
            self._note("the value is what the program printed; say it with `return`")
        return value

    def _note(self, text: str) -> None:
        """Have the host note, once, what was understood in another way than it was written."""
        if text not in self._noted:
            self._noted.add(text)
            self._channel.ask("note", {"text": text})

    def _install_loop(self) -> None:
        """Have `asyncio.run` and its like use a loop that listens to the channel."""
        asyncio: Any = sys.modules.get("asyncio")
        if asyncio is not None and asyncio.new_event_loop is not self._new_loop:
            asyncio.new_event_loop = asyncio.events.new_event_loop = self._new_loop
            asyncio.get_event_loop = current_loop(asyncio)
            if sys.version_info < (3, 14):  # there it makes a loop of Python's own, which does not know tool calls
                asyncio.get_event_loop_policy()._loop_factory = self._new_loop  # noqa: SLF001

    def _describe(self, error: BaseException, source: str, filename: str) -> dict[str, Any]:
        """The error as the host receives it: in the author's own lines, without the frames around them."""
        kind = type(error).__name__
        message = _text_of(error)
        found: dict[str, Any] = {"kind": kind, "message": f"{kind}: {message}" if message else kind}
        causes = _causes(error)
        if causes:
            found["message"] += ": " + "; ".join(self._cause(cause, filename) for cause in causes[:_MAX_CAUSES])
            found["message"] += f"; and {len(causes) - _MAX_CAUSES} more" if len(causes) > _MAX_CAUSES else ""
        if isinstance(error, SystemExit):
            found["message"] = f"the program ended itself with exit code {message}"
        if isinstance(error, SyntaxError) and error.filename == filename:
            found.update(line=error.lineno or 0, column=error.offset or 0, source=(error.text or "").strip("\n"))
            found["message"] = f"{kind}: {error.msg}"
        else:
            line, column = self._where(error, filename)
            lines = source.splitlines()
            text = lines[line - 1] if 0 < line <= len(lines) else ""
            found.update(line=line, column=column, source=text)
        found["traceback"] = self._traceback(error)
        found["message"] = found["message"][:_MAX_TEXT]
        if not isinstance(error, (SyntaxError, ToolError, SystemExit)):
            found["held"] = self._held(error, filename, source)
        error = causes[0] if len(causes) == 1 else error
        if isinstance(error, ToolError):
            found["tool_error"] = {
                "error": error.message,
                "code": error.code,
                "toolId": error.tool_id,
                "op": error.op,
                "backend": error.backend,
                "retryable": error.retryable,
                "details": error.details,
                **({"class": error.host_class} if error.host_class else {}),
            }
        return found

    def _cause(self, cause: BaseException, filename: str) -> str:
        """One of the errors in a group: its kind, its message and its line."""
        message, line = _text_of(cause)[:_MAX_CAUSE], self._where(cause, filename)[0]
        text = f"{type(cause).__name__}: {message}" if message else type(cause).__name__
        return f"{text} (line {line})" if line else text

    def _where(self, error: BaseException, filename: str) -> tuple[int, int]:
        """Line and column (from 1; 0 unknown) of the innermost place in the program itself."""
        line, column = 0, 0
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == filename:
                line, column = trace.tb_lineno, _column(trace, filename)
            trace = trace.tb_next
        return line, column

    def _held(self, error: BaseException, filename: str, source: str) -> list[dict[str, Any]]:
        try:
            from .held import held_at
        except BaseException:  # as where no more files can be opened
            return []
        return held_at(error, filename, source)

    def _traceback(self, error: BaseException) -> str:
        try:
            import traceback

            shown = traceback.TracebackException(type(error), error, error.__traceback__, limit=None, compact=True)
            _only_own(shown, self._files, 0)
            lines = "".join(shown.format()).splitlines()
        except BaseException as problem:
            return "the traceback cannot be shown: " + type(problem).__name__
        if len(lines) > _MAX_LINES:
            half = _MAX_LINES // 2
            lines = [*lines[:half], f"  ... {len(lines) - 2 * half} lines left out ...", *lines[-half:]]
        return "\n".join(lines)[:_MAX_TEXT]


def _only_own(shown: Any, files: set[str], depth: int) -> None:
    """Leave out the frames before the program's first one, in the error and in those that led to it."""
    if shown is None or depth > 20:
        return
    frames: list[Any] = list(shown.stack)
    first = next((i for i, frame in enumerate(frames) if frame.filename in files), len(frames))
    inner = [frame for frame in frames[first:] if "toolexec_guest" not in frame.filename]
    del shown.stack[:]
    shown.stack.extend(inner)
    for frame in inner:
        if frame.name == "__toolexec_main__":
            frame.name = "<module>"
    for other in (shown.__cause__, shown.__context__, *(getattr(shown, "exceptions", None) or ())):
        _only_own(other, files, depth + 1)


def _column(trace: Any, filename: str) -> int:
    """The column in characters; what Python keeps counts bytes."""
    positions = getattr(trace.tb_frame.f_code, "co_positions", None)
    if positions is None:
        return 0
    try:
        import linecache
    except Exception:  # there are as many open files as may be
        return 0
    for number, position in enumerate(positions()):
        if number == trace.tb_lasti // 2:
            text = linecache.getline(filename, trace.tb_lineno).encode("utf-8", "replace")
            return len(text[: position[2] or 0].decode("utf-8", "replace")) + 1
    return 0


def _causes(error: BaseException) -> list[BaseException]:
    """The errors in a group and in the groups in it; none for any other error."""
    found: list[BaseException] = []
    pending = [*reversed(_members(error))]
    while pending and len(found) < _MAX_TEXT:
        cause = pending.pop()
        inner = _members(cause)
        pending.extend(reversed(inner))
        if not inner:
            found.append(cause)
    return found


def _members(error: Any) -> tuple[BaseException, ...]:
    kind: Any = getattr(builtins, "BaseExceptionGroup", ())  # from Python 3.11 on
    return error.exceptions if isinstance(error, kind) else ()


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException as problem:
        return "its text cannot be shown: " + type(problem).__name__
    return text.encode("utf-8", "replace").decode()[:_MAX_TEXT]


_guests: list[Guest] = []
_WARM_UP = (
    "x = [tools.a.b(c=1), f'{1}']\nlen(x)",
    "import asyncio\nx = await tools.a.b(c=1)\nawait asyncio.gather(tools.a.b(c=1), tools.a.b(c=2))",
)


def start(frame: str, exchange: Callable[[str], str], post: Callable[[str], None]) -> str:
    """Run the program of an `execute` message, with the host behind two functions; gives the `result` message.

    A message `warm` takes the guest's first steps ahead of a run.
    """
    message = from_text(frame)
    if not _guests:
        from .lenient import threads
        from .loop import GuestLoop
        from .threadless import refuse_threads

        refuse_threads()
        threads[0] = False
        channel = HostCalls(exchange, post)
        _report_exit(channel)
        _guests.append(Guest(channel, lambda: GuestLoop(channel)))
    guest = _guests[0]
    guest.connect(exchange, post)
    if message.get("type") == "warm":
        guest.warm_up(message.get("payload") or {})
        return "{}"
    payload = guest.execute(message.get("payload") or {})
    return '{"type":"result","id":"' + str(message.get("id")) + '","payload":' + payload + "}"


def _report_exit(channel: Channel) -> None:
    """Send the host the code of `os._exit`: the system here knows only 0 and 1."""
    leave = os._exit

    def leave_with(status: int) -> Any:
        channel.post("exit", {"code": int(status)})
        leave(status)

    os._exit = leave_with


def run_to_end(loop: Any, main: Any) -> Any:
    """Run *main* on *loop* as `asyncio.run` does; then finish the tool calls that were not awaited."""
    import asyncio

    from .deferred import end_calls, unfinished

    unfinished.clear()
    asyncio.set_event_loop(loop)
    try:
        value = loop.run_until_complete(main)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        end_calls(loop)
        loop.run_until_complete(loop.shutdown_asyncgens())
        return value
    except KeyboardInterrupt:  # nothing of a program that is stopped may go on in the next one
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        raise
    finally:
        asyncio.set_event_loop(None)
        loop.close()
