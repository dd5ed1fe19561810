"""Where each page comes from, and what is changed on its way: links lead to pages of the site, notes become titles."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parent.parent
EXAMPLES: Final = "reference/examples.md"
_OTHERS: Final = {
    "README.md": "tour.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-reports.md",
    "docs/decisions/README.md": "decisions/index.md",
}
_FENCE: Final = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*) -->\n)?(?P<block>```(?P<language>\w*)\n.*?^```$)", re.MULTILINE | re.DOTALL
)
_LINK: Final = re.compile(r"(?<=\]\()(?P<name>[^)#\s]*)(?P<anchor>#[^)\s]*)?(?=\))")
_CODE: Final = re.compile(r"`[^`\n]+`")


class DeadLinkError(Exception):
    """A document names a file that is not there."""


def documents() -> dict[str, str]:
    """Return the documents of the repository that are pages: their path there, and their path in the site."""
    found = {f"docs/{path}": str(path) for path in _below("docs")}
    for path in _below("packages"):
        package, name = path.parts[0], path.name
        if len(path.parts) == 2:
            found[f"packages/{path}"] = f"packages/{package if name == 'README.md' else path.stem}.md"
    return found | _OTHERS


def _below(directory: str) -> list[PurePosixPath]:
    return [PurePosixPath(path.relative_to(ROOT / directory)) for path in sorted((ROOT / directory).rglob("*.md"))]


def example_anchor(path: str) -> str:
    """Return the heading of an example on the page of examples."""
    return PurePosixPath(path).stem.replace("_", "-")


def rewritten(text: str, source: str, target: str) -> str:
    """Return the document *source* as the page *target*. Raises DeadLinkError for a link to what is not there."""

    def outside(part: str) -> str:
        part = re.sub(r"^<!-- .* -->\n", "", part, flags=re.MULTILINE)
        return _except(_CODE, part, lambda prose: _LINK.sub(lambda link: _moved(link, source, target), prose))

    return _except(_FENCE, text, outside, _titled)


def _except(
    pattern: re.Pattern[str],
    text: str,
    change: Callable[[str], str],
    instead: Callable[[re.Match[str]], str] = lambda match: match[0],
) -> str:
    """Return *text* with *change* applied to all but the matches of *pattern*, and *instead* to these."""
    parts: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        parts += [change(text[end : match.start()]), instead(match)]
        end = match.end()
    return "".join([*parts, change(text[end:])])


def _titled(fence: re.Match[str]) -> str:
    """Return a block with the name of its file above it, where a note says that it is one."""
    note, block, language = fence["note"] or "", fence["block"], fence["language"]
    if note.startswith("file: "):
        name = note.removeprefix("file: ")
        return block.replace(f"```{language}\n", f'```{language or "text"} title="{name}"\n', 1)
    return block


def _moved(link: re.Match[str], source: str, target: str) -> str:
    name, anchor = link["name"], link["anchor"] or ""
    if not name or re.match(r"[a-z]+:", name):
        return link[0]
    path = os.path.normpath(PurePosixPath(source).parent / name)
    if not (ROOT / path).exists():
        raise DeadLinkError(f"{source} links to {name}, which is not there")
    page = documents().get(path) or documents().get(f"{path}/README.md")
    if page is None and (path == "examples" or "examples/" in path):
        page, anchor = EXAMPLES, f"#{example_anchor(path)}" if path.endswith(".py") else ""
    if page is None:
        page = f"files/{path}"
    return os.path.relpath(page, PurePosixPath(target).parent) + anchor
