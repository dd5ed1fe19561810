"""What pip alone brings: the first run of code compiles nothing and asks no host, and what runs outlives the next install."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.utils import parse_wheel_filename
from tests.release.environments import Environment, supported

from toolexec.runtime.wasm.precompiled import machine

PROGRAM = """
import asyncio
import socket
from toolexec import Exec
from toolexec.runtime.wasm import engine, programs

def refuse(*args, **options):
    raise AssertionError("something is compiled, or a host is asked")

socket.getaddrinfo = socket.socket.connect = refuse

engine.compile_component = refuse
programs._optimise_in_background = refuse

async def main():
    async with Exec() as ex:
        print((await ex.execute_code("return 6 * 7")).value)

asyncio.run(main())
"""

LASTING = """
import subprocess
import sys
from toolexec import Exec, tool

@tool("math:add")
def add(a: int, b: int) -> int:
    return a + b

with Exec().sync as ex:
    ex.add(add)
    print(ex.run_tool("math:add", {"a": 1, "b": 2}).value)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--no-index", "--no-compile", "--force-reinstall", *sys.argv[1:]], check=True)
    print(ex.search_tools("add")[0].id)
    print(ex.execute_code("return tools.math.add(a=40, b=2)").value)
"""


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install toolexec as a user does, with an empty cache."""
    directory = tmp_path_factory.mktemp("fresh")
    environment = Environment(supported()[-1], directory / "env", directory / "cache")
    environment.grow(wheel, "bare")
    return environment


def test_the_first_run_compiles_nothing(fresh: Environment, sandbox_wheel: Path, tmp_path: Path) -> None:
    """Installing toolexec brings the code: with an empty cache, code runs, and the cache has the wheel's, byte for byte."""
    (tmp_path / "first.py").write_text(PROGRAM)
    done = fresh.run("python", "first.py", directory=tmp_path)
    assert done.stdout == "42\n", done.stderr
    with zipfile.ZipFile(sandbox_wheel) as archive:
        code = archive.read(f"toolexec_sandbox/{machine()}.cwasm")
    kept = {hashlib.sha256(path.read_bytes()).hexdigest() for path in fresh.cache.rglob("*.cwasm")}
    assert hashlib.sha256(code).hexdigest() in kept


def test_what_runs_goes_on_over_an_upgrade(
    fresh: Environment, wheel: Path, sandbox_wheel: Path, tmp_path: Path
) -> None:
    """While a program runs, all files are replaced under it: what it loads only then, as search and the sandbox, works."""
    (tmp_path / "lasting.py").write_text(LASTING)
    done = fresh.run("python", "lasting.py", str(wheel), str(sandbox_wheel), directory=tmp_path)
    assert done.stdout.split() == ["3", "math:add", "42"], done.stderr


def test_only_machines_that_it_is_for_need_it(wheel: Path, sandbox_wheel: Path) -> None:
    """Machines of this kind need the code, at the same version and whatever their C library; others need nothing."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(name))
    (needed,) = (each for each in metadata.requires_dist or () if each.name == "toolexec-sandbox")
    _, version, _, tags = parse_wheel_filename(sandbox_wheel.name)
    assert str(needed.specifier) == f"=={version}"
    assert needed.marker is not None
    system, _, processor = machine().partition("-")
    here = {"sys_platform": system, "platform_machine": processor}
    others = ({"sys_platform": "darwin"}, {"sys_platform": "win32"}, {"platform_machine": "riscv64"})
    assert needed.marker.evaluate(here)
    assert [other for other in others if needed.marker.evaluate({**here, **other})] == []
    assert {tag.platform[:9] for tag in tags} == {"manylinux", "musllinux"}


def test_both_wheels_have_one_version(wheel: Path, sandbox_wheel: Path) -> None:
    """Both are made together, and only fit together."""
    assert wheel.name.split("-")[1] == sandbox_wheel.name.split("-")[1]
