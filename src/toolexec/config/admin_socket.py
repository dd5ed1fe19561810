"""Where a running server takes the orders of its admin: a Unix socket that only the user who started it can open.

One request and one answer per connection, each a line of JSON. Access is what the socket's directory and file allow,
and on Linux the kernel is asked who is at the other end.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from toolexec.errors import BackendUnavailableError, ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject

logger: logging.Logger = logging.getLogger(__name__)
_DIRECTORY: Final = "serving"
_MAX_BYTES: Final = 1 << 20
_MOST: Final = 16
_PATIENCE: Final = 10.0  # seconds for a request to arrive
_LONGEST_PATH: Final = 100  # bytes, in the address of a socket


@asynccontextmanager
async def listening(state: Path, perform: Callable[[JSONObject], Awaitable[JSONDict]]) -> AsyncGenerator[Path | None]:
    """Have *perform* answer the requests that come through a socket in the *state* directory while the block runs.

    Only the user of this process, and root, is answered. Where there can be no such socket the server goes on without
    an admin, and the log says why; then this yields None.
    """
    answers = _Answers(perform)
    try:
        directory = _own_directory(state)
        path = directory / f"{os.getpid()}.sock"
        server = await asyncio.start_unix_server(answers.answer, sock=_bound(path), limit=_MAX_BYTES)
    except (OSError, AttributeError, ConfigurationError) as error:
        logger.warning("toolexec backend and toolexec reload cannot reach this server: %s", error)
        yield None
        return
    try:
        yield path
    finally:
        server.close()
        _forget(path)
        await answers.aclose()


def sockets_in(state: Path) -> list[Path]:
    """Return the sockets of the servers of this user that run, or have run and were killed."""
    try:
        return sorted(_own_directory(state).glob("*.sock"))
    except (OSError, ConfigurationError):
        return []


async def ask_server(path: Path, request: JSONObject) -> JSONDict:
    """Return the answer of the server that listens at *path*.

    Raises BackendUnavailableError where none does, and as the server did.
    """
    try:
        with _Near(path) as near:
            reader, writer = await asyncio.open_unix_connection(near, limit=_MAX_BYTES)
    except (ConnectionRefusedError, FileNotFoundError) as error:
        _forget(path)
        raise BackendUnavailableError("the server has ended") from error
    except OSError as error:
        raise BackendUnavailableError(f"the server cannot be reached: {error.strerror or error}") from error
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
    except (OSError, ValueError) as error:
        raise BackendUnavailableError(f"the server has not answered: {error}") from error
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    if not line.endswith(b"\n"):
        raise BackendUnavailableError("the server ended, or refused to answer, before it was done")
    answer: dict[str, Any] = json.loads(line)
    if (error := answer.get("error")) is not None:
        kind = ConfigurationError if answer.get("usage") else BackendUnavailableError
        raise kind(error["message"], code=error["code"])
    return answer


class _Answers:
    """Answers one request of each connection."""

    def __init__(self, perform: Callable[[JSONObject], Awaitable[JSONDict]]) -> None:
        self._perform = perform
        self._open: set[asyncio.Task[None]] = set()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection, and close it."""
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            if len(self._open) <= _MOST and _is_ours(writer.get_extra_info("socket")):
                async with asyncio.timeout(_PATIENCE):
                    line = await reader.readline()
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            logger.debug("a request of an admin was not answered", exc_info=True)
        finally:
            self._open.discard(task)
            writer.close()

    async def _answer(self, line: bytes) -> JSONDict:
        try:
            request = json.loads(line)
            if not isinstance(request, dict):
                raise ConfigurationError("a request is an object of JSON")
            return await self._perform(request)
        except ToolExecError as error:
            return {"error": error.to_dict(), "usage": isinstance(error, ConfigurationError)}
        except (ValueError, RecursionError):
            return {"error": ConfigurationError("the request is not JSON").to_dict(), "usage": True}
        except Exception as error:
            logger.exception("a request of an admin failed")
            return {"error": ToolExecError(f"it failed with {type(error).__name__}; see the log").to_dict()}

    async def aclose(self) -> None:
        """Answer no more."""
        tasks = [*self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _forget(path: Path) -> None:
    """Remove the socket of a server that has ended, or was killed."""
    path.unlink(missing_ok=True)


def _bound(path: Path) -> socket.socket:
    """Return a socket at *path*, also where a process had one that was killed, and whose number this one has now."""
    _forget(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _Near(path) as near:
            listener.bind(near)
        path.chmod(0o600)  # no client can connect before it listens
    except BaseException:
        listener.close()
        raise
    return listener


def _own_directory(state: Path) -> Path:
    """Return the directory of the sockets, which only this user can enter; raises ConfigurationError for another."""
    directory = state / _DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise ConfigurationError(f"{directory} does not belong to the user of this process")
    if status.st_mode & 0o077:
        directory.chmod(0o700)
    return directory


def _is_ours(connection: socket.socket) -> bool:
    """Return whether this user, or root, is at the other end, where the system reports that."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return user in (os.geteuid(), 0)


class _Near:
    """The path of a socket, short enough for its address: through an open directory where it is long (Linux)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory = -1

    def __enter__(self) -> str:
        text = str(self._path)
        if len(os.fsencode(text)) <= _LONGEST_PATH or not Path("/proc/self/fd").is_dir():
            return text
        self._directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._directory >= 0:
            os.close(self._directory)
