"""The public surface: public modules say what they export, every name has a docstring, importing stays cheap."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests import exports
from tests.workspace import installed

import toolexec

ROOT = Path(toolexec.__file__).parent
ROOTS = (ROOT, *(package.source for package in installed()))
ELSEWHERE = frozenset(  # they need frameworks that this environment does not have; `test_frameworks.py` imports them
    f"toolexec.integrations.frameworks.{name}"
    for name in ("claude_agent_sdk", "google_adk", "llama_index", "smolagents")
)
INSIDE = ("toolexec.runtime.guest.", "toolexec.runtime.wasm.app")  # programs that run inside of sandboxes
MODULES = sorted(
    info.name
    for root in ROOTS
    for info in (
        *pkgutil.iter_modules([str(root.parent)]),
        *pkgutil.walk_packages([str(root)], f"{root.name}."),
    )
    if info.name.split(".")[0] == root.name and info.name != "toolexec"
    if not any(part.startswith("_") for part in info.name.split(".")) and not info.name.startswith(INSIDE)
    if info.name not in ELSEWHERE
)
HEAVY = ("mcp", "mcp_types", "httpx", "httpx2", "pydantic", "anyio", "jmespath", "rich", "typer", "docstring_parser")


def _tree(module: ModuleType) -> ast.Module:
    return ast.parse(Path(module.__file__ or "").read_text())


def _defined(module: ModuleType) -> set[str]:
    """Public classes and functions that the module's own text defines."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    return {node.name for node in _tree(module).body if isinstance(node, kinds) and not node.name.startswith("_")}


def _imported(module: ModuleType) -> set[str]:
    """Names that the module's own text imports from toolexec, but for what it keeps to itself."""
    found: set[str] = set()
    for node in _tree(module).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("toolexec"):
            found |= {alias.asname or alias.name for alias in node.names}
    return {name for name in found if not name.startswith("_")}


def _only_gathers(module: ModuleType) -> bool:
    """Return whether this is a package without code of its own."""
    body = ast.Expr | ast.Import | ast.ImportFrom | ast.Assign
    return hasattr(module, "__path__") and all(isinstance(node, body) for node in _tree(module).body)


def test_all_is_true() -> None:
    """Each name in `__all__` exists and is there once; a package exports just what it imports."""
    wrong: list[str] = []
    for name in MODULES:
        module = importlib.import_module(name)
        exported: list[str] = getattr(module, "__all__", [])
        wrong += [f"{name}.{entry} does not exist" for entry in exported if not hasattr(module, entry)]
        wrong += [f"{name} exports a name twice"] * (len(exported) != len(set(exported)))
        if _only_gathers(module):
            wrong += [f"{name}: {entry}" for entry in _imported(module) ^ set(exported)]
    assert wrong == []


@pytest.mark.full
def test_public_classes_are_exported() -> None:
    """A module that has `__all__` names all its public classes there."""
    wrong: list[str] = []
    for name in MODULES:
        module = importlib.import_module(name)
        classes = {entry for entry in _defined(module) if inspect.isclass(getattr(module, entry))}
        wrong += [f"{name}.{entry}" for entry in classes - set(getattr(module, "__all__", classes))]
    assert wrong == []


def test_the_front_door() -> None:
    """The front door lists its names and its version, and no others."""
    names = exports.lazy_names_of(ROOT / "__init__.py").values()
    assert dir(toolexec) == sorted(toolexec.__all__)
    assert set(toolexec.__all__) == {name for each in names for name in each} | {"__version__"}


def test_a_name_that_is_not_there() -> None:
    """Such a name is an AttributeError, and an ImportError with `from`."""
    with pytest.raises(AttributeError, match="Exek"):
        toolexec.Exek  # noqa: B018
    with pytest.raises(ImportError):
        from toolexec import Exek  # noqa: F401


def test_every_name_of_the_front_door_says_what_it_is() -> None:
    """Each has a docstring of its own, not the one that a dataclass makes up, with an example."""
    for name in sorted(set(toolexec.__all__) - {"__version__"}):
        thing = getattr(toolexec, name)
        assert len(inspect.getdoc(thing) or "") > 20, name
        assert ">>> " in (inspect.getdoc(thing) or ""), f"{name} has no example; tests/test_docs.py runs it"
        if inspect.isclass(thing):
            assert not (thing.__doc__ or "").startswith(f"{name}("), name


def _undocumented(node: ast.AST, prefix: str) -> list[str]:
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or child.name.startswith("_"):
            continue
        decorators = {ast.unparse(decorator) for decorator in child.decorator_list}
        if not ast.get_docstring(child) and not decorators & {"overload", "override"}:
            found.append(f"{prefix}{child.name}")
        if isinstance(child, ast.ClassDef):
            found += _undocumented(child, f"{prefix}{child.name}.")
    return found


@pytest.mark.full
def test_everything_public_has_a_docstring() -> None:
    """Modules, classes, functions and methods."""
    wrong: list[str] = []
    for path in (path for root in ROOTS for path in sorted(root.rglob("*.py"))):
        tree = ast.parse(path.read_text())
        name = str(path).partition("/src/")[2]
        wrong += [f"{name}: {entry}" for entry in _undocumented(tree, "")]
        wrong += [] if ast.get_docstring(tree) else [f"{name}: the module itself"]
    assert wrong == []


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import toolexec", (*HEAVY, "asyncio", "jsonschema_rs", "toolexec.exec", "toolexec.model")),
        ("from toolexec import Exec", HEAVY),
        ("from toolexec import Exec, Step, tool, Result, ToolExecError, Options", HEAVY),
        ("from toolexec import Exec; Exec()", HEAVY),
        ("from toolexec import Exec; Exec().sync", HEAVY),
        ("import toolexec.server.tools.catalogue", ("mcp", "mcp_types", "starlette", "uvicorn")),  # as `toolexec bench`
    ],
)
def test_importing_loads_nothing_heavy(statement: str, heavy: tuple[str, ...]) -> None:
    """Unused things cost nothing: no MCP, HTTP, schema or terminal library is loaded before it is needed."""
    assert _loaded_by(statement) & set(heavy) == set()


@pytest.mark.parametrize("package", ["model", "adapter", "discovery", "backend", "run", "code", "runtime", "exec"])
def test_each_package_can_be_imported_first(package: str) -> None:
    """No package needs another one to be imported before it."""
    assert f"toolexec.{package}" in _loaded_by(f"import toolexec.{package}")


def test_it_says_that_it_is_typed() -> None:
    """Type checkers look for this file, in each package."""
    assert [root.name for root in ROOTS if not (root / "py.typed").exists()] == []


def test_there_is_no_module_named_utils() -> None:
    """A helper lives beside its only user, or earns a name."""
    vague = {"utils", "util", "helpers", "common", "misc"}
    assert [name for name in MODULES if set(name.split(".")) & vague] == []


def test_no_file_is_too_long() -> None:
    """A stranger reads any file in one sitting: over 500 lines want a reason, over 800 are too many."""
    lengths = {
        str(path.relative_to(root.parent)): len(path.read_text().splitlines())
        for root in ROOTS
        for path in root.rglob("*.py")
    }
    for name, length in lengths.items():
        if length > 500 and "containerd/api" not in name:
            print(f"{name} has {length} lines")
    assert {name: length for name, length in lengths.items() if length > 800 and "containerd/api" not in name} == {}
