"""What makes an image bootable: a kernel, a first file system that finds the root, and the root in one file.

The kernel and its modules are Debian's, from the mirror that the image was installed from. Two builds from the same
packages are the same, byte for byte.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import re
import shutil
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.process.steps import KILLED, OnStep, run_command, run_work
from toolexec.runtime.guest import machine
from toolexec.runtime.images.deb import Packages
from toolexec.runtime.images.debian import build_environment
from toolexec.runtime.images.kernel import module_name, module_order, uncompress
from toolexec.runtime.images.vm_files import VmFiles

_META: Final = "linux-image-cloud-amd64"
_IMAGE: Final = re.compile(r"linux-image-(\d\S*)")
_BUSYBOX: Final = "busybox-static"
_MODULES: Final = (
    *("virtio_mmio", "virtio_pci", "virtio_blk", "virtio_console", "virtio_rng", "virtio_balloon"),
    *("vmw_vsock_virtio_transport", "squashfs"),
)
# Where these modules are, and what they need; thousands of others are not read.
_USED: Final = re.compile(r"/kernel/(?:drivers/(?:virtio|block|char)|net/vmw_vsock|fs/squashfs|lib|crypto)/")
_PLACE: Final = "usr/lib/toolexec"
_INIT: Final = "usr/sbin/toolexec-init"
_NOT_IN_IMAGE: Final = ("zygote",)
_RUN: Final = f"""\
#!/usr/bin/python3 -IS
import sys
sys.path.insert(0, "/{_PLACE}")
from machine.init import main
main()
"""
_FIRST: Final = f"""\
#!/bin/busybox sh
# Loads what the root file system needs, and goes on in it.
fail() {{
    echo "toolexec-initrd: $*" >/dev/console
    /bin/busybox reboot -f
}}
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
while read -r module; do
    /bin/busybox insmod "/modules/$module" || fail "cannot load $module"
done </modules/order
tries=0
until [ -b /dev/vda ]; do
    tries=$((tries + 1))
    [ "$tries" -le 500 ] || fail "there is no virtio disk"
    /bin/busybox usleep 20000
