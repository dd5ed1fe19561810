"""docs/migration.md: a row for every name that the Go packages' documents have, and each leads somewhere."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from tests.workspace import installed, packages, usable

from toolexec.runtime.kinds import ELSEWHERE, KINDS
from toolexec.runtime.sandboxes import SANDBOXES, SandboxSettings, make_sandbox

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs/migration.md").read_text()
NAMES = dict(
    line.split(" | ")
    for line in (ROOT / "tests/seeds_names.txt").read_text().splitlines()
    if line and not line.startswith("#")
)
ROWS = {
    cells[0].strip("`"): cells[1:]
    for line in TEXT.partition("### Every name")[2].splitlines()
    if line.startswith("| `") and (cells := [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
}
ABSENT = ("not needed", "not yet")


def find(path: str) -> Any:
    """Return the object of a dotted path, or the name of a field or parameter of one. Raises LookupError."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part) and part not in known_names(found):
                raise LookupError(f"{path}: there is no {part}")
            found = getattr(found, part, part)
        return found
    raise LookupError(path)


def known_names(kind: Any) -> set[str]:
    """The fields of a class, its instance attributes as far as they are declared, and its parameters."""
    if inspect.ismodule(kind):
        return set()
    declared = {name for base in getattr(kind, "__mro__", ()) for name in getattr(base, "__annotations__", {})}
    return declared | set(inspect.signature(kind).parameters)


def test_every_name_has_a_row() -> None:
    """The row says the same target as the list, and what to do instead where there is none."""
    assert [name for name in NAMES if name not in ROWS] == []
    targets = {name: target if target in ABSENT else f"`{target}`" for name, target in NAMES.items()}
    assert {name: ROWS[name][0] for name in NAMES} == targets
    assert [name for name, target in NAMES.items() if target in ABSENT and not ROWS[name][1]] == []


def test_every_target_can_be_imported() -> None:
    """No row sends its reader to something that is not there."""
    missing: list[str] = []
    away = {package.module for package in packages()} - {package.module for package in installed()}
    for target in {target for target in NAMES.values() if target not in ABSENT}:
        if target.partition(".")[0] in away:
            continue
        try:
            find(target)
        except LookupError as error:
            missing.append(str(error))
    assert missing == []


def test_the_table_has_no_other_rows() -> None:
    """A row that the list does not have is a name that changed."""
    assert set(ROWS) == set(NAMES)


@pytest.mark.parametrize("path", ["toolexec.Exec.run_tol", "toolexec.nothing.Exec", "toolexec.Options.indx"])
def test_what_is_not_there_is_found_out(path: str) -> None:
    """The check itself can fail."""
    with pytest.raises(LookupError):
        find(path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sandbox_that_exists_has_its_row(kind: str) -> None:
    """The registry decides what there is: a row of a sandbox leads to the backend that the registry makes."""
    target = NAMES.get(f"runtime/backend/{kind}")
    if target is None:
        assert kind in ("bubblewrap", "gvisor", "qemu", "unsafe_host")  # there under another name, or new
        return
    assert target not in ABSENT
    if kind in usable(SANDBOXES) and kind not in ELSEWHERE:  # the others need an address
        assert type(make_sandbox(kind, SandboxSettings())) is find(target)
