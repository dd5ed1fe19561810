"""The files of an image that virtual machines boot."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

VM_DIRECTORY: Final = "vm"
"""Where they are, beside the root file system of the image."""
VM_NAMES: Final = ("vmlinuz", "vmlinux", "initrd.img", "rootfs.squashfs")
"""What they are called."""
_FIELDS: Final = ("kernel", "vmlinux", "initrd", "rootfs")


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFiles:
    """What a machine boots: files of one image, none of which is ever written to.

    `kernel` is compressed (bzImage), `vmlinux` the same one as an ELF file, for a VMM that loads no other. `rootfs` is
    a read-only file system. `digest` is that of all of them.
    """

    kernel: Path
    vmlinux: Path
    initrd: Path
    rootfs: Path
    digest: str

    @classmethod
    def in_directory(cls, directory: Path, digest: str = "") -> Self:
        """Return the files that *directory* has; `digest` is as given, or computed from their content.

        Raises OSError when one is missing and no digest is given.
        """
        paths = {field: directory / name for field, name in zip(_FIELDS, VM_NAMES, strict=True)}
        return cls(**paths, digest=digest or _digest(paths))

    def paths(self) -> tuple[Path, ...]:
        """Return all of them."""
        return (self.kernel, self.vmlinux, self.initrd, self.rootfs)


def _digest(paths: dict[str, Path]) -> str:
    parts = [f"{field} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for field, path in paths.items()]
    return f"sha256:{hashlib.sha256(''.join(parts).encode()).hexdigest()}"
