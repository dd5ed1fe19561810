"""Starts the process that becomes the guest: one that waits with everything loaded, or one for any other command."""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any

from .rights import give_up_rights, set_environment

_FAILED = 127
STDIO = 3
"""Where a waiting guest finds its channel."""
STAGER = """\
import os, sys
def read(size):
    data = b""
    while len(data) < size:
        part = os.read(0, size - len(data))
        if not part:
            os._exit(1)
        data += part
    return data
exec(read(int.from_bytes(read(4), "big")), {"read": read, "settings": sys.argv[1]})
"""
"""Runs the program that the host has sent, which reads the rest from where it came."""


class Waiting:
    """A process that has loaded the guest, and becomes it as soon as it gets the host's `begin`."""

    def __init__(self, pid: int, said: int, end: socket.socket) -> None:
        self.pid = pid
        self.said = said
        self.end = end

    def resume(self, stdio: int | None) -> str:
        """Have a guest that was started in full go on, with *stdio* unless it has that; gives why it cannot."""
        try:
            if stdio is None:
                self.end.send(bytes(4))
            else:
                self.end.sendmsg([bytes(4)], _rights(stdio))
        except OSError as error:
            return f"the waiting guest is gone: {error}"
        return ""

    def begin(self, fields: dict[str, Any], stdio: int) -> str:
        """Hand it what it needs; gives why it cannot begin, "" once it does."""
        message = json.dumps(fields).encode()
        try:
            self.end.sendmsg([len(message).to_bytes(4, "big") + message], _rights(stdio))
            answer = self.end.recv(4096)
        except OSError as error:
            return f"the waiting guest is gone: {error}"
        return "" if answer == b"1" else answer.decode("utf-8", "replace") or "the waiting guest is gone"


def start_waiting(program: bytes, settings: dict[str, Any], group: Any, stdio: int | None) -> Waiting:
    """Return a process that loads *program*, which gets *settings*; it says b"1" on its end once it waits.

    *stdio* is the channel of the guest, where it is known before the snapshot.
    """
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            null = os.open("/dev/null", os.O_WRONLY)
            _prepare(group, theirs.fileno(), null, writing)
            if stdio is not None:
                os.dup2(stdio, STDIO)
            words = ["/usr/bin/python3", "-I", "-X", "utf8", "-c", STAGER, json.dumps(settings)]
            os.execve(words[0], words, {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})
        finally:
            os._exit(_FAILED)
    theirs.close()
    os.close(writing)
    ours.sendall(program)
    return Waiting(pid, reading, ours)


def start_command(fields: dict[str, Any], stdio: int, group: Any) -> tuple[int, int]:
    """Return a new process that runs the command of a `begin`, and where its stderr can be read."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _prepare(group, stdio, stdio, writing)
            set_environment(fields["env"])
            give_up_rights(tuple(fields["user"]), fields["open_files"])
            os.chdir(fields["work"])
            os.execvp(fields["command"][0], fields["command"])
        except BaseException as error:
            os.write(2, f"cannot start {fields['command'][0]}: {error}\n".encode("utf-8", "replace"))
        finally:
            os._exit(_FAILED)
    os.close(writing)
    return pid, reading


def _rights(descriptor: int) -> list[tuple[int, int, Any]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]


def _prepare(group: Any, stdin: int, stdout: int, stderr: int) -> None:
    """In a new process: its group, its session and its descriptors."""
    group.join()
    os.setsid()
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("0")
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
