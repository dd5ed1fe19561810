"""The wheel, the environments that it is installed into, and which of them a test gets."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.release.promises")

from tests.release.environments import ROOT, STAGES, Environment, supported  # noqa: E402
from tests.test_docs import blocks  # noqa: E402
from tests.workspace import packages  # noqa: E402

SERVER = '{"mcpServers": {"time": {"command": "python", "args": ["-m", "mcp_server_time"]}}}'

SKILL = """+++
name = "cost"
description = "Says what two of an item cost"
+++
input item: string
return run("shop:price", {item: item, count: 2})
# test: tea
#   inputs := {item: "tea"}
#   calls := [{tool: "shop:price", result: 9.0}]
#   returns := 9.0
"""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test its environments, stage after stage, so that an environment only grows.

    The larger sets are installed for the oldest and the newest Python; the others have the bare one.
    """
    if "environment" not in metafunc.fixturenames or metafunc.cls is None:
        return
    ends = (supported()[0], supported()[-1])
    versions: list[tuple[int, int]] = metafunc.cls.versions
    cases = [(version, stage) for version in versions for stage in STAGES if stage == "bare" or version in ends]
    ids = [f"{major}.{minor}-{stage}" for (major, minor), stage in cases]
    metafunc.parametrize("environment", cases, ids=ids, indirect=True, scope="module")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The directory that all workers of this run share."""
    found = Path(os.environ["TOOLEXEC_TEST_RUN"], "release")
    found.mkdir(exist_ok=True)
    return found


@pytest.fixture(scope="session")
def wheels(shared: Path) -> Path:
    """Return the directory of all wheels, built from this tree by the first worker that needs them."""
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        directory = shared / "wheels"
        if not directory.exists():
            pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
            made = shared / "unfinished"
            env = os.environ | {
                "TOOLEXEC_COMPILED": str(shared / "compiled"),
                "PIP_CONSTRAINT": str(ROOT / "constraints.txt"),
            }
            done = subprocess.run(
                [*pip, "-w", made, ROOT, ROOT / "sandbox-wheel", *(package.directory for package in packages())],
                capture_output=True,
                text=True,
                timeout=560,  # of 600 that a test has: a busy machine compiles for minutes
                check=False,
                env=env,
            )
            assert done.returncode == 0, done.stderr
            made.rename(directory)
    return directory


@pytest.fixture(scope="session")
def wheel(wheels: Path) -> Path:
    """The wheel of toolexec."""
    (found,) = wheels.glob("toolexec-*.whl")
    return found


@pytest.fixture(scope="session")
def sandbox_wheel(wheels: Path) -> Path:
    """Return the wheel of the compiled sandbox."""
    (found,) = wheels.glob("toolexec_sandbox-*.whl")
    return found


@pytest.fixture(scope="session")
def cache(shared: Path) -> Path:
    """Where all environments keep compiled sandboxes; the first run compiles them."""
    return shared / "cache"


@pytest.fixture(scope="session")
def environments() -> dict[tuple[int, int], Environment]:
    """The environments that there are so far."""
    return {}


@pytest.fixture(scope="module")  # one after the other, so that all tests of a stage come together
def environment(
    request: pytest.FixtureRequest,
    wheel: Path,
    cache: Path,
    environments: dict[tuple[int, int], Environment],
    tmp_path_factory: pytest.TempPathFactory,
) -> Environment:
    """The environment of one Python at one stage."""
    version, stage = request.param
    found = environments.get(version)
    if found is None or (found.installed[-1] != stage and stage in STAGES[: STAGES.index(found.installed[-1])]):
        directory = tmp_path_factory.mktemp(f"python{version[0]}.{version[1]}-")
        found = environments[version] = Environment(version, directory / "env", cache)
    if not found.installed or found.installed[-1] != stage:
        found.grow(wheel, stage)
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with what the README shows: app.py and order.json; and what the commands here need beside it."""
    for block in blocks(ROOT / "README.md"):
        if block.note.startswith("file: "):
            (tmp_path / block.note.removeprefix("file: ")).write_text(block.text)
    (tmp_path / "mcp.json").write_text(SERVER)
    (tmp_path / "app.yaml").write_text("sources: {python: [app.py]}\n")
    key = f'[[runtime_server.keys]]\nid = "a"\ntoken = "{"x" * 32}"\n'
    (tmp_path / "runtime.toml").write_text(f'[sandboxes]\nuse = ["wasm"]\n{key}')
    (tmp_path / "program.py").write_text("return await tools.shop.price(item='tea')\n")
    (tmp_path / "cost.workflow").write_text(SKILL)
    return tmp_path
