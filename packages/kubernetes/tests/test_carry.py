"""The Python that is brought along, really moved: from one image into a root that has nothing but a loader of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from tests.engines.images import test_image
from tests.engines.programs import require_program

from toolexec_kubernetes.brought import BROUGHT
from toolexec_kubernetes.carry import carry

pytestmark = pytest.mark.full
_TEXT = files("toolexec_kubernetes").joinpath("carry.py").read_text("utf-8")
_LINKS = ("bin", "lib", "lib64", "sbin")
_CODE = """
import ctypes, humanize, json, os, sqlite3, ssl, subprocess, sys, threading
thread = threading.Thread(target=os.getpid)
thread.start()
thread.join()
again = subprocess.run([sys.executable, "-c", "print(6 * 7)"], stdout=subprocess.PIPE, check=True).stdout
mapped = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
print(json.dumps({
    "root": sorted(os.listdir("/")),
    "again": again.decode().strip(),
    "foreign": sorted(path for path in mapped if not path.startswith("/toolexec/") and path.startswith("/")),
    "prefix": sys.prefix,
    "variables": sorted(name for name in os.environ if name.startswith("LD_")),
}))
"""


def boxed(
    place: Path, *words: str, root: Path | None = None, writable: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run *words* with *place* at `/toolexec`, in the image whose root is *root*, or (None) in one that is empty."""
    found = [require_program("bwrap", "bubblewrap"), "--unshare-all", "--die-with-parent", "--clearenv"]
    found += ["--setenv", "PATH", "/usr/bin:/bin", "--proc", "/proc", "--dev", "/dev"]
    found += ["--bind" if writable else "--ro-bind", str(place), BROUGHT]
    if root is not None:
        found += ["--ro-bind", str(root / "usr"), "/usr", "--ro-bind", str(root / "etc"), "/etc"]
        for name in _LINKS:
            found += ["--symlink", f"usr/{name}", f"/{name}"]
    return subprocess.run([*found, "--", *words], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the directory that the Python of the test's image was brought to."""
    place = tmp_path_factory.mktemp("carried")
    done = boxed(place, "python3", "-I", "-S", "-B", "-c", _TEXT, BROUGHT, root=test_image().root, writable=True)
    assert done.returncode == 0, done.stderr
    return place


def test_it_runs_where_there_is_nothing_else(carried: Path) -> None:
    """Packages, modules with libraries of their own, threads and more processes work in an empty root, all from the one
    directory, and no variable is set that others would see."""
    done = boxed(carried, f"{BROUGHT}/bin/python3", "-c", _CODE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "root": ["dev", "proc", "toolexec"],
        "again": "42",
        "foreign": [],
        "prefix": BROUGHT,
        "variables": [],
    }


def test_it_takes_nothing_of_the_image_around_it(carried: Path) -> None:
    """In an image that has the same libraries it loads its own."""
    code = "import ssl; print([line for line in open('/proc/self/maps') if '.so' in line and '/toolexec/' not in line])"
    done = boxed(carried, f"{BROUGHT}/bin/python3", "-c", code, root=test_image().root)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_a_directory_whose_name_is_too_long_is_refused(tmp_path: Path) -> None:
    """The name takes the place of the loader's in the program, so it must fit; that is known before anything is copied."""
    place = tmp_path / ("x" * 40)
    with pytest.raises(SystemExit, match="too long a name for the loader"):
        carry(place)
    assert not place.exists()


def test_a_python_of_another_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that stands in for Python, and a program of 32 bits, are named as what they are; nothing is copied."""
    program = tmp_path / "python3"
    monkeypatch.setattr(sys, "executable", str(program))
    for text in (b"#!/bin/sh\n", b"\x7fELF\x01\x01" + bytes(60)):
        program.write_bytes(text)
        with pytest.raises(SystemExit, match="not a program for Linux of 64 bits"):
            carry(tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_what_cannot_be_moved_is_said(tmp_path: Path) -> None:
    """A loader that looks elsewhere than in glibc's directories, or something that is not a program, is refused with the reason."""
    code = f"{_TEXT.rpartition('if __name__')[0]}\nimport sys\n"
    image = test_image().root
    for call, said in (
        ("_looking_in(b'no loader of glibc', b'/toolexec')", "not glibc's"),
        ("_interpreter(b'#!/bin/sh')", "not a program for Linux of 64 bits"),
        ("_try_out(Path('/usr/bin/python3'), Path('/toolexec'))", "still loads /usr/"),
    ):
        done = boxed(tmp_path, "python3", "-I", "-S", "-c", f"{code}{call}", root=image)
        assert done.returncode == 1
        assert said in done.stderr, done.stderr
