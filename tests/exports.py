"""Write what packages export lazily. The imports under their `if TYPE_CHECKING:` are the one place that says it.

    python -m tests.exports [--write]

From those imports come the map that `lazy_names` gets, and `__all__`. Without `--write` it prints which files are not
up to date, and exits with 1 if there are any.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from tests import workspace

import toolexec

COMMAND = "python -m tests.exports --write"
_SOURCES = (Path(toolexec.__file__).parent, *(package.source for package in workspace.installed()))


def doors() -> list[Path]:
    """Return the modules that are there to load names of others lazily: they have no class of their own."""
    found: list[Path] = []
    for path in sorted(path for source in _SOURCES for path in source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "lazy_names(" in text and path.name != "lazy.py":
            tree = ast.parse(text)
            if not any(isinstance(node, ast.ClassDef) for node in tree.body):
                found.append(path)
    return found


def module_name(path: Path) -> str:
    """Return the name by which a module is imported."""
    source = next(source for source in _SOURCES if path.is_relative_to(source))
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def lazy_names_of(path: Path) -> dict[str, list[str]]:
    """Return the names that a module loads lazily, by the modules that they are in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {module: [*names] for module, names in ast.literal_eval(_map_of(tree)).items()}


def up_to_date(path: Path) -> bool:
    """Return whether the map and `__all__` of a module have what it imports for type checkers, and nothing else."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    homes = _imported(tree)
    names = ast.literal_eval(_value_of(tree, "__all__"))
    return lazy_names_of(path) == homes and names == _exported(tree, homes)


def write(path: Path) -> None:
    """Write the map and `__all__` of a module again; ruff wraps the lines."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    homes = _imported(tree)
    new = {
        _map_of(tree): repr({module: tuple(names) for module, names in homes.items()}),
        _value_of(tree, "__all__"): repr(_exported(tree, homes)),
    }
    for node in sorted(new, key=lambda node: node.lineno, reverse=True):
        start, end = _span(text, node)
        text = text[:start] + new[node] + text[end:]
    path.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", str(path)], check=True)


def _imported(tree: ast.Module) -> dict[str, list[str]]:
    """Return the names that a module imports for type checkers, by their modules."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {node.module or "": [each.name for each in node.names] for node in imports}


def _exported(tree: ast.Module, homes: dict[str, list[str]]) -> list[str]:
    """Return `__all__`: the lazy names, and those of the module itself that are in it already, as ruff sorts them."""
    own = {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    kept = own & {*ast.literal_eval(_value_of(tree, "__all__"))}
    names = kept.union(*homes.values())
    return sorted(names, key=lambda name: (not name.isupper(), not name[:1].isupper(), name))


def _map_of(tree: ast.Module) -> ast.expr:
    """Return the map of a module: the second argument of `lazy_names`, or what the name there stands for."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy_names"]
    given = calls[0].args[1]
    return _value_of(tree, given.id) if isinstance(given, ast.Name) else given


def _value_of(tree: ast.Module, name: str) -> ast.expr:
    """Return what is assigned to *name*."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return node.value
    raise LookupError(f"{name} is not assigned")


def _span(text: str, node: ast.expr) -> tuple[int, int]:
    """Return where a node begins and ends in *text*, which has no other characters than ASCII up to there."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def main(*words: str) -> int:
    """Do what the module says; return the exit code."""
    stale = [path for path in doors() if not up_to_date(path)]
    for path in stale:
        if "--write" in words:
            write(path)
        print(f"{'wrote' if '--write' in words else 'not up to date:'} {path}")
    return int(bool(stale) and "--write" not in words)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
