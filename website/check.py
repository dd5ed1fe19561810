"""What must hold of the built site: every link leads somewhere, every page is reached, every public name has an entry,
and nothing is loaded from another host."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from website.api import undocumented
from website.modules import API_PAGES, entries


@dataclass
class _Page(HTMLParser):
    """What a page refers to, and what can be referred to in it."""

    anchors: set[str] = field(default_factory=set[str])
    links: set[str] = field(default_factory=set[str])
    loaded: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif tag == "link" and {*values.get("rel", "").split()} & {"stylesheet", "preconnect", "preload", "icon"}:
            self.loaded.add(values.get("href", ""))
        elif "src" in values:
            self.loaded.add(values["src"])


def problems_of(site: Path) -> list[str]:
    """Return what is wrong with the site in a directory, one line each."""
    pages: dict[str, _Page] = {}
    for path in sorted(site.rglob("*.html")):
        page = pages[path.relative_to(site).as_posix()] = _Page()
        page.feed(path.read_text(encoding="utf-8"))
    return [*_dead_links(site, pages), *_orphans(pages), *_foreign(pages), *_missing_names(pages)]


def _target(page: str, link: str) -> tuple[str, str] | None:
    """Return the path and the anchor that a link leads to, or None for another host."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    path = os.path.normpath(Path(page).parent / unquote(parts.path)) if parts.path else page
    return path, unquote(parts.fragment)


def _dead_links(site: Path, pages: dict[str, _Page]) -> list[str]:
    found: list[str] = []
    for name, page in pages.items():
        if name == "404.html":
            continue
        for link in sorted(page.links | page.loaded):
            target = _target(name, link)
            if target is None:
                continue
            path, anchor = target
            file = site / path / "index.html" if (site / path).is_dir() else site / path
            if not file.exists():
                found.append(f"{name} links to {link}, which is not there")
            elif anchor and file.suffix == ".html" and anchor not in pages[file.relative_to(site).as_posix()].anchors:
                found.append(f"{name} links to {link}; the page has no such heading")
    return found


def _orphans(pages: dict[str, _Page]) -> list[str]:
    reached, waiting = {"index.html"}, ["index.html"]
    while waiting:
        name = waiting.pop()
        for link in pages[name].links:
            target = _target(name, link)
            if target is not None and target[0] in pages and target[0] not in reached:
                reached.add(target[0])
                waiting.append(target[0])
    return [f"no page leads to {name}" for name in sorted({*pages} - reached - {"404.html"})]


def _foreign(pages: dict[str, _Page]) -> list[str]:
    return [
        f"{name} loads {source} from another host"
        for name, page in pages.items()
        for source in sorted(page.loaded)
        if re.match(r"(?:[a-z]+:)?//", source)
    ]


def _missing_names(pages: dict[str, _Page]) -> list[str]:
    found = [f"{name} has no docstring" for name in undocumented()]
    for page in API_PAGES:
        html = pages[page.path.replace(".md", ".html")]
        for entry in (entry for module in page.modules for entry in entries()[module]):
            described = (
                entry.identifier in html.anchors
                if entry.home in page.modules
                else any(link.endswith(f"#{entry.identifier}") for link in html.links)
            )
            if not described:
                found.append(f"{page.path} does not describe {entry.module}.{entry.name}")
    return found
