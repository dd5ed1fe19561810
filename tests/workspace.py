"""The packages beside the core: what `packages/` has, for the tests that hold of each of them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
APART = frozenset({"science", "google-adk", "claude-agent-sdk", "llama-index", "smolagents"})
"""The extras that `all` does not have: one needs an older wasmtime than the others have, the rest are large."""


@dataclass(frozen=True)
class Package:
    """The package `packages/NAME`, whose distribution is `toolexec-NAME` and whose module is `toolexec_NAME`."""

    name: str

    @property
    def directory(self) -> Path:
        """Where all of it is."""
        return ROOT / "packages" / self.name

    @property
    def distribution(self) -> str:
        """What pip calls it."""
        return f"toolexec-{self.name}"

    @property
    def module(self) -> str:
        """What is imported of it."""
        return f"toolexec_{self.name}".replace("-", "_")

    @property
    def source(self) -> Path:
        """The directory of its module."""
        return self.directory / "src" / self.module

    @property
    def settings(self) -> dict[str, Any]:
        """Its `pyproject.toml`."""
        return tomllib.loads((self.directory / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def packages() -> tuple[Package, ...]:
    """Return all packages of the repository."""
    return tuple(Package(path.parent.name) for path in sorted((ROOT / "packages").glob("*/pyproject.toml")))


@cache
def installed() -> tuple[Package, ...]:
    """Return those that can be imported: the tests of the core pass without any of them."""
    return tuple(package for package in packages() if find_spec(package.module) is not None)


def usable(kinds: Iterable[str]) -> list[str]:
    """Return those of the kinds of sandboxes whose packages can be imported."""
    from toolexec.backend.plugins import PACKAGES, SANDBOXES

    there = {package.distribution for package in installed()}
    return [kind for kind in kinds if PACKAGES[SANDBOXES].get(kind) in (None, *there)]
