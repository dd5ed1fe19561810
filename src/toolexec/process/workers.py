"""Worker processes for killable handlers: a call that is cancelled ends with its process, and with all it started."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from toolexec.errors import ExecutionError, HandlerError, InvalidResultError
from toolexec.errors.extras import unix_needed
from toolexec.errors.outcome import Outcome
from toolexec.model.call import ToolCall
from toolexec.model.content import ToolReply
from toolexec.model.forks import forks
from toolexec.model.handler import Source
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.process.fate import Fate
from toolexec.process.tree import signal_group

MAX_FRAME = 64 << 20
"""The most bytes of a reply."""

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from toolexec.process.worker import main; main()"
)

loading_main = False
"""Set in a worker process while it runs the main script to get at a handler; see `WorkerProcesses.run`."""


class ReplyTooLargeError(Exception):
    """The reply is larger than MAX_FRAME."""


class WorkerProcess:
    """A running `toolexec.process.worker`.

    It is started by constructing this, which raises OSError when that is not possible. It belongs to no event loop: one
    after the other may talk to it. Frames in both directions are a length (4 bytes, big-endian) and JSON.
    """

    def __init__(self) -> None:
        with unix_needed("a killable handler"):
            import_module("fcntl")  # the worker ends with its lifeline, which needs it
        self._socket, theirs = socket.socketpair()
        self._lifeline, their_lifeline = socket.socketpair()
        try:
            self._socket.setblocking(False)
            path = [str(directory) or str(Path.cwd()) for directory in sys.path]
            command = [sys.executable, "-P", "-c", _PROGRAM, json.dumps(path)]
            self._process = subprocess.Popen(  # noqa: S603
                command, stdin=theirs.fileno(), stdout=their_lifeline.fileno(), start_new_session=True
            )
        except BaseException:
            self._hang_up()
            raise
        finally:
            theirs.close()
            their_lifeline.close()

    async def exchange(self, request: bytes) -> JSONDict:
        """Send a request and give the reply.

        Raises EOFError or OSError when the process has gone, ValueError for garbage, ReplyTooLargeError. After a
        failure or a cancellation the process must be killed: what it sends next belongs to no call.
        """
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, len(request).to_bytes(4, "big") + request)
        size = int.from_bytes(await self._read(4), "big")
        if size > MAX_FRAME:
            raise ReplyTooLargeError(f"the result has {size} bytes as JSON, more than {MAX_FRAME}")
        return json.loads(await self._read(size))

    async def _read(self, size: int) -> bytearray:
        loop = asyncio.get_running_loop()
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = await loop.sock_recv_into(self._socket, view)
            if not count:
                raise EOFError("the worker process closed its end")
            view = view[count:]
        return data

    def usable(self) -> bool:
        """Return whether an idle process is still alive, and silent."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def stop(self) -> None:
        """Kill the process with its group; a task that talks to it gets the end of the conversation."""
        if self._process.returncode is None:  # otherwise the ID may belong to someone else by now
            signal_group(self._process.pid)

    def kill(self) -> None:
        """Kill the process with its group and hang up; no task may be talking to it."""
        self.stop()
        self._hang_up()

    def forget(self) -> None:
        """Release a process that belongs to the parent of this one."""
        self._hang_up()
        self._process.returncode = 0  # not ours to wait for, and nothing to warn of when this is collected

    def _hang_up(self) -> None:
        self._socket.close()
        self._lifeline.close()

    def gone(self) -> bool:
        """Return whether the process has ended; also free what the system keeps of an ended one."""
        return self._process.poll() is not None

    def ending(self) -> str:
        """Describe how the process ended."""
        code = self._process.returncode
        if code is None or code == -signal.SIGKILL:
            return "killed, or it closed its pipe"
        return f"signal {-code}" if code < 0 else f"exit code {code}"


