"""The words of the project: standard terms instead of a dialect, docstrings that begin with a verb.

`vocabulary.toml` has the words that are not used, each with the term to use instead, and how many of them each package
still has. `python tests/test_vocabulary.py` prints that second table as it is now.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLE = tomllib.loads((ROOT / "tests" / "vocabulary.toml").read_text())
INSTEAD: dict[str, str] = TABLE["instead"]
NOT_YET: dict[str, dict[str, int]] = TABLE["not_yet"]
WORDS = frozenset(word for word in INSTEAD if " " not in word)
PHRASES = {
    phrase: re.compile(rf"(?<!there )\b{phrase}\b(?! longer| more)", re.IGNORECASE)
    for phrase in INSTEAD
    if " " in phrase
}
OPENERS = frozenset(TABLE["openers"]["anywhere"])
FUNCTION_OPENERS = OPENERS | set(TABLE["openers"]["functions"])
PROPERTIES = {"property", "cached_property"}
# The heads of functions and classes, and the first word of each docstring.
HEADS = re.compile(
    r"""^[ ]*(?:@(?P<decorator>\w+)\n[ ]*)?(?:async[ ])?(?P<keyword>def|class)[ ](?P<name>\w+)
    |^[ ]*[rR]?\"{3}\s*(?P<word>\w+)""",
    re.MULTILINE | re.VERBOSE,
)


def _group(path: Path) -> str:
    """Name the row of the table that counts the file *path*."""
    parts = path.relative_to(ROOT).parts
    if parts[0] == "src":
        return "/".join(("src", parts[2] if len(parts) > 3 else "toolexec"))
    if parts[0] == "packages":
        return "/".join(parts[:2])
    if parts[0] == "tests":
        return "/".join(parts[:2]) if len(parts) > 2 else "tests"
    return "docs"


@cache
def _groups() -> dict[str, list[Path]]:
    """Sort all files by their row."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
    paths += [ROOT / "conftest.py", *(ROOT / "packages").rglob("*.md")]
    for folder in ("src", "tests", "examples", "packages"):
        paths += (ROOT / folder).rglob("*.py")
    groups: dict[str, list[Path]] = {}
    for path in sorted(paths):
        groups.setdefault(_group(path), []).append(path)
    return groups


def _words(text: str) -> Counter[str]:
    """Count the words of the table, those inside identifiers too, and the phrases across the ends of lines."""
    found: Counter[str] = Counter()
    for word, number in Counter(re.findall(r"[A-Z]?[a-z]+", text)).items():
        if (lower := word.lower()) in WORDS:
            found[lower] += number
    line = " ".join(text.split())
    lower = line.lower()
    found.update({phrase: len(pattern.findall(line)) for phrase, pattern in PHRASES.items() if phrase in lower})
    return found


def _openers(path: Path, text: str) -> int:
    """Count the docstrings of tests and functions, private ones too, that do not begin with a verb or a subject."""
    in_tests = path.name.startswith(("test_", "check_"))
    if not _may_open_wrongly(text, in_tests):  # to parse all files takes four times as long
        return 0
    count = 0
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        checked = node.name.startswith("test_") if in_tests else not node.name.startswith("__")
        names = {name.id for name in node.decorator_list if isinstance(name, ast.Name)}
        docstring = ast.get_docstring(node) if checked and not names & PROPERTIES else None
        first = re.match(r"\w+", docstring or "")
        count += first is not None and first[0] in (OPENERS if in_tests else FUNCTION_OPENERS)
    return count


def _may_open_wrongly(text: str, in_tests: bool) -> bool:
    """Return, without parsing, whether `_openers` may count anything; True where it is not certain."""
    openers = OPENERS if in_tests else FUNCTION_OPENERS
    keyword, name, decorator = "", "", ""
    for match in HEADS.finditer(text):
        if match["keyword"]:
            keyword, name, decorator = match["keyword"], match["name"], match["decorator"] or ""
        elif keyword == "def" and match["word"] in openers and decorator not in PROPERTIES:
            if name.startswith("test_") if in_tests else not name.startswith("__"):
                return True
    return False


@cache
def _counts(group: str) -> dict[str, int]:
    """Count what a row of the table counts, without zeros."""
    found: Counter[str] = Counter()
    for path in _groups()[group]:
        text = path.read_text(encoding="utf-8")
        found += _words(text)
        if path.suffix == ".py":
            found["opener"] += _openers(path, text)
    return {word: number for word, number in sorted(found.items()) if number}


@pytest.mark.parametrize("group", sorted(_groups()))
def test_the_words_of_a_package(group: str) -> None:
    """A package has no more of these words than its row allows."""
    allowed = NOT_YET.get(group, {})
    more = [
        f"{word!r}: {number}, allowed {allowed.get(word, 0)}; use: {INSTEAD.get(word, 'a verb at the start')}"
        for word, number in _counts(group).items()
        if number > allowed.get(word, 0)
    ]
    assert more == []


@pytest.mark.parametrize("group", sorted(NOT_YET))
def test_a_row_shrinks_with_its_package(group: str) -> None:
    """A row allows at most a tenth more than its package has, so that the table shrinks."""
    assert group in _groups(), "the package is gone: delete its row"
    now, allowed = sum(_counts(group).values()), sum(NOT_YET[group].values())
    assert allowed <= now * 1.1, f"only {now} are left of {allowed}: print the table and replace the row"


if __name__ == "__main__":
    for name in sorted(_groups()):
        if row := _counts(name):
            cells = ", ".join(f'"{word}" = {number}' for word, number in row.items())
            print(f'"{name}" = {{ {cells} }}')
