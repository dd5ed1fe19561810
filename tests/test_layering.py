"""Imports point one way, from the command line down to the errors."""

import ast
from pathlib import Path

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
    "exec",
    "integrations",
    "server",
    "config",
    "cli",
]
FREE = {"testing"}  # the fakes and suites may use everything, and nothing uses them but a command that runs one


def _layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_imports_point_one_way() -> None:
    """No module imports from a layer above its own."""
    wrong: list[str] = []
    for path in ROOT.rglob("*.py"):
        layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if layer not in ORDER:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                target = _layer(name)
                if name.startswith("toolexec.") and (
                    (target in FREE and layer != "cli")
                    or (target in ORDER and ORDER.index(target) > ORDER.index(layer))
                ):
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_every_directory_has_its_place() -> None:
    """A new package must be put into the order above."""
    directories = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories <= {*ORDER, *FREE}
