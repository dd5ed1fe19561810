"""Imports point one way, from the command line down to the errors, and no two modules import each other."""

from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from tests.imports import Import, Modules

import toolexec

ROOT = Path(toolexec.__file__).parent
ORDER = [
    "errors",
    "model",
    "process",
    "net",
    "adapter",
    "discovery",
    "backend",
    "run",
    "code",
    "workflow",
    "runtime",
    "durable",
    "cassette",
    "exec",
    "integrations",
    "server",
    "config",
    "cli",
]
FREE = {"testing"}  # the fakes and suites may use everything, and nothing uses them but a command that runs one

REGISTRY = "toolexec.runtime.kinds"
"""It has the names of modules, of which each is loaded when its kind of sandbox is named: they may use it, too."""


@cache
def imports() -> list[Import]:
    """All imports within the package, by statements and by strings."""
    return [*Modules(ROOT).imports()]


def _layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _is_wrong(layer: str, target: str) -> bool:
    """Return whether a module of one layer may not import from another."""
    if layer not in ORDER:
        return False
    if target in FREE:
        return layer != "cli"
    return target in ORDER and ORDER.index(target) > ORDER.index(layer)


def circle(found: list[Import]) -> list[str]:
    """Return one circle of modules that import each other at run time: each with the next one, and the line."""
    lines = {(each.module, each.target): each.line for each in found if not each.for_types}
    graph: dict[str, set[str]] = {}
    for module, target in lines:
        graph.setdefault(module, set()).add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        path = error.args[1][::-1]  # it lists what is imported before what imports it
        return [f"{module}:{lines[module, target]} imports {target}" for module, target in pairwise(path)]
    return []


def test_imports_point_one_way() -> None:
    """No module imports from a layer above its own, not even by its name in a string."""
    wrong = [
        f"{each.module}:{each.line} imports {each.target}"
        for each in imports()
        if _is_wrong(_layer(each.module), _layer(each.target))
    ]
    assert wrong == []


def test_no_modules_import_each_other() -> None:
    """Mutual imports are refused, in circles of any length, and inside of functions as well."""
    assert circle([each for each in imports() if not (each.in_string and each.module == REGISTRY)]) == []


def test_every_directory_has_its_place() -> None:
    """A new package must be put into the order above."""
    directories = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories <= {*ORDER, *FREE}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two modules, of which the second one imports the first; `a` is exported by the package."""
    root = tmp_path / "toolexec"
    (root / "cli").mkdir(parents=True)
    (root / "model").mkdir()
    (root / "__init__.py").write_text("if TYPE_CHECKING:\n    from toolexec.cli import a\n")
    (root / "cli" / "__init__.py").write_text("from .app import a\n")
    (root / "cli" / "app.py").write_text("from toolexec.model import low\na = low.b\n")
    (root / "model" / "__init__.py").write_text("")
    return root


@pytest.mark.parametrize(
    "source",
    [
        "from toolexec.cli.app import a",
        "from toolexec.cli import a",
        "from toolexec import a",
        "from ..cli.app import a",
        "import toolexec.cli.app",
        "def later():\n    if True:\n        from toolexec.cli import app",
        "def later():\n    try:\n        pass\n    except ImportError:\n        from toolexec.cli import app",
        "a = import_module('toolexec.cli.app').a",
        "MAKERS = {'a': 'toolexec.cli.app:a'}",
    ],
)
def test_an_import_is_seen_however_it_is_written(package: Path, source: str) -> None:
    """An import of the module above is wrong, and makes a circle with it."""
    (package / "model" / "low.py").write_text(f"{source}\nb = 1\n")
    found = Modules(package).imports()
    low, app = "toolexec.model.low", "toolexec.cli.app"
    assert [each.target for each in found if each.module == low] == [app]
    assert _is_wrong(_layer(low), _layer(app))
    assert sorted(line.partition(":")[0] for line in circle(found)) == [app, low]


def test_a_package_is_seen_in_an_f_string(package: Path) -> None:
    """A layer is known at once where the module is known only at run time."""
    (package / "model" / "low.py").write_text("a = import_module(f'toolexec.cli.{name}')\n")
    targets = [each.target for each in Modules(package).imports() if each.module == "toolexec.model.low"]
    assert targets == ["toolexec.cli"]


def test_what_only_type_checkers_import_makes_no_circle(package: Path) -> None:
    """An import for types is absent at run time, and points upward all the same."""
    (package / "model" / "low.py").write_text("if TYPE_CHECKING:\n    from toolexec.cli.app import a\nb = 1\n")
    found = Modules(package).imports()
    assert circle(found) == []
    assert [each.for_types for each in found if each.module == "toolexec.model.low"] == [True]
