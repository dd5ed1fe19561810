"""Puts the Python that runs this into a directory, so that it runs there in an image that has none, nor its libraries.

This file is the program of an init container, by its text: it needs the standard library of Python 3.9. The copy loads
nothing from the image around it: its loader is a copy as well, which looks for libraries in the directory alone. What
the copy starts is not affected, as no variable is set.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path

_CACHE = b"\0/etc/ld.so.cache\0"
_PLACES = ("/lib/{}/", "/usr/lib/{}/", "/usr/lib64/")
_LEFT_OUT = shutil.ignore_patterns(
    "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "config-*", "_tkinter.*"
)
_TRIAL = "import ctypes, json, select, socket, struct, subprocess, zlib; print(open('/proc/self/maps').read())"


def carry(target: Path) -> None:
    """Copy this Python, with its packages, to *target*: `bin/python3` is it.

    Raises SystemExit with what is in the way.
    """
    program = Path(sys.executable).resolve()
    text = program.read_bytes()
    loader, own = _interpreter(text), bytes(target / "ld.so")
    if loader and len(own) > len(loader):
        raise SystemExit(f"the directory {target} has too long a name for the loader {loader.decode()}")
    trees = _copy_trees(target)
    placed = target / "bin" / "python3"
    placed.parent.mkdir(parents=True, exist_ok=True)
    if loader:
        _write(target / "ld.so", _looking_in(Path(loader.decode()).read_bytes(), bytes(target)))
        for path in _libraries(program, loader.decode(), trees):
            shutil.copyfile(path, target / path.name)
        text = text.replace(loader + b"\0", own.ljust(len(loader), b"\0") + b"\0", 1)
    _write(placed, text)
    _try_out(placed, target)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o755)  # all users of the container start it


def _interpreter(text: bytes) -> bytes:
    """Return the path of the loader that an ELF file of 64 bits asks for; none for a static one."""
    if text[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("the Python of the image is not a program for Linux of 64 bits")
    (start,), (size, count) = struct.unpack_from("<Q", text, 32), struct.unpack_from("<HH", text, 54)
    for number in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", text, start + number * size)
        if kind == 3:  # PT_INTERP
            return text[offset : offset + length].rstrip(b"\0")
    return b""


def _looking_in(loader: bytes, target: bytes) -> bytes:
    """Return the loader of glibc that looks for libraries in *target*, and in no cache: paths of the same lengths."""
    found = 0
    for each in _PLACES:
        place = each.format(f"{os.uname().machine}-linux-gnu").encode()
        if b"\0" + place + b"\0" in loader and len(place) > len(target):
            found += 1
            loader = loader.replace(b"\0" + place + b"\0", b"\0" + target.ljust(len(place), b"/") + b"\0")
    if not found or _CACHE not in loader:
        raise SystemExit("the Python of the image needs a loader that is not glibc's; use an image of Debian or Fedora")
    return loader.replace(_CACHE, b"\0" + target.ljust(len(_CACHE) - 2, b"/") + b"\0")


def _copy_trees(target: Path) -> list[Path]:
    """Copy the standard library and the packages to where they are in the prefix; return where they were."""
    prefix = Path(sys.base_prefix).resolve()
    # Without the options that leave the packages out, as this program has them.
    asked = [sys.executable, "-E", "-s", "-c", "import sys; print(*sys.path, sep='\\n')"]
    known = subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")  # noqa: S603
    found: list[Path] = []
    for name in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), *filter(None, known)):
        path = Path(name).resolve()
        if path.is_dir() and prefix in path.parents and not any(each in (path, *path.parents) for each in found):
            found.append(path)
    for path in found:
        place = target / path.relative_to(prefix)
        shutil.copytree(path, place, ignore=_LEFT_OUT, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    return found


def _libraries(program: Path, loader: str, trees: list[Path]) -> list[Path]:
    """Return the libraries that the program and all modules in *trees* need, beside those in the trees."""
    modules = [str(path) for tree in trees for path in tree.rglob("*.so") if not path.name.startswith("_tkinter.")]
    listed = subprocess.run(  # noqa: S603
        [loader, "--list", str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LD_PRELOAD": ":".join(modules)},
        check=False,
    )
    if listed.returncode:
        raise SystemExit(f"the loader {loader} does not say which libraries the Python of the image needs")
    found: list[Path] = []
    for line in listed.stdout.decode().splitlines():
        path = Path(line.partition(" => ")[2].partition(" (")[0])
        if path.is_absolute() and not any(tree in path.resolve().parents for tree in trees):
            found.append(path)
    for path in [each for each in found if each.name == "libc.so.6"]:
        unwinder = path.with_name("libgcc_s.so.1")  # it is loaded when a thread is cancelled
        if unwinder not in found and unwinder.exists():
            found.append(unwinder)
    return found


def _try_out(python: Path, target: Path) -> None:
    """Raise SystemExit unless the copy runs, and has loaded nothing from elsewhere."""
    done = subprocess.run(  # noqa: S603
        [str(python), "-I", "-S", "-c", _TRIAL], capture_output=True, env={}, check=False
    )
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise SystemExit(f"the Python of the image cannot be moved: {said}")
    mapped = [line.split(None, 5) for line in done.stdout.decode().splitlines()]
    loaded = [Path(words[5]) for words in mapped if len(words) > 5 and "x" in words[1]]
    foreign = [path for path in loaded if path.is_absolute() and target not in path.parents]
    if foreign:
        raise SystemExit(f"the Python of the image cannot be moved: it still loads {foreign[0]}")


if __name__ == "__main__":
    carry(Path(sys.argv[1]))
