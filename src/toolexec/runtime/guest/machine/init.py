"""The first process of a virtual machine: sets it up, has a guest wait or start, and reports to the host how it ends.

Runs from the image, with its own Python and the standard library. The host restores machines in the state after
`loaded`; everything that depends on the moment or on the host comes with `begin`.
"""

from __future__ import annotations

import os
import platform
import select
import signal
import sys
import time
from typing import Any

from .channels import Channels, find_channels
from .messages import CONTROL_VERSION, Lines, ProtocolError, line, parse
from .start import STDIO, Waiting, start_command, start_waiting
from .system import Group, add_entropy, mount_all, restart, set_clock, set_random_addresses, set_sizes, set_up_system

_SAID = 8000
_CHUNK = 1 << 16
_CONNECT_SECONDS = 10.0
_NO_HOST_PAUSE = 20
_PREPARED = ("command", "env", "work", "user", "open_files")
"""What a guest that was started before the snapshot cannot change any more."""
_BEGUN = line("begun")


class Init:
    """What the first process does, one event after the other.

    *system* has the functions of `system` that it needs.
    """

    def __init__(self, channels: Channels, group: Any, system: Any) -> None:
        self._channels = channels
        self._group = group
        self._system = system
        self._lines = Lines()
        self._poll = select.poll()
        self._load: dict[str, Any] | None = None
        self._prepared: dict[str, Any] | None = None
        self._known: dict[str, Any] | None = None
        self._waiting: Waiting | None = None
        self._loaded = False
        self._begun = False
        self._guest = 0
        self._stderr = -1
        self._said = b""
        self._waking, writing = os.pipe()
        for descriptor in (self._waking, writing):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._poll.register(self._waking, select.POLLIN)
        if channels.listening is not None:
            self._poll.register(channels.listening[0], select.POLLIN)
        elif channels.ports is not None:
            self._poll.register(channels.ports[0], select.POLLIN)

    def serve(self) -> None:
        """Serve the host until it is gone from a machine that has begun, or breaks the protocol."""
        self._ready()
        while True:
            for descriptor, events in self._poll.poll():
                try:
                    if not self._handle(descriptor, events):
                        return
                except ProtocolError as error:
                    self._send("failed", reason=str(error))
                    return

    def _handle(self, descriptor: int, events: int) -> bool:
        listening = self._channels.listening
        if descriptor == self._waking:
            os.read(self._waking, _CHUNK)
            self._reap()
        elif listening is not None and descriptor == listening[0].fileno():
            self._accept()
        elif descriptor == self._stderr:
            self._read_stderr(events)
        elif self._waiting is not None and descriptor == self._waiting.end.fileno():
            self._on_waiting()
        elif descriptor == self._channels.control():
            return self._read(descriptor)
        else:  # of a connection that was replaced in this round
            pass
        return True

    def _ready(self) -> None:
        self._send("ready", protocol=CONTROL_VERSION, python=platform.python_version(), kernel=os.uname().release)

    def _accept(self) -> None:
        """Take a new connection of the host; the one before is dead if this machine was restored."""
        if self._begun:
            return
        old = self._channels.control()
        if old is not None:
            self._poll.unregister(old)
            self._channels.drop(0)
        self._channels.accept(0, _CONNECT_SECONDS)
        control = self._channels.control()
        if control is not None:
            self._lines = Lines()
            self._poll.register(control, select.POLLIN)
            if old is None and not self._loaded:
                self._ready()

    def _read(self, control: int) -> bool:
        try:
            data = os.read(control, _CHUNK)
        except OSError:
            data = b""
        if not data:
            if self._begun:
                return False
            if self._channels.listening is not None:
                self._poll.unregister(control)
                self._channels.drop(0)
            else:
                time.sleep(_NO_HOST_PAUSE / 1000)  # a port says all the time that nothing is connected to it
            return True
        self._lines.add(data)
        while self._next():
            pass
        return True

    def _next(self) -> bool:
        """Do what the next complete message says; gives whether there was one."""
        if self._load is not None:
            program = self._lines.take_bytes(self._load["bytes"])
            if program is None:
                return False
            settings, self._load = self._load, None
            self._start_waiting(program, settings)
            return True
        text = self._lines.take()
        if text is None:
            return False
        name, fields = parse(text, self._known)
        if name == "ping":
            self._send("pong", id=fields["id"])
        elif name == "cpu":
            self._send("cpu", id=fields["id"], seconds=self._group.cpu_seconds())
        elif self._begun or (name == "load" and self._waiting is not None):
            raise ProtocolError(f"{name} comes too late")
        elif name == "load":
            self._load = fields
        else:
            self._begin(fields)
        return True

    def _start_waiting(self, program: bytes, settings: dict[str, Any]) -> None:
        guest = self._prepared = settings["guest"]
        if guest is not None and not self._set_limits(guest):
            return
        stdio = self._channels.ports[1] if self._channels.ports is not None else None
        given = {"warm": settings["warm"], "guest": guest, "stdio": STDIO if stdio is not None else None}
        self._known = settings.get("known")
        waiting = self._waiting = start_waiting(program, given, self._group, stdio)
        self._guest = waiting.pid
        self._listen_to(waiting.said)
        self._poll.register(waiting.end, select.POLLIN)

    def _on_waiting(self) -> None:
        waiting = self._waiting
        if waiting is None:
            return
        self._poll.unregister(waiting.end)
        if waiting.end.recv(1) == b"1":
            self._loaded = True
            self._system.set_random_addresses(True)
            self._send("loaded")

    def _begin(self, fields: dict[str, Any]) -> None:
        if self._waiting is not None and not self._loaded:
            raise ProtocolError("begin comes before loaded")
        prepared = self._prepared
        same = "command" not in fields  # see `parse`
        if prepared is not None and not same:
            others = [name for name in _PREPARED if prepared[name] != fields[name]]
            if others:
                self._send("failed", reason=f"the guest was started with another {' and '.join(others)}")
                return
        try:
            self._system.set_clock(fields["time_ns"])
            self._system.add_entropy(fields.pop("entropy"))
        except OSError as error:
            self._send("failed", reason=f"the machine cannot be set up: {error}")
            return
        if not same and not self._set_limits(fields):
            return
        stdio = self._channels.stdio(_CONNECT_SECONDS)
        if stdio is None:
            self._send("failed", reason="the host has not connected to the channel of the guest")
            return
        if self._waiting is not None:
            if prepared is not None:
                why = self._waiting.resume(stdio if self._channels.ports is None else None)
            else:
                why = self._waiting.begin(fields, stdio)
            if why:
                self._send("failed", reason=why)
                return
        else:
            self._system.set_random_addresses(True)
            self._guest, said = start_command(fields, stdio, self._group)
            self._listen_to(said)
        self._begun = True
        self._write(_BEGUN)

    def _set_limits(self, fields: dict[str, Any]) -> bool:
        """Set how much the guest may use; gives whether that was possible, and reports it if not."""
        try:
            self._system.set_sizes(fields["tmpfs"], fields["work"], fields["user"])
            self._group.limit(fields["memory"], fields["pids"], fields["cpus"])
        except OSError as error:
            self._send("failed", reason=f"the machine cannot be set up: {error}")
            return False
        return True

    def _listen_to(self, descriptor: int) -> None:
        self._stderr = descriptor
        os.set_blocking(descriptor, False)
        self._poll.register(descriptor, select.POLLIN)

    def _read_stderr(self, events: int) -> bool:
        """Keep the end of what the guest writes on stderr; gives whether there was something."""
        try:
            data = os.read(self._stderr, _CHUNK)
        except BlockingIOError:
            if not events & select.POLLHUP:
                return False
            data = b""
        self._said = (self._said + data)[-_SAID:]
        if not data:
            self._poll.unregister(self._stderr)
            os.close(self._stderr)
            self._stderr = -1
        return bool(data)

    def _reap(self) -> None:
        """Collect ended processes, also those whose parents are gone; the end of the guest is that of all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._guest:
                self._ended(status)

    def _ended(self, status: int) -> None:
        self._group.kill()
        while self._stderr >= 0 and self._read_stderr(select.POLLIN):
            pass
        said = self._said.decode("utf-8", "replace")
        self._guest = 0
        if not self._begun:
            self._send("failed", reason=f"the guest cannot wait: {said or status}")
            return
        self._send(
            "ended",
            code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
            oom=self._group.ran_out_of_memory(),
            pids=self._group.ran_out_of_processes(),
            said=said,
        )

    def _send(self, name: str, **fields: Any) -> None:
        self._write(line(name, **fields))

    def _write(self, message: bytes) -> None:
        control = self._channels.control()
        data = memoryview(message)
        while data and control is not None:
            try:
                data = data[os.write(control, data) :]
            except OSError:  # nothing is connected
                return


class _System:
    """The system of this machine."""

    set_clock = staticmethod(set_clock)
    add_entropy = staticmethod(add_entropy)
    set_random_addresses = staticmethod(set_random_addresses)
    set_sizes = staticmethod(set_sizes)


def main() -> None:
    """Be the first process of a machine. Ends the machine when it cannot go on; why is on the console."""
    try:
        os.environ.clear()
        mount_all()
        channels = find_channels()
        set_up_system()
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1000")
        set_random_addresses(False)
        Init(channels, Group(), _System()).serve()
    except BaseException as error:
        sys.stderr.write(f"toolexec-init: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        restart()