done
/bin/busybox mount -t squashfs -o ro /dev/vda /system || fail "cannot mount the disk"
/bin/busybox umount /sys
/bin/busybox umount /proc
/bin/busybox mount --move /dev /system/dev
exec /bin/busybox switch_root /system /{_INIT}
"""
_SQUASH: Final = ("-noappend", "-all-root", "-mkfs-time", "0", "-no-xattrs", "-no-exports", "-no-progress", "-quiet")
_SQUASH_LZ4: Final = ("-comp", "lz4")
"""What an emulated processor unpacks with the least work."""
_USUAL_SECONDS: Final = 10.0
_CAP_SECONDS: Final = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelParts:
    """What Debian's packages gave: `kernel` as a bzImage, `modules` by name in the order of loading, `busybox`.

    `release` is what `uname -r` says; `versions` are those of the packages.
    """

    release: str
    kernel: bytes
    modules: dict[str, bytes]
    busybox: bytes
    versions: dict[str, str] = field(default_factory=dict[str, str])


def need_programs() -> None:
    """Raise ConfigurationError when something that is needed to make the files is not installed."""
    if shutil.which("mksquashfs") is None:
        raise ConfigurationError(
            "building an image for virtual machines needs mksquashfs; install it with: apt-get install squashfs-tools"
        )


@cache
def init_digest() -> str:
    """Return another string for each version of the first process that an image has in it, and of how it is packed."""
    parts = [*(f"{name}\n{text}" for name, text in sorted(_init_sources().items())), _RUN, _FIRST]
    parts += [*_MODULES, *_SQUASH, *_SQUASH_LZ4]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def add_init(root: Path) -> None:
    """Put the first process of a machine into the tree *root*. Raises OSError."""
    place = root / _PLACE / "machine"
    place.mkdir(parents=True)
    for directory in (root / _PLACE, place):
        directory.chmod(0o755)
    for name, text in _init_sources().items():
        (place / name).write_text(text, "utf-8")
        (place / name).chmod(0o644)
    (root / _INIT).write_text(_RUN)
    (root / _INIT).chmod(0o755)


def fetch_kernel(root: Path, *, progress: OnStep | None = None) -> KernelParts:
    """Return the kernel for the Debian in the tree *root*, whose lists of packages are there still.

    Raises ConfigurationError when it cannot be had.
    """
    packages = Packages(root)
    meta = packages.find(_META)
    match = _IMAGE.match(meta.depends)
    if match is None:
        raise ConfigurationError(f"the package {_META} of this release names no kernel")
    image, busybox = packages.find(match[0]), packages.find(_BUSYBOX)
    kernel_path = f"boot/vmlinuz-{match[1]}"

    def wanted(path: str) -> bool:
        return path == kernel_path or (module_name(path) != "" and _USED.search(path) is not None)

    found = packages.fetch(image, wanted, progress=progress)
    program = packages.fetch(busybox, lambda path: path in ("bin/busybox", "usr/bin/busybox"), progress=progress)
    if kernel_path not in found or not program:
        raise ConfigurationError(f"the packages {image.name} and {busybox.name} lack a kernel or a busybox")
    modules = {
        module_name(path): lzma.decompress(content) if path.endswith(".xz") else content
        for path, content in found.items()
        if path != kernel_path
    }
    order = module_order(_MODULES, modules)
    return KernelParts(
        release=match[1],
        kernel=found[kernel_path],
        modules={name: modules[name] for name in order},
        busybox=next(iter(program.values())),
        versions={package.name: package.version for package in (image, busybox)},
    )


def make_files(root: Path, parts: KernelParts, directory: Path, work: Path, progress: OnStep | None) -> VmFiles:
    """Write the files of a machine into the new *directory*: *root* is its root file system, in its final state.

    Raises ConfigurationError when that fails, and OSError.
    """
    moment = (root / "usr").stat().st_mtime_ns
    root.chmod(0o755)
    os.utime(root, ns=(moment, moment))  # the root itself is in the file, too
    directory.mkdir(mode=0o700)
    (directory / "vmlinuz").write_bytes(parts.kernel)
    (directory / "initrd.img").write_bytes(_first_file_system(parts))
    elf = run_work(
        lambda: uncompress(parts.kernel),
        name="build",
        message="unpacking the kernel",
        usual_seconds=8,
        progress=progress,
    )
    (directory / "vmlinux").write_bytes(elf)
    code, output = run_command(
        ["mksquashfs", str(root), str(directory / "rootfs.squashfs"), *_SQUASH, *_SQUASH_LZ4],
        directory=work,
        environment=build_environment(),
        name="build",
        message="packing the root file system",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code != 0:
        why = "it took too long" if code == KILLED else output[-600:] or "it said nothing"
        raise ConfigurationError(f"the root file system could not be packed; {why}", details={"output": output})
    for path in directory.iterdir():
        path.chmod(0o644)
    return VmFiles.in_directory(directory)


def _init_sources() -> dict[str, str]:
    """Return the modules of the first process, by file name."""
    place = Path(machine.__file__).parent
    return {path.name: path.read_text("utf-8") for path in sorted(place.glob("*.py")) if path.stem not in _NOT_IN_IMAGE}


def _first_file_system(parts: KernelParts) -> bytes:
    """Return an archive in the `newc` format of cpio, which the kernel unpacks into memory."""
    order = "".join(f"{name}.ko\n" for name in parts.modules).encode()
    entries: list[tuple[str, int, bytes]] = [
        *((name, 0o040755, b"") for name in ("bin", "dev", "modules", "proc", "sys", "system")),
        ("init", 0o100755, _FIRST.encode()),
        ("bin/busybox", 0o100755, parts.busybox),
        ("modules/order", 0o100644, order),
        *((f"modules/{name}.ko", 0o100644, content) for name, content in parts.modules.items()),
        ("TRAILER!!!", 0, b""),
    ]
    made = bytearray()
    for number, (name, mode, content) in enumerate(entries, 1):
        label = name.encode() + b"\0"
        # inode, mode, uid, gid, links, time, size, four numbers of devices, length of the name, checksum
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(label), 0)
        made += b"070701" + b"".join(b"%08X" % value for value in fields) + label
        made += b"\0" * (-len(made) % 4) + content
        made += b"\0" * (-len(made) % 4)
    return bytes(made)
