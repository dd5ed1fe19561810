"""docs/benchmarks.md as tables that are replaced one by one: each has a marker, and its own date and commit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolexec.errors.hints import did_you_mean

_END: Final = "<!-- end of table -->"
_MARKER: Final = re.compile(r"<!-- table: (.+) -->")
_STAMP: Final = re.compile(r"^Measured \d{4}-\d\d-\d\d at commit [0-9a-f]{7,40}\b", re.MULTILINE)
_VERSIONS: Final = re.compile(r"^Versions in the latest runs: (.+)\.$", re.MULTILINE)
_MEANING: Final = re.compile(r"^- .+ <!-- meaning: (.+) -->$", re.MULTILINE)
_MISSED: Final = re.compile(r"^- (.+?): \*\*", re.MULTILINE)
_SHORTFALL: Final = "## Where it falls short\n"


@dataclass(slots=True)
class Page:
    """What runs have left on the page, by the names of its tables; the rest of it is the template's."""

    tables: dict[str, str] = field(default_factory=dict[str, str])
    meanings: dict[str, str] = field(default_factory=dict[str, str])
    missed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    versions: dict[str, str] = field(default_factory=dict[str, str])

    def render(self, template: str, groups: Iterable[str], meanings: Iterable[str], **values: str) -> str:
        """Fill the template in; tables and lines come in the order of *groups* and *meanings*."""
        order = list(groups)
        parts = {
            "tables": "\n\n".join(self.tables[name] for name in order if name in self.tables),
            "meaning": "\n".join(self.meanings[name] for name in meanings if name in self.meanings),
            "shortfall": "\n".join(line for name in order for line in self.missed.get(name, ())) or "Every bar is met.",
            "versions": ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items())),
            **values,
        }
        for name, value in parts.items():
            template = template.replace(f"{{{{{name}}}}}", value)
        return template


def marked(group: str, table: str) -> str:
    """Return a table between its markers."""
    return f"<!-- table: {group} -->\n\n{table}\n\n{_END}"


def read_page(text: str, groups: Mapping[str, object]) -> Page:
    """Read the page. Raises ValueError for a table without a marker, without date and commit, or that is not one of
    *groups*."""
    page, left = Page(), text
    while found := _MARKER.search(left):
        name, end = found[1], left.find(_END, found.end())
        if end < 0 or _MARKER.search(left, found.end(), end):
            raise ValueError(f"the table {name!r} has no end; write {_END} after it")
        if name not in groups:
            raise ValueError(f"no rows are called {name!r}; {did_you_mean(name, groups)}: rename or remove the table")
        if name in page.tables:
            raise ValueError(f"the table {name!r} is there twice; remove one of them")
        table = left[found.start() : end + len(_END)]
        if not _STAMP.search(table):
            raise ValueError(f"the table {name!r} does not say when it was measured, and at which commit")
        page.tables[name] = table
        left = left[: found.start()] + left[end + len(_END) :]
    if unmarked := re.search(r"^(### .+|\| .+)$", left, re.MULTILINE):
        raise ValueError(f"a table has no marker: {unmarked[1]!r}; write <!-- table: NAME --> before it")
    page.meanings = {found[1]: found[0] for found in _MEANING.finditer(left)}
    if versions := _VERSIONS.search(left):
        page.versions = {
            name: version for name, _, version in (each.rpartition(" ") for each in versions[1].split(", "))
        }
    for line in left.partition(_SHORTFALL)[2].splitlines():
        if found := _MISSED.match(line):
            page.missed.setdefault(found[1], []).append(line)
    return page
