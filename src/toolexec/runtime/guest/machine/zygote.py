"""The guest that waits in a machine for its restore, with all loaded that it will need."""

from __future__ import annotations

import _socket  # pyright: ignore[reportMissingImports] - socket takes longer to import
import os
import sys
from typing import Any

from ..python.values import from_text
from .rights import give_up_rights, load_libc, set_environment

__all__ = ["wait_to_begin"]

_FAILED = 70
_MAX_MESSAGE = 1 << 18
_OWN = ("-I", "-X", "utf8", "-c")


def wait_to_begin(stager: str, warm: list[str]) -> None:
    """Load everything, say so to the first process of the machine, and become the guest that it asks for then.

    *stager* is the program in the command of a guest; any other command is executed as it is. *warm* are languages that
    take a while to be ready.
    """
    _load(warm)
    os.write(0, b"1")
    end = _socket.socket(fileno=os.dup(0))
    fields, stdio = _receive(end)
    command = fields["command"]
    try:
        _reseed()
        set_environment(fields["env"])
        give_up_rights(tuple(fields["user"]), fields["open_files"])
        os.chdir(fields["work"])
        os.dup2(stdio, 0)
        os.dup2(stdio, 1)
        os.close(stdio)
    except BaseException as error:
        end.send(f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
        os._exit(_FAILED)
    end.send(b"1")
    end.close()
    if len(command) == 7 and tuple(command[1:5]) == _OWN and command[5] == stager:
        from ..box.boot import boot

        boot(command[6])
        os._exit(0)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"cannot start {command[0]}: {error}\n".encode("utf-8", "replace"))
    os._exit(127)


def _receive(end: Any) -> tuple[dict[str, Any], int]:
    """The `begin` of the host, and the descriptor that came with it."""
    data, rights, _, _ = end.recvmsg(_MAX_MESSAGE, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
        more = end.recv(_MAX_MESSAGE)
        if not more:
            os._exit(_FAILED)
        data += more
    return from_text(data[4:].decode()), int.from_bytes(rights[0][2], sys.byteorder)


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
    """Forget the random numbers that every machine of the same snapshot has."""
    random, tempfile, ssl = (sys.modules.get(name) for name in ("random", "tempfile", "_ssl"))
    if random is not None:
        random.seed()
    if tempfile is not None:
        setattr(tempfile, "_name_sequence", None)  # noqa: B010 - it has a generator of its own
    if ssl is not None:
        ssl.RAND_add(os.urandom(64), 64.0)
