"""Find which modules of the package import which: by statements, in functions as well, and by names in strings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """One module imports another one: in this line, only for type checkers, or by a string that names it."""

    module: str
    target: str
    line: int
    for_types: bool = False
    in_string: bool = False


_Statement: TypeAlias = tuple[ast.Import | ast.ImportFrom, bool]


class Modules:
    """All modules of the package whose directory is *root*."""

    def __init__(self, root: Path) -> None:
        self.paths: dict[str, Path] = {}
        self._written: dict[str, list[_Statement]] = {}
        self._named: dict[str, list[tuple[str, int]]] = {}
        self._name = root.name
        quoted = re.compile(rf"[\"']{root.name}\.\w")
        for path in sorted(root.rglob("*.py")):
            parts = path.relative_to(root.parent).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            self.paths[name] = path
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)  # not kept: a thousand trees make the collector of garbage slow
            self._written[name] = [*_import_statements(tree.body, for_types=False)]
            self._named[name] = [*_strings(tree)] if quoted.search(text) else []
        self._exports = {
            name: self._exports_of(name) for name, path in self.paths.items() if path.name == "__init__.py"
        }

    def imports(self) -> list[Import]:
        """Return what all modules import of the package. A name that a package takes from one of its modules, at its
        first use or at once, leads to that module."""
        return [each for name in self.paths for each in (*self._by_statements(name), *self._by_strings(name))]

    def _by_statements(self, module: str) -> Iterator[Import]:
        for node, for_types in self._written[module]:
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                base = self._base(module, node)
                targets = [self._home(base, alias.name) for alias in node.names]
            for target in targets:
                if target in self.paths and target != module:
                    yield Import(module, target, node.lineno, for_types=for_types)

    def _by_strings(self, module: str) -> Iterator[Import]:
        """Yield modules by their names in strings, as they are imported by: `a.b`, `a.b:name`, and f"a.b.{name}"."""
        for text, line in self._named[module]:
            target = text.partition(":")[0].removesuffix(".")
            if target in self.paths and target not in (module, self._name):
                yield Import(module, target, line, in_string=True)

    def _base(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = module if self.paths[module].name == "__init__.py" else module.rpartition(".")[0]
        parts = package.split(".")
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])

    def _home(self, base: str, name: str) -> str:
        """Return the module that `from base import name` leads to."""
        below = f"{base}.{name}"
        if below in self.paths:
            return below
        home = self._exports.get(base, {}).get(name)
        return self._home(*home) if home is not None and home[0] != base else base

    def _exports_of(self, package: str) -> dict[str, tuple[str, str]]:
        """Return the names that a package has from elsewhere: the module of each, and its name there."""
        found: dict[str, tuple[str, str]] = {}
        for node, _ in self._written[package]:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = (self._base(package, node), alias.name)
        return found


def _strings(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno


def _import_statements(body: Sequence[Any], *, for_types: bool) -> Iterator[_Statement]:
    """Yield all import statements, with whether only type checkers follow them. Expressions hold none."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, for_types
            continue
        types_only = for_types or (
            isinstance(node, ast.If)
            and "TYPE_CHECKING" in (getattr(node.test, "id", ""), getattr(node.test, "attr", ""))
        )
        yield from _import_statements(getattr(node, "body", ()), for_types=types_only)
        for field in ("orelse", "finalbody", "handlers", "cases"):
            yield from _import_statements(getattr(node, field, ()), for_types=for_types)
