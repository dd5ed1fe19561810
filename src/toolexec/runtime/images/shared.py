"""Images that root shares with all users of a machine: one copy, verified by its digest, which only root writes."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path

from toolexec.errors import ConfigurationError
from toolexec.runtime.images import store as stores
from toolexec.runtime.images.store import Facts, ImageStore, StoredImage
from toolexec.runtime.images.verify import verify_image
from toolexec.runtime.images.vm_files import VM_DIRECTORY, VmFiles


def machine_store() -> ImageStore:
    """Return the images of this machine. Raises ConfigurationError for another user than root, who may only read."""
    if os.geteuid() != 0:
        raise ConfigurationError(f"only root shares images, in {stores.MACHINE_DIRECTORY}; use sudo")
    return ImageStore(stores.MACHINE_DIRECTORY, shared=True)


def share_image(store: ImageStore, image: StoredImage) -> StoredImage:
    """Copy *image* of *store* to where all users of this machine find it, in place of one of its name, and return that.

    Everything is read and compared with the digest that the image was kept with, and so is the copy. Its archive is
    made as well, for the daemons that load it. Blocks: some seconds for each 100 MB. Raises ConfigurationError for
    another user than root, and for an image that was changed on the disk.
    """
    target = machine_store()
    found = verify_image(store, image)
    if not found.ok:
        raise ConfigurationError(f"the image {image.name} was changed on the disk: {'; '.join(found.problems)}")
    facts = Facts(**{each.name: getattr(image, each.name) for each in fields(Facts)})
    with store.hold(image), target.scratch() as work:
        root = _copied(image.root, work / "rootfs")
        vm = None
        if image.vm_digest:
            vm = VmFiles.in_directory(_copied(image.root.with_name(VM_DIRECTORY), work / VM_DIRECTORY))
        made = target.add(image.name, root, facts, vm=vm)
    if (made.digest, made.vm_digest) != (image.digest, image.vm_digest):
        target.remove(image.name)
        raise ConfigurationError(f"the copy of {image.name} has the digest {made.digest}, not {image.digest}")
    target.archive(made)
    return made


def _copied(source: Path, target: Path) -> Path:
    """Return *target*, a copy of the directory *source* with all its links, modes and times."""
    command = [shutil.which("cp") or "/bin/cp", "-a", "--reflink=auto", str(source), str(target)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)  # noqa: S603 - paths of ours
    if done.returncode:
        raise ConfigurationError(f"{source} cannot be copied: {done.stderr.strip()[:300]}")
    return target
