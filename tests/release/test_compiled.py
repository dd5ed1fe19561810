"""The wheel of the compiled sandbox: with it, the first run of code on a machine compiles nothing."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from tests.release.environments import Environment, supported

from toolexec.runtime.wasm.precompiled import machine

PROGRAM = """
import asyncio
from toolexec import Exec
from toolexec.runtime.wasm import engine, programs

def refuse(*args, **options):
    raise AssertionError("something is compiled")

engine.compile_component = refuse
programs._optimise_in_background = lambda *args: None

async def main():
    async with Exec() as ex:
        print((await ex.execute_code("return 6 * 7")).value)

asyncio.run(main())
"""


def test_the_first_run_compiles_nothing(wheel: Path, sandbox_wheel: Path, tmp_path: Path) -> None:
    """With both wheels and an empty cache, code runs; what the cache has is the wheel's code, byte for byte."""
    environment = Environment(supported()[-1], tmp_path / "env", tmp_path / "cache")
    environment.grow(wheel, "bare")
    done = environment.pip("install", "--quiet", "--no-compile", "--no-deps", str(sandbox_wheel))
    assert done.returncode == 0, done.stderr
    (tmp_path / "first.py").write_text(PROGRAM)
    done = environment.run("python", "first.py", directory=tmp_path)
    assert done.stdout == "42\n", done.stderr
    with zipfile.ZipFile(sandbox_wheel) as archive:
        code = archive.read(f"toolexec_sandbox/{machine()}.cwasm")
    kept = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / "cache").rglob("*.cwasm")}
    assert hashlib.sha256(code).hexdigest() in kept


def test_both_wheels_have_one_version(wheel: Path, sandbox_wheel: Path) -> None:
    """Both are made together, and only fit together."""
    assert wheel.name.split("-")[1] == sandbox_wheel.name.split("-")[1]
