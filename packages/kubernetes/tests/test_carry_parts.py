"""The parts of carrying a Python along, with small programs of this machine in the place of Python."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolexec_kubernetes import carry

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the loader of glibc")
_SCRIPT = "#!/bin/sh\n"


@pytest.fixture
def target() -> Iterator[Path]:
    """Give an empty directory whose name is short enough for the loader."""
    place = Path(tempfile.mkdtemp(prefix="c", dir="/tmp"))  # that of tmp_path is too long
    yield place
    shutil.rmtree(place)


def script(path: Path, text: str) -> Path:
    path.write_text(_SCRIPT + text, "utf-8")
    path.chmod(0o755)
    return path


def true() -> Path:
    return Path(shutil.which("true") or "/usr/bin/true").resolve()


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the prefix of a Python that consists of a library of two modules, a test and a package."""
    library = tmp_path / "prefix" / "lib" / "python"
    for name in ("os.py", "json/decoder.py", "test/test_os.py", "site-packages/own.py"):
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(name, "utf-8")
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "prefix"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(library))
    return tmp_path / "prefix"


def test_a_program_is_moved_with_its_loader_and_libraries(
    prefix: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy starts by its own loader, all libraries it needs are those beside it, and tests are left out."""
    monkeypatch.setattr(sys, "executable", str(true()))
    carry.carry(target)
    placed = target / "bin" / "python3"
    assert carry._interpreter(placed.read_bytes()).rstrip(b"\0") == bytes(target / "ld.so")
    assert subprocess.run([str(placed)], check=False).returncode == 0
    listed = subprocess.run([str(target / "ld.so"), "--list", str(placed)], capture_output=True, text=True, check=True)
    libraries = [line.partition(" => ")[2] for line in listed.stdout.splitlines() if " => " in line]
    assert libraries
    assert all(each.startswith(f"{target}/") for each in libraries)
    assert (target / "libc.so.6").is_file()
    found = {str(path.relative_to(target / "lib/python")) for path in (target / "lib").rglob("*.py")}
    assert found == {"os.py", "json/decoder.py", "site-packages/own.py"}


def test_packages_are_copied_once_and_those_elsewhere_never(
    prefix: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories of `sys.path` are copied if they are in the prefix, and not in a directory that is copied already."""
    (prefix / "more").mkdir()
    (prefix / "more" / "extra.py").write_text("", "utf-8")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    paths = (prefix / "more", prefix / "lib/python/site-packages", elsewhere, prefix / "missing.zip")
    program = script(tmp_path / "python3", "".join(f"echo {path}\n" for path in paths))
    monkeypatch.setattr(sys, "executable", str(program))
    assert carry._copy_trees(target) == [prefix / "lib/python", prefix / "more"]
    assert (target / "more" / "extra.py").is_file()
    assert sorted(path.name for path in target.iterdir()) == ["lib", "more"]


def test_libraries_of_the_copied_trees_are_not_copied_again() -> None:
    """A library that the loader finds in a tree is there already; the rest has the unwinder of the C library with it."""
    loader = carry._interpreter(true().read_bytes()).decode()
    found = carry._libraries(true(), loader, [])
    (libc,) = [path for path in found if path.name == "libc.so.6"]
    assert (libc.with_name("libgcc_s.so.1") in found) == libc.with_name("libgcc_s.so.1").exists()
    assert carry._libraries(true(), loader, [libc.resolve().parent]) == []


def test_a_loader_that_fails_is_named(tmp_path: Path) -> None:
    loader = script(tmp_path / "loader", "exit 3\n")
    with pytest.raises(SystemExit, match=r"loader .*/loader does not say which libraries"):
        carry._libraries(true(), str(loader), [])


def test_a_static_program_asks_for_no_loader() -> None:
    """Without an entry for a loader a program has none."""
    header = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    assert carry._interpreter(bytes(header)) == b""


def test_a_static_program_is_copied_alone(
    prefix: Path, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that asks for no loader gets none, and no libraries; that it starts is tried all the same."""
    tried: list[Path] = []
    monkeypatch.setattr(carry, "_interpreter", lambda _: b"")
    monkeypatch.setattr(carry, "_try_out", lambda placed, _: tried.append(placed))
    monkeypatch.setattr(sys, "executable", str(true()))
    carry.carry(target)
    assert sorted(path.name for path in target.iterdir()) == ["bin", "lib"]
    assert (target / "bin/python3").read_bytes() == true().read_bytes()
    assert tried == [target / "bin/python3"]


def test_a_loader_of_another_library_is_refused(target: Path) -> None:
    """Neither one without the directories of glibc nor one without its cache can be changed."""
    loader = Path(carry._interpreter(true().read_bytes()).decode()).read_bytes()
    moved = carry._looking_in(loader, bytes(target))
    assert len(moved) == len(loader)
    assert carry._CACHE not in moved
    assert b"\0" + bytes(target) + b"/" in moved
    for text in (b"musl", loader.replace(carry._CACHE, b"\0/xxx/ld.so.cache\0")):
        with pytest.raises(SystemExit, match="not glibc's"):
            carry._looking_in(text, bytes(target))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("echo no module json >&2; exit 1\n", "cannot be moved: no module json"),
        ("echo '7f00-7f01 r-xp 00000000 08:01 7 /usr/lib/libz.so.1'\n", "still loads /usr/lib/libz.so.1"),
    ],
)
def test_a_copy_that_does_not_run_by_itself_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """The error has the end of what it said, or the library from elsewhere."""
    with pytest.raises(SystemExit, match=said):
        carry._try_out(script(tmp_path / "python3", text), tmp_path)


def test_only_code_from_elsewhere_counts(tmp_path: Path) -> None:
    """Data that is mapped from elsewhere, memory without a file, and what the system gives are accepted."""
    lines = (
        f"7f00-7f01 r-xp 00000000 08:01 7 {tmp_path}/libc.so.6",
        "7f01-7f02 r--p 00000000 08:01 7 /usr/lib/locale/archive",
        "7f02-7f03 r-xp 00000000 00:00 0",
        "7f03-7f04 r-xp 00000000 00:00 0 [vdso]",
    )
    program = script(tmp_path / "python3", "".join(f"echo '{line}'\n" for line in lines))
    carry._try_out(program, tmp_path)
    with pytest.raises(SystemExit, match="still loads"):
        carry._try_out(program, tmp_path / "other")
