"""The fixture `cassette` for pytest: a cassette of each test, in a file beside it.

Put `pytest_plugins = ["toolexec.testing.pytest_cassettes"]` into the `conftest.py` at the root of your tests. Nothing
of it is loaded elsewhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast, get_args

import pytest

from toolexec.cassette.cassette import Cassette
from toolexec.cassette.modes import CassetteMode

MODE_VARIABLE: Final = "TOOLEXEC_CASSETTE__MODE"
"""The variable that says what is done with cassettes where `--cassette-mode` does not."""
_UNUSED: Final = pytest.StashKey[list[str]]()
_NOT_IN_NAMES: Final = re.compile(r"[^\w.-]+")
_LONGEST: Final = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the fixture."""
    group = parser.getgroup("toolexec")
    group.addoption(
        "--cassette-mode",
        choices=get_args(CassetteMode),
        default=None,
        help=f"What is done with cassettes of toolexec; default: as ${MODE_VARIABLE} says, else replay.",
    )
    group.addoption(
        "--cassette-unused",
        choices=("ignore", "report", "fail"),
        default="report",
        help="What follows from recorded calls that a test does not make: report lists them at the end.",
    )


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Generator[Cassette, None, None]:
    """Yield the cassette of this test: `Exec(cassette=cassette)`.

    Its file is `cassettes/MODULE/TEST.yaml`, in the directory of the test's module. It is written when the test has
    ended. A test in which a call was unknown fails, also where its program has caught the error.
    """
    config = request.config
    mode = config.getoption("--cassette-mode") or os.environ.get(MODE_VARIABLE) or "replay"
    path = _path_of(request)
    if mode in ("record", "auto", "refresh"):
        path.parent.mkdir(parents=True, exist_ok=True)
    opened = Cassette(path, cast("CassetteMode", mode))
    try:
        yield opened
    finally:
        opened.close()
    if opened.misses:
        raise opened.misses[0]
    wanted = config.getoption("--cassette-unused")
    unused = [f"{call.tool} {call.args}" for call in opened.unused] if wanted != "ignore" else []
    if unused and wanted == "fail":
        pytest.fail(f"calls of {path} were not made: " + "; ".join(unused), pytrace=False)
    if unused:
        config.stash.setdefault(_UNUSED, []).extend(f"{request.node.nodeid}: {line}" for line in unused)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """List the recorded calls that no test made."""
    unused = config.stash.get(_UNUSED, [])
    if unused:
        terminalreporter.section("recorded calls that were not made")
        for line in unused:
            terminalreporter.write_line(line)


def _path_of(request: pytest.FixtureRequest) -> Path:
    """Return the file of a test: of its class, too, and another one for each of its parameters."""
    module = request.path
    parents = [request.cls.__name__] if request.cls is not None else []
    full = ".".join([*parents, str(request.node.name)])
    name = _NOT_IN_NAMES.sub("-", full).strip("-")
    if name != full.replace("[", "-").rstrip("]") or len(name) > _LONGEST:  # two tests must not share a file
        name = f"{name[:_LONGEST]}-{sha256(full.encode()).hexdigest()[:8]}"
    return module.parent / "cassettes" / module.stem / f"{name}.yaml"
