"""Building the component: what is in it, what is not, and what is refused."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.process.steps import KILLED, BuildStep
from toolexec.runtime.guest.sources import source_of
from toolexec.runtime.wasm import component
from toolexec.runtime.wasm.component import (
    GUEST,
    Component,
    build_component,
    builder_version,
    inputs_digest,
    installed_version,
)
from toolexec.runtime.wasm.stdlib import STDLIB


@pytest.mark.full
def test_says_what_it_built(built: Any) -> None:
    """The description has the file's digest and size, and the exact versions of all that is in it."""
    data = built.path.read_bytes()
    about = built.about
    assert (about.sha256, about.size) == (hashlib.sha256(data).hexdigest(), len(data))
    assert about.requirements == ("sample-tools",)
    assert {**about.packages, "tzdata": "x"} == {"sample-needed": "1.0", "sample-tools": "1.0", "tzdata": "x"}
    assert about.python.startswith("3.14.")
    assert about.builder == builder_version()
    assert about.inputs == inputs_digest(built.guest)


def test_description_survives_json(built: Any) -> None:
    """A description is the same after a trip through JSON."""
    assert Component.from_json(built.about.to_json()) == built.about


@pytest.mark.parametrize(
    "change",
    [{"size": "1"}, {"size": True}, {"sha256": None}, {"requirements": [1]}, {"requirements": 3}, {"packages": [1]}],
    ids=str,
)
def test_description_of_something_else(built: Any, change: dict[str, Any]) -> None:
    """Refuses everything but a description, whatever it looks like."""
    with pytest.raises(ValueError, match="not the description"):
        Component.from_json({**built.about.to_json(), **change})


@pytest.mark.parametrize("data", [None, [], "text", {}])
def test_no_description(data: object) -> None:
    """Other JSON is not a description."""
    with pytest.raises(ValueError, match="not the description"):
        Component.from_json(data)


def test_steps_are_told(built: Any) -> None:
    """Fetching and building are reported in this order, each nearing its end and then reaching it."""
    names = list(dict.fromkeys(step.name for step in built.steps))
    assert names == ["packages", "build"]
    for name in names:
        fractions = [step.fraction for step in built.steps if step.name == name]
        assert fractions == sorted(fractions)
        assert fractions[-1] == 1.0
        assert all(0 <= fraction < 1 for fraction in fractions[:-1])


def test_frames_reach_the_host(built: Any) -> None:
    """The guest program's two functions are those of the host."""
    posted: list[str] = []
    value = built.run(
        "post('one'); value = exchange('two')",
        exchange=lambda _store, frame: frame * 2,
        post=lambda _store, frame: posted.append(frame),
    )
    assert (value, posted) == ("twotwo", ["one"])


def test_guest_program_is_whole(built: Any) -> None:
    """Modules of the guest program that are imported late are there, too."""
    assert built.run("import toolexec_guest.inner.later as m; value = m.WORD") == "later"


def test_added_package(built: Any) -> None:
    """An added package can be imported, and so can what it needs."""
    assert built.run("import sample_tools, sample_needed; value = [sample_tools.VALUE, sample_needed.NEEDED]") == [
        42,
        41,
    ]


def test_added_package_is_loaded_already(built: Any) -> None:
    """Packages and their modules were imported when the component was built; their tests and programs were not."""
    code = "import sys; value = sorted(name for name in sys.modules if name.startswith('sample'))"
    assert built.run(code) == ["sample_needed", "sample_tools", "sample_tools.side"]


def test_added_package_has_its_data(built: Any) -> None:
    """Data files and metadata of an added package are found without a file system."""
    code = (
        "import importlib.metadata, importlib.resources, pkgutil\n"
        "text = (importlib.resources.files('sample_tools') / 'data' / 'words.txt').read_text('utf-8')\n"
        "value = [text, len(pkgutil.get_data('sample_tools', 'data/words.txt')), importlib.metadata.version('sample-tools')]"
    )
    assert built.run(code) == ["één\ntwee\n", 11, "1.0"]


def test_added_package_shows_its_lines(built: Any) -> None:
    """A traceback through an added package has the package's own lines."""
    code = (
        "import traceback, sample_tools.side\n"
        "try:\n    sample_tools.side.fail()\nexcept ValueError:\n    value = traceback.format_exc()"
    )
    assert "raise ValueError('from the side')" in built.run(code)


def test_module_that_cannot_be_imported(built: Any) -> None:
    """A module of a package that needs what is missing is reported, and says so itself when it is imported."""
    assert list(built.about.failed) == ["sample_tools.broken"]
    assert "sample_missing" in built.about.failed["sample_tools.broken"]
    code = "try:\n    import sample_tools.broken\nexcept ImportError as error:\n    value = str(error)"
    assert built.run(code) == "No module named 'sample_missing'"


@pytest.mark.parametrize("name", ["pydantic", "pytest", "rich", "toolexec", "componentize_py", "pip"])
def test_nothing_of_the_host_gets_in(built: Any, name: str) -> None:
    """The packages of the Python that built the component are not in it."""
    __import__(name)
    code = f"try:\n    import {name}\nexcept ImportError as error:\n    value = type(error).__name__"
    assert built.run(code) == "ModuleNotFoundError"


