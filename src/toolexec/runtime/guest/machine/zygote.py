"""The guest that waits in a machine for its restore, with all loaded that it will need."""

from __future__ import annotations

import _socket  # pyright: ignore[reportMissingImports] - socket takes longer to import
import os
import sys
from typing import Any

from ..python.values import from_text
from .rights import give_up_rights, load_libc, set_environment

_FAILED = 70
_MAX_MESSAGE = 1 << 18
_OWN = ["-I", "-X", "utf8", "-c"]


def wait_to_begin(stager: str, settings: str) -> None:
    """Load everything, report that to the first process of the machine, and become the guest that it asks for then.

    *stager* is the program in the command of a guest; any other command is executed as it is. *settings* are `warm`,
    the languages that take a while to be ready, and `guest`: what is known of the guest ahead, or None. Such a guest is
    started in full, and only its channel is missing.
    """
    given = from_text(settings)
    _load(given["warm"])
    end = _socket.socket(fileno=os.dup(0))
    guest = given["guest"]
    if guest is not None and _is_guest(guest["command"], stager):
        _become(guest, os.open(os.devnull, os.O_RDWR))
        _boot(guest["command"], lambda reading, writing: _wait_with_server(end, given["stdio"], reading, writing))
    if given["stdio"] is not None:  # it comes with the rest
        os.close(given["stdio"])
    end.send(b"1")
    data, stdio = _receive(end)
    try:
        _reseed()
        fields: dict[str, Any] = from_text(data.decode()) if data else guest or {}
        _become(fields, stdio)
    except BaseException as error:
        end.send(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        os._exit(_FAILED)
    end.send(b"1")
    end.close()
    command = fields["command"]
    if _is_guest(command, stager):
        _boot(command)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode("utf-8", "replace"))
    os._exit(127)


def _is_guest(command: list[str], stager: str) -> bool:
    return len(command) == 7 and command[1:5] == _OWN and command[5] == stager


def _boot(command: list[str], wait: Any = None) -> None:
    """Does not return."""
    from ..box.boot import boot

    boot(command[6], wait)
    os._exit(0)


def _become(fields: dict[str, Any], stdio: int) -> None:
    """Have the environment, the rights, the directory and the channel of a guest."""
    set_environment(fields["env"])
    give_up_rights((fields["user"][0], fields["user"][1]), fields["open_files"])
    os.chdir(fields["work"])
    os.dup2(stdio, 0)
    os.dup2(stdio, 1)
    os.close(stdio)


def _wait_with_server(end: Any, stdio: int | None, reading: int, writing: int) -> None:
    """Say that the server is ready, and return once it may go on and its descriptors lead to the host."""
    if stdio is not None:
        _move(stdio, reading, writing)
    end.send(b"1")
    if stdio is None:
        _move(_receive(end)[1], reading, writing)
    elif not end.recv(4):
        os._exit(_FAILED)
    end.close()
    _reseed()


def _move(stdio: int, reading: int, writing: int) -> None:
    os.dup2(stdio, reading, inheritable=False)
    os.dup2(stdio, writing, inheritable=False)
    os.close(stdio)


def _receive(end: Any) -> tuple[bytes, int]:
    """What begins the guest, and the descriptor that came with it."""
    data, rights, _, _ = end.recvmsg(_MAX_MESSAGE, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = end.recv(_MAX_MESSAGE)
        if not more:
            os._exit(_FAILED)
        data += more
    return data[4:], int.from_bytes(rights[0][2], sys.byteorder)


def _load(warm: list[str]) -> None:
    """Import every module of the guest, and what it imports later, and run some programs."""
    import fcntl
    import resource
    import struct

    load_libc()
    from ..box import boot, compiled, drop, files, inside, net, node, serve, shell, stdio

    if "python" in warm:
        from ..box.warm import warm_up

        warm_up()
    _ = fcntl, resource, struct, boot, compiled, drop, files, inside, net, node, serve, shell, stdio


def _reseed() -> None:
    """Forget the random numbers that every machine of the same snapshot has.

    OpenSSL has none yet: it takes its first ones from the kernel when it needs them.
    """
    random, tempfile = sys.modules.get("random"), sys.modules.get("tempfile")
    if random is not None:
        random.seed()
    if tempfile is not None:
        setattr(tempfile, "_name_sequence", None)  # noqa: B010 - it has a generator of its own
