"""What machines boot: images of the store that were built for them, or directories named by their path."""

from __future__ import annotations

from pathlib import Path

from toolexec.containers import ImageStore, StoredImage
from toolexec.errors import SandboxUnavailableError
from toolexec.machines import Hold, VmFiles
from toolexec.sandbox import Image


class MachineImages:
    """Finds the files of machines, and holds on to those that are in use. Blocks on the disk; for any thread."""

    def __init__(self, store: ImageStore | None = None) -> None:
        self._store = store
        self._stored: dict[str, StoredImage] = {}
        self._files: dict[str, VmFiles] = {}

    def resolve(self, name: str) -> Image:
        """Return the image *name*; one that begins with `/` is the path of a directory, which is read once.

        Raises SandboxUnavailableError for one that is not there, or that no machine can boot.
        """
        if name.startswith("/"):
            files = self._files.get(name) or _of_directory(name)
            self._files[name] = files
            return Image(name=name, reference=name, digest=files.digest)
        self._store = self._store or ImageStore()
        found = self._store.find(name)
        if found is None:
            raise self._store.missing(name, "--kind vm ")
        try:
            files = self._store.vm_files(found)
        except SandboxUnavailableError as error:
            reason = f"the image {name} has no kernel, which a virtual machine needs"
            command = f"toolexec image build --kind vm --name {name.partition('@')[0]} --replace"
            error.details.update({"reason": reason, "remedy": command})
            raise
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


def _of_directory(name: str) -> VmFiles:
    try:
        return VmFiles.in_directory(Path(name))
    except OSError as error:
        raise SandboxUnavailableError(
            f"{name} has not all that a virtual machine boots: {error.filename}: {error.strerror or error}"
        ) from error
