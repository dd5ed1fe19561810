"""What machines boot: images of the store that were built for them, or directories named by their path."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.containers.engine import Image
from toolexec.runtime.containers.microvm.machine import VmFiles
from toolexec.runtime.images.store import Hold, ImageStore, StoredImage

__all__ = ["MachineImages"]

_NAMES: Final = {"kernel": "vmlinuz", "vmlinux": "vmlinux", "initrd": "initrd.img", "rootfs": "rootfs.squashfs"}
_CHUNK: Final = 1 << 20


class MachineImages:
    """Finds the files of machines, and holds on to those that are in use. Blocks on the disk; for any thread."""

    def __init__(self, store: ImageStore | None = None) -> None:
        self._store = store
        self._stored: dict[str, StoredImage] = {}
        self._files: dict[str, VmFiles] = {}
        self._digests: dict[tuple[object, ...], str] = {}

    def resolve(self, name: str) -> Image:
        """Return the image *name*; a name that begins with `/` is the path of a directory.

        Raises SandboxUnavailableError for one that is not there, or that no machine can boot.
        """
        if name.startswith("/"):
            files = self._of_directory(Path(name))
            self._files[name] = files
            return Image(name=name, reference=name, digest=files.digest)
        self._store = self._store or ImageStore()
        plain = name.partition("@")[0]
        remedy = f"toolexec image build --kind vm --name {plain}"
        found = self._store.find(name)
        if found is None:
            raise SandboxUnavailableError(
                f"there is no image {name} here; make it with: {remedy}",
                details={"image": name, "remedy": remedy, "reason": f"there is no image {name} here"},
            )
        files = self._store.vm_files(found)
        if files is None:
            raise SandboxUnavailableError(
                f"the image {name} is none that a virtual machine can boot; make one with: {remedy}",
                details={"image": name, "remedy": remedy, "reason": f"no virtual machine can boot the image {name}"},
            )
        reference = str(found.root)
        self._stored[reference], self._files[reference] = found, files
        return Image(name=name, reference=reference, digest=files.digest)

    def files(self, image: Image) -> VmFiles:
        """Return what a resolved image consists of."""
        return self._files[image.reference]

    def hold(self, image: Image) -> Hold | None:
        """Keep a resolved image from being deleted; None for one that is not the store's. Raises
        SandboxUnavailableError when it is gone already."""
        found = self._stored.get(image.reference)
        return self._store.hold(found) if found is not None and self._store is not None else None

    def _of_directory(self, directory: Path) -> VmFiles:
        paths = {key: directory / name for key, name in _NAMES.items()}
        try:
            states = [path.stat() for path in paths.values()]
            mark = (str(directory), *((state.st_ino, state.st_size, state.st_mtime_ns) for state in states))
            if mark not in self._digests:
                self._digests[mark] = _digest([*paths.values()])
        except OSError as error:
            raise SandboxUnavailableError(
                f"the directory {directory} has no {' or no '.join(_NAMES.values())} that can be read: "
                f"{error.strerror or error}"
            ) from error
        return VmFiles(**paths, digest=self._digests[mark])


def _digest(paths: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.stat().st_size.to_bytes(8, "big"))
        with path.open("rb") as file:
            while data := file.read(_CHUNK):
                digest.update(data)
    return f"sha256:{digest.hexdigest()}"