class WorkerProcesses:
    """Processes that run importable handlers, one call at a time each.

    At most *limit* are at work for one event loop (default: twice the processors, at least 4); further calls wait. Up
    to *keep* wait idle for the next call, from whichever loop.
    """

    def __init__(self, limit: int | None = None, keep: int = 2) -> None:
        self._limit = limit or max(4, 2 * (os.cpu_count() or 1))
        self._keep = keep
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._lock = threading.Lock()
        self._idle: list[WorkerProcess] = []
        self._started: set[WorkerProcess] = set()
        self._closed = False
        self._forks = forks.count

    async def run(self, name: str, source: Source, args: JSONObject, call: ToolCall | None = None) -> Any:
        """Call the function at *source* (module, qualified name) with *args*, which must be JSON, and return its JSON
        value or ToolReply.

        `waiting` of *call* is set until then. Raises HandlerError as the function raised or when it cannot be imported,
        the ExecutionError that it raised by itself, InvalidResultError for a result that is not JSON, ExecutionError
        when the process died. Cancelling kills the process and everything in its process group.
        """
        if self._forks != forks.count:
            self._leave()
        request = _request(name, source, args)
        if call is not None:
            call.waiting = "a free worker process"
        async with self._slot():
            worker = await self._take(name)
            if call is not None:
                call.waiting = ""
            try:
                reply = await worker.exchange(request)
            except GeneratorExit:  # this coroutine is not run any more, so it cannot wait
                worker.kill()
                raise
            except ReplyTooLargeError as error:
                await self._end(worker)
                raise InvalidResultError(f"{name}: {error}") from None
            except (EOFError, OSError, ValueError):
                await self._end(worker)
                why = "the backend was closed" if self._closed else worker.ending()
                raise ExecutionError(f"the worker process of {name} died ({why})") from None
            except BaseException:
                await self._end(worker)
                raise
            await self._give_back(worker)
        return _value(name, reply)

    async def aclose(self) -> None:
        """Kill all processes; calls that are under way fail with ExecutionError. Those of a parent that this process
        was forked from are left to it."""
        if self._forks != forks.count:
            self._leave()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            workers = list(self._started)
        for worker in workers:
            worker.kill() if worker in idle else worker.stop()
        await asyncio.gather(*(self._wait(worker) for worker in workers))

    def _leave(self) -> None:
        """Begin with none after a fork: the processes are the parent's."""
        self._forks = forks.count
        self._lock = threading.Lock()
        self._slots.clear()
        for worker in self._started:
            worker.forget()
        self._idle, self._started = [], set()

    def _slot(self) -> asyncio.Semaphore:
        """Return this loop's semaphore, which belongs to the event loop that first waits for it."""
        loop = asyncio.get_running_loop()
        slots = self._slots.get(loop)
        if slots is None:
            for closed in [known for known in list(self._slots) if known.is_closed()]:
                self._slots.pop(closed, None)
            slots = self._slots[loop] = asyncio.Semaphore(self._limit)
        return slots

    async def _take(self, name: str) -> WorkerProcess:
        if loading_main:
            raise HandlerError(
                f"the main script calls {name} while a worker process is loading it; "
                "put what the script does under: if __name__ == '__main__'"
            )
        while self._idle and not self._closed:
            with self._lock:
                worker = self._idle.pop() if self._idle else None
            if worker is not None and worker.usable():
                return worker
            if worker is not None:
                await self._end(worker)
        with self._lock:
            if self._closed:
                raise ExecutionError(f"{name} was not called: the backend was closed", outcome=Outcome.NOT_SENT)
            try:
                worker = WorkerProcess()
            except OSError as error:
                raise ExecutionError(
                    f"cannot start a worker process for {name}: {error}", outcome=Outcome.NOT_SENT
                ) from error
            self._started.add(worker)
        return worker

    async def _give_back(self, worker: WorkerProcess) -> None:
        with self._lock:
            kept = not self._closed and len(self._idle) < self._keep
            if kept:
                self._idle.append(worker)
        if not kept:
            await self._end(worker)

    async def _end(self, worker: WorkerProcess) -> None:
        worker.kill()
        await self._wait(worker)

    async def _wait(self, worker: WorkerProcess) -> None:
        """Wait for a killed process, and forget it; if that is cancelled, `aclose` does it."""
        pause = 0.001
        while not worker.gone() and pause < 2:
            await asyncio.sleep(pause)
            pause *= 1.5
        self._started.discard(worker)


class WorkerTraceback(Exception):  # noqa: N818 - it stands for an exception of another process
    """The traceback in a worker process, as the cause of the error here: for developers, and not for callers."""


def _request(name: str, source: Source, args: JSONObject) -> bytes:
    module, function, typed = source
    script: str | None = None
    if module == "__main__":
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None:  # started with python -m
            module = spec.name
        else:
            script = getattr(main, "__file__", None)
            if script is None or not Path(script).is_file():
                raise HandlerError(f"{name} is killable, but a worker process cannot import it; move it to a module")
    request = {"module": module, "function": function, "typed": typed, "script": script, "args": dict(args)}
    return json.dumps(request).encode()


def _value(name: str, reply: JSONObject) -> Any:
    match reply["kind"]:
        case "value":
            return reply["value"]
        case "reply":
            return ToolReply.from_mcp(reply["value"])
        case "invalid":
            raise InvalidResultError(f"{name}: {reply['value']}")
        case "raised" if "code" in reply:
            raise _failed(reply) from WorkerTraceback(reply["value"][-1])
        case "raised":
            raise _raised(f"{name} raised", reply["value"], Fate.from_dict(reply["fate"]))
        case _:
            raise _raised(
                f"a worker process cannot load {name}:", reply["value"], Fate(Outcome.NOT_SENT, retryable=False)
            )


def _failed(reply: JSONObject) -> ExecutionError:
    """Return the error that a handler raised to say how its call failed, as it would come from this process."""
    fate, details = Fate.from_dict(reply["fate"]), reply["details"]
    return ExecutionError(
        reply["message"],
        code=reply["code"],
        details=details if isinstance(details, dict) else {"details": details},
        outcome=fate.outcome,
        retryable=fate.retryable,
    )


def _raised(what: str, description: Sequence[str], fate: Fate) -> HandlerError:
    kind, message, trace = description
    details: JSONDict = {"type": kind}
    if fate.retry_after is not None:
        details["retry_after"] = fate.retry_after
    text = f"{what} {kind}{f': {message}' if message else ''}"
    error = HandlerError(text, details=details, outcome=fate.outcome, retryable=fate.retryable)
    error.__cause__ = WorkerTraceback(trace)
    return error
