"""What an ordinary user gets from a server on its machine: `served(kind, directory)` starts one and gives its place.

Docker and containerd belong to root, with a socket that the user's group may open; Podman is rootless, and a remote
runtime is a process of the user, with bubblewrap behind it. `sandbox(kind, place)` is the client, in any process.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.engines.docker import DockerDaemon
from tests.engines.images import TEST_IMAGE, test_image
from tests.workspace import usable

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.images.store import ImageStore

_ENGINES: Final = ("docker", "containerd", "podman")
SERVED: Final = (*(_ENGINES if usable(("docker",)) else ()), *usable(("remote",)))
"""The kinds whose programs a server starts."""
USER: Final = 65534
"""The number of the ordinary user, and of its group."""
_PLACE: Final = "/var/tmp"
"""Of which all above can be looked into."""


@contextmanager
def served(kind: str) -> Generator[Mapping[str, Any]]:
    """Start the server of *kind* and give the settings of a client of it, as JSON-able data; it ends with the context.

    Needs root. Skips, or in CI fails, where the engine is missing.
    """
    with ExitStack() as held:
        match kind:
            case "remote":
                yield held.enter_context(_afar())
            case "podman":
                from packages.containers.tests.engines.rootless import RootlessPodman

                service = RootlessPodman(_PLACE)
                held.callback(service.stop)
                service.start()
                service.load()
                yield {"host": service.host}
            case "docker":
                daemon = DockerDaemon(parent=_PLACE)
                held.callback(daemon.stop)
                daemon.start()
                daemon.load()
                _open_to_the_group(daemon.directory, Path(daemon.socket))
                yield {"host": daemon.host}
            case _:
                from packages.containers.tests.engines.containerd import ContainerdDaemon

                server = ContainerdDaemon(_PLACE)
                held.callback(server.stop)
                server.start()
                server.ctr("images", "import", str(ImageStore().archive(test_image())))
                _open_to_the_group(server.directory, Path(server.socket))
                yield {"address": server.socket, "snapshotter": server.snapshotter}


@contextmanager
def _afar() -> Generator[Mapping[str, Any]]:
    """Serve a runtime in a process of the user, which root lets import what only root may read."""
    from packages.remote.tests.processes import KEY, RemoteServer

    directory = Path(tempfile.mkdtemp(prefix="rm", dir=_PLACE))
    try:
        os.chown(directory, USER, USER)
        with RemoteServer(directory, "bubblewrap", image="host", user=USER) as server:
            yield {"endpoints": [server.endpoint], "key_id": KEY.id, "token": KEY.token, "signing_key": KEY.secret}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _open_to_the_group(directory: Path, socket: Path) -> None:
    """As an administrator lets a group use a daemon: what else is in its directory stays closed."""
    directory.chmod(0o711)
    os.chown(socket, 0, USER)
    socket.chmod(0o660)


def sandbox(kind: str, place: Mapping[str, Any]) -> SandboxBackend:
    """Return the client of the server of *kind* at *place*."""
    match kind:
        case "remote":
            from toolexec.remote import RemoteSettings
            from toolexec_remote import RemoteBackend

            return RemoteBackend(RemoteSettings(**place, sandbox="bubblewrap"))
        case "containerd":
            from toolexec_containers import ContainerdBackend, ContainerdConfig

            return ContainerdBackend(ContainerdConfig(image=TEST_IMAGE, **place))
        case _:
            from toolexec_containers import DockerBackend, DockerConfig

            return DockerBackend(DockerConfig(image=TEST_IMAGE, pull="never", **place))
