"""The Python tools of the demo. They are ordinary tools: `ex.add(summarise_commits)` works in any program."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from toolexec.model import ToolContext, tool

_COMMIT: Final = re.compile(r"^Commit: [0-9a-f]{40,64}\nAuthor: (.*)\nDate: (\S+).*\nMessage: (.*)", re.MULTILINE)
_WORD: Final = re.compile(r"[a-zA-Z][a-zA-Z'-]{2,}")
_FILLERS: Final = frozenset({"and", "are", "for", "from", "has", "into", "its", "not", "that", "the", "this", "with"})

_MOST_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Counts:
    """How often each thing occurs, most frequent first."""

    title: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class FileType:
    """What there is of one type of file."""

    type: str
    files: int
    lines: int


@tool(namespace="demo", read_only=True, idempotent=True, tags=["git", "statistics"])
def summarise_commits(log: str, by: Literal["author", "day", "word"] = "word") -> Counts:
    """Counts the commits of a git log by author or by day, or the words of their first lines.

    Args:
        log: what git_log of the git MCP server answers
        by: what to count
    """
    commits: list[tuple[str, str, str]] = _COMMIT.findall(log)
    if by == "word":
        counter = Counter(word for *_, message in commits for word in sorted(_words(message)))
        title = f"Most frequent words in {len(commits)} commit messages"
    else:
        counter = Counter(author if by == "author" else day for author, day, _ in commits)
        title = f"{len(commits)} commits by {by}"
    return Counts(title=title, counts=dict(counter.most_common(_MOST_SHOWN)))


def _words(message: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(message)} - _FILLERS


@tool(namespace="demo", read_only=True, idempotent=True, tags=["chart"])
def bar_chart(title: str, counts: dict[str, int], width: int = 40) -> str:
    """Draws numbers as bars of text.

    Args:
        title: the line above the bars
        counts: a number for each label
        width: how many characters the longest bar has
    """
    most, label = max(counts.values(), default=1), max(map(len, counts), default=0)
    bars = [f"{name:>{label}}  {'█' * max(1, round(width * n / most))} {n}" for name, n in counts.items()]
    return "\n".join([title, *bars])


@tool(namespace="demo", read_only=True, idempotent=True, tags=["files", "statistics"])
def count_lines(directory: str, ctx: ToolContext) -> list[FileType]:
    """Counts files and lines by type of file in a Git repository, ignoring what git ignores.

    Args:
        directory: a directory in the repository
    """
    root = Path(directory)
    listed = subprocess.run(  # noqa: S603 - a fixed command, without a shell
        ["git", "-C", directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode(errors="surrogateescape").split("\0") if name]
    files, lines = Counter[str](), Counter[str]()
    for done, name in enumerate(names, 1):
        kind = Path(name).suffix or Path(name).name
        files[kind] += 1
        lines[kind] += _line_count(root / name)
        ctx.report(done, len(names), Path(name).name)
    return [FileType(type=kind, files=files[kind], lines=n) for kind, n in lines.most_common()]


def _line_count(path: Path) -> int:
    """Return the lines of a text file; 0 for one that is binary, or no file (a submodule, a dangling link)."""
    try:
        data = path.read_bytes()
    except OSError:
        return 0
    return 0 if b"\0" in data[:8192] else data.count(b"\n")


@tool(namespace="demo", read_only=True, idempotent=True)
async def double(n: int) -> int:
    """Doubles a number."""
    return 2 * n


TOOLS: Final = (summarise_commits, bar_chart, count_lines, double)
"""All of them, as `ex.add` takes them."""
