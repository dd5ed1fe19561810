"""The way out of a container that speaks over stdio itself: a socket of the proxy, which is mounted there."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.process.owner import is_orphan, this_owner
from toolexec.process.stream import SocketStream
from toolexec.runtime import guest
from toolexec.runtime.containers.network import Reach

if TYPE_CHECKING:
    from toolexec.runtime.egress.policy import EgressRecord

SOCKET: Final = "proxy.sock"
CERTIFICATE: Final = "ca.pem"
RELAY: Final = "relay.py"
_MOST_REFUSED: Final = 20
_WAITING: Final = 16
_PAUSE: Final = 0.05
_NAME: Final = "toolexec-way-"


class WayOut(Reach):
    """Serves the connections that come over the socket in `directory`, until it is closed; `Network.reach` makes what
    serves them.

    Beside the socket are the certificate of the proxy and the relay that leads there. Only this user reaches the
    directory by its path; where it is mounted, each user does. `open` comes first, and `aclose` must be called.
    """

    def __init__(self) -> None:
        super().__init__()
        self._root: Path | None = None
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._refused: dict[str, str] = {}

    @property
    def directory(self) -> Path:
        """What is to be mounted."""
        assert self._root is not None
        return self._root / "way"

    def note(self, record: EgressRecord) -> None:
        """Keep which hosts were refused, and why: at most twenty."""
        if not record.allowed and len(self._refused) < _MOST_REFUSED:
            self._refused[f"{record.host}:{record.port}"] = record.reason

    @property
    def refused(self) -> dict[str, str]:
        """The hosts that were asked for and refused, with their ports, and why."""
        return dict(self._refused)

    async def open(self) -> None:
        """Make the directory and serve from now on. Raises OSError where that cannot be."""
        self._root = await asyncio.to_thread(self._make)
        descriptor = os.open(self.directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET}")  # a path of its own may be too long for one
            (self.directory / SOCKET).chmod(0o666)
        finally:
            os.close(descriptor)
        self._listener.listen(_WAITING)
        self._listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def aclose(self) -> None:
        """End the connections, and remove the directory; twice is fine."""
        tasks = [*self._serving, *([self._accepting] if self._accepting is not None else [])]
        self._accepting = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._listener is not None:
            self._listener.close()
        root, self._root = self._root, None
        if root is not None:
            await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)

    def _make(self) -> Path:
        _sweep(Path(tempfile.gettempdir()))
        root = Path(tempfile.mkdtemp(prefix=f"{_NAME}{this_owner()}."))
        way = root / "way"
        way.mkdir(mode=0o755)
        for name, content in (
            (CERTIFICATE, self.proxy.ca_pem),
            (RELAY, (Path(guest.__file__).parent / RELAY).read_bytes()),
        ):
            (way / name).write_bytes(content)
            (way / name).chmod(0o644)
        way.chmod(0o755)
        return root

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError:  # it has hung up already, or this process has too many files open
                await asyncio.sleep(_PAUSE)
                continue
            task = loop.create_task(self.proxy.serve(SocketStream(connection)))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)


def _sweep(place: Path) -> None:
    """Remove what processes of this user that were killed have left."""
    for path in place.glob(f"{_NAME}*"):
        owner = path.name.removeprefix(_NAME).partition(".")[0]
        with suppress(OSError):  # another one removes it, too
            if is_orphan(owner) and path.lstat().st_uid == os.geteuid():
                shutil.rmtree(path, ignore_errors=True)