def test_runs_do_not_meet(built: Any) -> None:
    """Changes of one instance are not in the next."""
    assert built.run("import math; math.pi = 3; value = math.pi") == 3
    assert built.run("import math; value = math.pi") > 3.1


def test_nothing_is_searched(built: Any) -> None:
    """There is no directory to look for modules in; an unknown name is refused without a look at the file system."""
    code = "import sys\ntry:\n    import no_such\nexcept ImportError as error:\n    value = [sys.path, str(error)]"
    asked: list[str] = []
    assert built.run(code, asked=asked) == [[], "No module named 'no_such'"]
    assert asked == []


def test_what_is_frozen_is_not_collected(built: Any) -> None:
    """The garbage collector leaves alone what came with the component, so instances share that memory."""
    frozen, others = built.run("import gc; value = [gc.get_freeze_count(), len(gc.get_objects())]")
    assert frozen > 15_000
    assert others < frozen / 20


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["sample_native", "sample_liar", "sample_unknown", "sample_tools==2.0"])
def test_package_that_cannot_go_in(tmp_path: Path, name: str) -> None:
    """Native code, and what cannot be found, is refused by name, and the file that was there stays."""
    target = tmp_path / "python.wasm"
    target.write_bytes(b"before")
    with pytest.raises(ConfigurationError, match="cannot go into the sandbox") as caught:
        build_component(target, packages=[name])
    assert caught.value.details["package"].replace("-", "_") in name
    assert [path.name for path in tmp_path.iterdir()] == ["python.wasm"]
    assert target.read_bytes() == b"before"


@pytest.mark.full
@pytest.mark.usefixtures("offline")
def test_package_that_fails(tmp_path: Path) -> None:
    """A package that cannot be imported in the sandbox is refused, with its error."""
    with pytest.raises(ConfigurationError, match="'sample_fails' cannot be imported in the sandbox: OSError: no such"):
        build_component(tmp_path / "python.wasm", packages=["sample_fails"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_failing_build(tmp_path: Path) -> None:
    """A build that fails says why, and leaves nothing."""
    guest = tmp_path / "guest"
    guest.mkdir()
    (guest / "__init__.py").write_text("import no_such_module\n")
    with pytest.raises(ConfigurationError, match="no_such_module") as caught:
        build_component(tmp_path / "python.wasm", guest=guest)
    assert "no_such_module" in caught.value.details["output"]
    assert [path.name for path in tmp_path.iterdir()] == ["guest"]


@pytest.mark.parametrize(
    ("code", "output", "text"),
    [
        (1, "Caused by: too much data is being copied between the host and the guest: fuel", "take too much memory"),
        (KILLED, "", "took more than 300 s"),
        (1, "", "exit code 1: no output"),
        (2, "something else", "exit code 2: something else"),
    ],
)
def test_what_a_failure_means(code: int, output: str, text: str) -> None:
    """Failures that a package causes are told in terms of packages; the rest in the builder's own words."""
    error = component._failure(code, output)
    assert text in str(error)
    assert error.details == {"output": output}


def test_interrupted_build(tmp_path: Path) -> None:
    """A watcher can stop the build by raising; its process is gone then."""

    def _stop(step: BuildStep) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_component(tmp_path / "python.wasm", progress=_stop)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", ["", "missing/python.wasm"])
def test_target_that_cannot_be_written(tmp_path: Path, target: str) -> None:
    """A target that is a directory, or is in none, is refused before the work starts."""
    steps: list[BuildStep] = []
    with pytest.raises(ConfigurationError, match="cannot write"):
        build_component(tmp_path / target, progress=steps.append)
    assert steps == []


def test_without_the_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without componentize-py the error says what to install."""
    monkeypatch.setitem(sys.modules, "componentize_py", None)
    assert builder_version() is None
    with pytest.raises(MissingExtraError, match=r"pip install 'toolexec\[sandbox-build\]'"):
        build_component(tmp_path / "python.wasm")


def test_inputs_are_all_files(tmp_path: Path) -> None:
    """The digest of the inputs changes with any file of the guest program: its text, its name, its being there."""
    digests = {inputs_digest(tmp_path), inputs_digest(GUEST)}
    for name, text in [("a.py", "1"), ("a.py", "2"), ("b.py", "2"), ("sub/a.py", "")]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        digests.add(inputs_digest(tmp_path))
    (tmp_path / "note.txt").write_text("not a part of it")
    digests.add(inputs_digest(tmp_path))
    assert len(digests) == 6


def test_installed_version() -> None:
    """The version of an installed package is found by its directory; None if it is not installed."""
    from importlib.metadata import version

    assert installed_version("pydantic", "pydantic") == version("pydantic")
    assert installed_version("no_such_module", "no_such_package") is None
    assert installed_version("json", "json") == "unknown"


def test_stdlib_of_the_guest_program() -> None:
    """Modules that the real guest program imports are in the documented list."""
    import ast

    names: set[str] = set()
    for path in GUEST.rglob("*.py"):
        for node in ast.walk(ast.parse(source_of(path).read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
    assert names
    names -= {"_collections_abc"}  # always loaded, and a part of no module in the list
    assert {name for name in names if name not in STDLIB and name.removeprefix("_") not in STDLIB} == set()
