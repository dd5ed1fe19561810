"""What programs read of the site: each page as Markdown, `llms.txt` and `llms-full.txt`; and the pictures' script."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from website.api import api_markdown
from website.modules import API_PAGES
from website.navigation import page_titles
from website.npm import PackageFile

MERMAID: Final = PackageFile(
    "mermaid", "11.17.2", "dist/mermaid.min.js", "581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8"
)
"""The script that draws the pictures: the site loads nothing from other hosts."""

_ABOUT: Final = (
    "toolexec is the execution layer between an LLM agent and its tools: it finds a tool from a query, checks the "
    "arguments, runs it wherever it lives, and returns one clean result. It also runs code that a model wrote."
)
_SCRIPT: Final = "assets/mermaid.min.js"


def as_markdown(contents: dict[str, str]) -> dict[str, str]:
    """Return each page as Markdown that stands for itself: the API with its descriptions."""
    return contents | {page.path: api_markdown(page) for page in API_PAGES}


def llms(contents: dict[str, str]) -> str:
    """Return `llms.txt`: the pages by section, each with what it is for."""
    lines = ["# toolexec", "", f"> {_ABOUT}", "", "All pages in one file: [llms-full.txt](llms-full.txt)"]
    section = ""
    for above, title, path in page_titles():
        if above != section:
            section = above
            lines += ["", f"## {section}", ""]
        lines.append(f"- [{title}]({path}): {_first_sentence(contents[path])}")
    return "\n".join(lines) + "\n"


def llms_full(contents: dict[str, str]) -> str:
    """Return `llms-full.txt`: all pages, in their order."""
    return "\n\n".join(f"<!-- {path} -->\n\n{contents[path].strip()}" for _, _, path in page_titles()) + "\n"


def _first_sentence(text: str) -> str:
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^(?:#|\||- |<).*$", "", prose, flags=re.MULTILINE)
    first = next((part for part in prose.split("\n\n") if part.strip()), "").strip()
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(first.split()))
    return re.split(r"(?<=[.:!?]) (?=[A-Z])", plain)[0].rstrip(":")


def finish(site: Path, contents: dict[str, str]) -> None:
    """Write all of it into the directory *site*, and lead to it from the pages."""
    markdown = as_markdown(contents)
    for path, text in markdown.items():
        (site / path).write_text(text, encoding="utf-8")
        page = (site / path).with_suffix(".html")
        page.write_text(_with_links(page.read_text(encoding="utf-8"), path), encoding="utf-8")
    for page in site.rglob("*.html"):
        page.write_text(_reachable(page.read_text(encoding="utf-8")), encoding="utf-8")
    (site / "llms.txt").write_text(llms(markdown), encoding="utf-8")
    (site / "llms-full.txt").write_text(llms_full(markdown), encoding="utf-8")
    shutil.copy(MERMAID.path(), site / _SCRIPT)


def _with_links(html: str, path: str) -> str:
    """Return a page that leads to its Markdown, and that loads the script for pictures where it has one."""
    name = path.rpartition("/")[2]
    link = f'<a class="site-markdown" rel="alternate" type="text/markdown" href="{name}">Markdown</a>'
    html = html.replace("<h1", f"{link}<h1", 1)
    if 'class="mermaid"' in html:
        up = "../" * path.count("/")
        html = re.sub(
            r"(?=<script src=\"[^\"]*bundle[^\"]*\")", f'<script src="{up}{_SCRIPT}"></script>', html, count=1
        )
    return html


def _reachable(html: str) -> str:
    """Return a page with what the theme leaves out for those who use a keyboard, a screen reader or a small screen:
    names, focus, and pictures that scroll where they would be too small to read.
    """
    html = html.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    html = html.replace("<pre><span></span><code>", '<pre><span></span><code tabindex="0">')
    picture = r'<div class="site-picture" role="group" aria-label="Picture" tabindex="0">\g<0></div>'
    return re.sub(r'<pre class="mermaid">.*?</pre>', picture, html, flags=re.DOTALL)
