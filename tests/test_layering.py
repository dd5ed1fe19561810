"""Imports point one way, from the command line down to the errors."""

import ast
import re
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


# A line that may import from this package: to parse all files takes ten times as long.
IMPORT = re.compile(r"^[ \t]*(?:from|import)[ ].*?\btoolexec\.(\w+)", re.MULTILINE)


def _layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _is_wrong(layer: str, target: str) -> bool:
    """Return whether a module of one layer may not import from another."""
    if target in FREE:
        return layer != "cli"
    return target in ORDER and ORDER.index(target) > ORDER.index(layer)


def test_imports_point_one_way() -> None:
    """No module imports from a layer above its own."""
    wrong: list[str] = []
    for path in ROOT.rglob("*.py"):
        layer = path.relative_to(ROOT).parts[0].removesuffix(".py")
        if layer not in ORDER:
            continue
        text = path.read_text(encoding="utf-8")
        if not any(_is_wrong(layer, target) for target in IMPORT.findall(text)):
            continue
        for node in ast.walk(ast.parse(text)):
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.startswith("toolexec.") and _is_wrong(layer, _layer(name)):
                    wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert wrong == []


def test_every_directory_has_its_place() -> None:
    """A new package must be put into the order above."""
    directories = {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert directories <= {*ORDER, *FREE}
