"""Root file systems of containers that no daemon keeps: images of the store, or directories named by their path."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from toolexec.containers import WORK, ImageStore, StoredImage
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import Hold
from toolexec.sandbox import Image

_SYSTEM: Final = (
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",  # noqa: S108 - not to be used
    "/usr",
    "/var",
    "/var/lib",
)
"""Directories of the host that neither are nor contain the root file system of a container."""
_LOOKED_FOR: Final = ("usr/bin/python3", "bin/python3", "usr/local/bin/python3")


class RootFilesystems:
    """Finds root file systems, and holds on to those that are in use. Blocks on the disk; for any thread."""

    def __init__(self, store: ImageStore | None = None) -> None:
        self._store = store
        self._stored: dict[str, StoredImage] = {}

    def resolve(self, name: str) -> Image:
        """Return the image *name*, whose reference is the path of its root; a name that begins with `/` is such a path
        itself.

        Raises SandboxUnavailableError for one that is not there, and for a directory of the host's own system.
        """
        if name.startswith("/"):
            return Image(name=name, reference=str(_own_root(name)))
        self._store = self._store or ImageStore()
        found = self._store.find(name)
        if found is None:
            raise self._store.missing(name)
        root = str(found.root)
        self._stored[root] = found
        return Image(name=name, reference=root, digest=found.digest)

    def hold(self, image: Image) -> Hold | None:
        """Keep the root of a resolved image from being deleted; None for one that is not the store's.

        Raises SandboxUnavailableError when it is gone already.
        """
        found = self._stored.get(image.reference)
        if found is not None and self._store is not None:
            return self._store.hold(found)
        if not Path(image.reference).is_dir():
            raise SandboxUnavailableError(f"the root file system {image.reference} is gone; make it again")
        return None


def _own_root(name: str) -> Path:
    """Return the directory *name*, if that is a root file system and none of this system's own."""
    try:
        root = Path(name).resolve(strict=True)
        here = root.stat()
    except (OSError, RuntimeError) as error:
        raise SandboxUnavailableError(
            f"there is no root file system {name}; unpack one there, or name an image of the store"
        ) from error
    for place in map(Path, _SYSTEM):
        with suppress(OSError):
            if os.path.samestat(here, place.stat()) or root in place.resolve().parents:
                raise SandboxUnavailableError(
                    f"{name} is a part of this system itself, which code must not see; give the directory of a root "
                    "system that was made for it, or name an image of the store"
                )
    if not any(os.path.lexists(root / program) for program in _LOOKED_FOR):
        raise SandboxUnavailableError(
            f"the directory {name} has no root file system with python3; unpack one there, or name an image of the "
            "store"
        )
    if not (root / WORK.lstrip("/")).is_dir():  # who made it there would change what others use, too
        raise SandboxUnavailableError(
            f"the root file system {name} has no directory for the code to work in; make it: mkdir -m 755 {root}{WORK}"
        )
    return root
