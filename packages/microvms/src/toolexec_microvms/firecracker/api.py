"""Firecracker's API: requests in JSON over the Unix socket of one process, one at a time, each with a time limit."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from toolexec.containers import JSONDict, JSONObject
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import SocketStream
from toolexec_microvms.jail import open_inside

_QUICK: Final = 10.0
_SLOW: Final = 120.0
_LONGEST: Final = 1 << 16
_SCARCE: Final = ("os error 11)", "os error 12)", "os error 24)", "os error 28)", "os error 122)")
"""EAGAIN, ENOMEM, EMFILE, ENOSPC, EDQUOT: what the host has too little of now, it may have later."""


class FirecrackerAPI:
    """The API of one Firecracker, over *connection*, which it takes over; used by one task. `close` it in the end.

    Every method raises SandboxUnavailableError when Firecracker refuses, with the `fault` that it gives and the HTTP
    `status` in the details, and when it does not answer, or answers what is not HTTP: a process that was broken out of
    may send anything. The metadata service is never configured.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._stream = SocketStream(connection)
        self._connection = connection
        self._buffer = b""

    async def version(self) -> str:
        """Return the version of what answers, such as "1.12.1"."""
        return str((await self._call("GET", "/version")).get("firecracker_version", ""))

    async def state(self) -> str:
        """Return "Not started", "Running" or "Paused"."""
        return str((await self._call("GET", "/")).get("state", ""))

    async def set_machine(self, *, cpus: int, memory_mib: int) -> None:
        """Set the size of a machine that has not been started, as all the next methods do."""
        size = {"vcpu_count": cpus, "mem_size_mib": memory_mib, "smt": False, "track_dirty_pages": False}
        await self._call("PUT", "/machine-config", size)

    async def set_boot(self, kernel: str, initrd: str, arguments: str) -> None:
        """Set what it boots, by paths in the jail; "" for no *initrd*."""
        more = {"initrd_path": initrd} if initrd else {}
        await self._call("PUT", "/boot-source", {"kernel_image_path": kernel, "boot_args": arguments, **more})

    async def add_drive(self, name: str, path: str, *, bytes_per_second: int, operations_per_second: int) -> None:
        """Give it a block device that it cannot write to, which is read at most at these rates."""
        limiter = {
            "bandwidth": {"size": bytes_per_second, "refill_time": 1000},
            "ops": {"size": operations_per_second, "refill_time": 1000},
        }
        drive = {"drive_id": name, "path_on_host": path, "is_root_device": False, "is_read_only": True}
        await self._call("PUT", f"/drives/{name}", {**drive, "cache_type": "Unsafe", "rate_limiter": limiter})

    async def set_vsock(self, path: str, cid: int) -> None:
        """Give it a vsock device, which the host reaches by the socket *path* in the jail."""
        await self._call("PUT", "/vsock", {"guest_cid": cid, "uds_path": path})

    async def set_entropy(self, *, bytes_per_second: int) -> None:
        """Give it a source of randomness, read at most at this rate."""
        limiter = {"bandwidth": {"size": bytes_per_second, "refill_time": 1000}}
        await self._call("PUT", "/entropy", {"rate_limiter": limiter})

    async def set_balloon(self) -> None:
        """Give it a balloon, empty now, which gives memory back before the guest kills for it."""
        balloon = {"amount_mib": 0, "deflate_on_oom": True, "stats_polling_interval_s": 0}
        await self._call("PUT", "/balloon", balloon)

    async def start(self) -> None:
        """Start it."""
        await self._call("PUT", "/actions", {"action_type": "InstanceStart"}, seconds=_SLOW)

    async def pause(self) -> None:
        """Stop its processors."""
        await self._call("PATCH", "/vm", {"state": "Paused"}, seconds=_SLOW)

    async def resume(self) -> None:
        """Let its processors go on."""
        await self._call("PATCH", "/vm", {"state": "Resumed"}, seconds=_SLOW)

    async def save(self, state: str, memory: str) -> None:
        """Write the whole of a paused machine to two new files, by paths in the jail."""
        files = {"snapshot_type": "Full", "snapshot_path": state, "mem_file_path": memory}
        await self._call("PUT", "/snapshot/create", files, seconds=_SLOW)

    async def load(self, state: str, memory: str) -> None:
        """Have a fresh Firecracker go on from two such files, the memory of which it maps and does not change."""
        backend = {"backend_type": "File", "backend_path": memory}
        await self._call(
            "PUT",
            "/snapshot/load",
            {"snapshot_path": state, "mem_backend": backend, "resume_vm": True},
            seconds=_SLOW,
        )

    def close(self) -> None:
        """Close the connection; twice is fine."""
        self._connection.close()

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, seconds: float = _QUICK
    ) -> JSONObject:
        try:
            async with asyncio.timeout(seconds):
                await self._send(method, path, body)
                status, content = await self._receive()
        except TimeoutError as error:
            raise _lost(f"{method} {path} is not answered within {seconds:g} s") from error
        except OSError as error:
            raise _lost(f"{method} {path} is not answered: {error.strerror or error}") from error
        if 200 <= status < 300:
            return content
        fault = str(content.get("fault_message", ""))[:1000] or "no reason given"
        raise SandboxUnavailableError(
            f"Firecracker refuses {method} {path} ({status}): {fault}",
            retryable=any(number in fault for number in _SCARCE),
            details={"status": status, "fault": fault, "request": f"{method} {path}"},
        )

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        await self._stream.write(f"{head}\r\n".encode("ascii") + content)

    async def _receive(self) -> tuple[int, JSONObject]:
        while b"\r\n\r\n" not in self._buffer:
            await self._more()
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ", 2)
        if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdecimal():
            raise ConnectionError(f"the answer is not HTTP: {first[:100]!r}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > _LONGEST:
            raise ConnectionError(f"the answer has a length of {length[:20]!r}")
        while len(self._buffer) < int(length):
            await self._more()
        content, self._buffer = self._buffer[: int(length)], self._buffer[int(length) :]
        return int(words[1]), _parse(content)

    async def _more(self) -> None:
        data = await self._stream.read()
        if not data:
            raise ConnectionResetError("it has hung up")
        self._buffer += data
        if len(self._buffer) > 2 * _LONGEST:
            raise ConnectionError("the answer has no end")


async def connect_inside(directory: Path, name: str) -> socket.socket:
    """Return a connection to the socket *name* in the *directory* of a jail, however long its path is.

    What runs in the jail may have put a link there: that is not followed. Raises OSError.
    """
    found = open_inside(directory, name, stat.S_IFSOCK)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, f"/proc/self/fd/{found}")
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(found)
    return connection


def _parse(content: bytes) -> JSONObject:
    with suppress(ValueError, RecursionError):
        found = json.loads(content or b"{}")
        if isinstance(found, dict):
            return found
        return JSONDict()
    raise ConnectionError(f"the answer is not JSON: {content[:100]!r}")


def _lost(why: str) -> SandboxUnavailableError:
    return SandboxUnavailableError(
        f"the API of Firecracker cannot be used: {why}", retryable=True, details={"reason": why}
    )
