"""The program inside a worker process: it runs guests in threads, and passes on all that they ask to the host.

It holds no tools, no secrets and no environment. It ends with its host: with the control line, and at the latest when
the kernel sees the lifeline (its stdout, on which nothing is ever sent) close.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from toolexec.errors import ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.process.child import die_with_us
from toolexec.runtime.json_text import split_answer
from toolexec.runtime.wasm.guest import InstanceFailed, InstanceSettings, InstanceStopped, Starts, StopCalled
from toolexec.runtime.wasm.instance import THREAD_STACK_BYTES, Instance, Program
from toolexec.runtime.wasm.pool import GuestPool
from toolexec.runtime.wasm.workers.long_runs import LongRuns, Watched
from toolexec.runtime.wasm.workers.wire import Kind, Line, pack, unpack

_BEGINNING: Final = 2
_STACK_BYTES: Final = max(THREAD_STACK_BYTES, 8 << 20)


def main(job: JSONDict) -> None:
    """Serve until the host hangs up. *job* has the descriptors `control` and `program`, the `core` to run on (or None),
    how many bytes idle memory may have, and whether it `ranks` its programs.
    """
    with suppress(OSError):
        die_with_us(os.dup(1), os.getpgrp())
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 1)
    if job["core"] is not None:
        with suppress(OSError):  # another rule may hold here
            os.sched_setaffinity(0, {job["core"]})
    control = socket.socket(fileno=job["control"])
    threading.stack_size(_STACK_BYTES)
    program = Program.load(f"/proc/self/fd/{job['program']}")
    os.close(job["program"])
    pool = GuestPool(program, 0, job["idle_bytes"])
    pool.make().close()
    gc.freeze()
    control.send(b"ready")
    _serve(control, pool, LongRuns() if job["ranks"] else None)
    os._exit(0)  # guests that run have no host any more


def _serve(control: socket.socket, pool: GuestPool, long_runs: LongRuns | None) -> None:
    """Open and stop lanes as the host says."""
    starts = Starts(_BEGINNING)
    lanes: dict[int, _Lane] = {}
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 12, 1)
        except OSError:
            return
        if not data:
            return
        order = json.loads(data)
        if "stop" in order:
            lane = lanes.get(order["stop"])
            if lane is not None:
                lane.stop()
            continue
        lane = _Lane(Line(socket.socket(fileno=descriptors[0])), pool, starts, long_runs)
        lanes = {number: known for number, known in lanes.items() if not known.is_over}
        lanes[order["open"]] = lane
        threading.Thread(target=lane.serve, name="toolexec-guest", daemon=True).start()


class _Lane:
    """Runs guests one after the other, in its thread, as its line says."""

    def __init__(self, line: Line, pool: GuestPool, starts: Starts, long_runs: LongRuns | None) -> None:
        self.is_over = False
        self._line = line
        self._pool = pool
        self._starts = starts
        self._long_runs = long_runs
        self._lock = threading.Lock()  # guards the three below
        self._watched: Watched | None = None
        self._stopped = False
        self._instance: Instance | None = None

    def serve(self) -> None:
        """Run guests until the host hangs up, or has stopped one."""
        try:
            while not self._stopped:
                kind, body = self._line.receive()
                if kind == Kind.RUN:
                    self._run(*unpack(body))
        except (EOFError, OSError):
            return
        finally:
            self.is_over = True
            self._line.socket.close()

    def stop(self) -> None:
        """Stop the guest, whatever it does; the lane ends with it."""
        with self._lock:
            self._stopped = True
            if self._watched is not None and self._long_runs is not None:
                self._long_runs.stop(self._watched)
            if self._instance is not None:
                self._instance.stop()
        with suppress(OSError):  # it may wait for an answer
            self._line.socket.shutdown(socket.SHUT_RD)

    def _run(self, about: JSONDict, blobs: list[bytes]) -> None:
        host = _Host(self._line, self._starts)
        end: JSONDict = {}
        answer, value = "", b""
        files: dict[str, bytes] = {}
        instance: Instance | None = None
        watched = self._long_runs.enter(gives_way=about["gives_way"]) if self._long_runs is not None else None
        with self._lock:
            self._watched = watched
            if watched is not None and self._long_runs is not None and self._stopped:
                self._long_runs.stop(watched)
        try:
            instance = self._pool.make()
            with self._lock:
                self._instance = instance
                if self._stopped:
                    raise InstanceStopped("the guest was stopped before it began")
            granted = InstanceSettings(**about["granted"], files=dict(zip(about["files"], blobs[1:], strict=True)))
            instance.prepare(granted, host, host.write)
            answer = instance.run(blobs[0].decode())
            if about["as_json"]:
                answer, value = split_answer(answer)
            end["how"] = "answer"
        except InstanceStopped:
            end["how"] = "stopped"
        except InstanceFailed as error:
            end |= {"how": "failed", "reason": error.reason, "message": error.message}
            end |= {"exit_code": error.exit_code, "report": error.report}
        except ToolExecError as error:
            end |= {"how": "refused", "message": str(error)}
        except Exception as error:
            end |= {"how": "broken", "message": str(error)}
        finally:
            host.begun()
            with self._lock:
                self._instance = self._watched = None
            if watched is not None and self._long_runs is not None:
                self._long_runs.leave(watched)
        if instance is not None:
            with suppress(ToolExecError):  # one that was not prepared has no files
                files = instance.changed_files
            end |= {"fuel_used": instance.fuel_used}
        end["files"], end["has_value"] = [*files], bool(value)
        end["gives_way"] = watched is not None and watched.gives_way
        try:
            self._line.send(Kind.END, *pack(end, [answer.encode(), *([value] if value else []), *files.values()]))
        finally:
            if instance is not None:
                instance.close()


class _Host:
    """The host of a guest, on the other end of the line; see `HostCalls`."""

    def __init__(self, line: Line, starts: Starts) -> None:
        self._line = line
        self._begun: Any = starts.enter()

    def begun(self) -> None:
        """Make room for the next guest to begin."""
        if self._begun is not None:
            self._begun()
            self._begun = None

    def exchange(self, frame: str) -> str:
        """Return the host's answer; raises StopCalled when it has none."""
        self.begun()
        try:
            self._line.send(Kind.EXCHANGE, frame.encode())
            kind, body = self._line.receive()
        except (EOFError, OSError):
            raise StopCalled("the host has hung up") from None
        if kind != Kind.REPLY:
            raise StopCalled("the host refused to answer")
        return body.decode()

    def post(self, frame: str) -> None:
        """Pass it on; raises StopCalled when there is no host."""
        try:
            self._line.send(Kind.POST, frame.encode())
        except OSError:
            raise StopCalled("the host has hung up") from None

    def write(self, stream: str, data: bytes) -> None:
        """Pass output on."""
        try:
            self._line.send(Kind.STDERR if stream == "stderr" else Kind.STDOUT, data)
        except OSError:
            raise StopCalled("the host has hung up") from None
