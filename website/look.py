"""Look at the built site as its readers do: `python -m website.look [DIRECTORY] [--pictures DIRECTORY]`.

Each page is opened in Chromium, wide and narrow, light and dark. What axe finds that hinders people, what failed to
load or to run, a picture that was not drawn, text that pushes a page aside, and words that the search does not find are
problems.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import json
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from website.browser import Browser, BrowserError, Tab, started
from website.npm import PackageError, PackageFile
from website.sources import ROOT

AXE: Final = PackageFile(
    "axe-core", "4.14.1", "axe.min.js", "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)
_GRAVE: Final = {"serious", "critical"}
_READY: Final = """new Promise(done => {
  const drawn = () => [...document.querySelectorAll(".mermaid")].every(
    each => each.matches("div") && each.offsetHeight > 20)
  const ready = () => document.fonts.ready.then(() => requestAnimationFrame(() => done(drawn())))
  const ask = left => drawn() || left == 0 ? ready() : setTimeout(ask, 50, left - 1)
  ask(400)
})"""
_ASIDE: Final = """(() => {
  const width = document.documentElement.clientWidth
  return document.documentElement.scrollWidth > width ? document.documentElement.scrollWidth - width : 0
})()"""
_AXE: Final = """axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.map(each => ({
  id: each.id, impact: each.impact, help: each.help, nodes: each.nodes.slice(0, 3).map(node => node.target.join(" ")),
  count: each.nodes.length})))"""
_SEARCH: Final = """new Promise(done => {
  const field = document.querySelector("[data-md-component=search-query]")
  document.querySelector("[data-md-toggle=search]").click()
  field.focus(); field.value = WORDS
  field.dispatchEvent(new Event("input", {bubbles: true})); field.dispatchEvent(new KeyboardEvent("keyup"))
  const ask = left => {
    const first = document.querySelector(".md-search-result__link")
    first || left == 0 ? done(first ? first.href : "") : setTimeout(ask, 50, left - 1)
  }
  ask(400)
})"""


@dataclass(frozen=True, slots=True)
class View:
    """How a page is looked at: sizes in CSS pixels, and the colours that the reader's machine asks for."""

    width: int
    height: int
    scheme: str

    def __str__(self) -> str:
        return f"{self.width} {self.scheme}"


VIEWS: Final = (View(1440, 900, "light"), View(1440, 900, "dark"), View(390, 844, "light"), View(390, 844, "dark"))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextlib.contextmanager
def served(site: Path) -> Generator[str, None, None]:
    """Give the address, on this machine alone, at which a directory is served; the search works by HTTP only."""
    handler = functools.partial(_Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def look(
    browser: Browser,
    address: str,
    pages: Iterable[str],
    views: Iterable[View] = VIEWS,
    seen: Callable[[str, View, bytes], None] | None = None,
) -> list[str]:
    """Return what is wrong with the *pages* below an address, a line each, and show each picture to *seen*.

    Raises BrowserError, and PackageError where there is no axe.
    """
    axe = AXE.path().read_text(encoding="utf-8")
    pages = [*pages]
    found: list[str] = []
    for view in views:
        tab = Tab(browser, view.width, view.height, view.scheme)
        try:
            for page in pages:
                found += [f"{page} ({view}): {problem}" for problem in _problems(tab, f"{address}/{page}", axe)]
                if seen is not None:
                    seen(page, view, tab.picture())
        finally:
            tab.close()
    return found


def _problems(tab: Tab, url: str, axe: str) -> Iterator[str]:
    tab.open(url)
    if not tab.value(_READY):
        yield "a picture was not drawn"
    if aside := tab.value(_ASIDE):
        yield f"it is {aside} px wider than the window"
    yield from tab.complaints()
    tab.value(f"{axe};1")
    for each in tab.value(_AXE):
        if each["impact"] in _GRAVE:
            more = f" and {each['count'] - len(each['nodes'])} more" if each["count"] > len(each["nodes"]) else ""
            yield f"{each['impact']}: {each['help']} ({each['id']}): {'; '.join(each['nodes'])}{more}"


def problems_of_search(browser: Browser, address: str, expected: dict[str, str]) -> list[str]:
    """Return a line for all words whose first hit is not the page that is *expected*, or does not open."""
    found: list[str] = []
    tab = Tab(browser, 1440, 900, "light")
    try:
        for words, page in expected.items():
            tab.open(f"{address}/index.html")
            hit = str(tab.value(_SEARCH.replace("WORDS", json.dumps(words))))
            if not hit.startswith(f"{address}/{page}"):
                found.append(f"the search for {words!r} finds {hit.removeprefix(address) or 'nothing'}, not {page}")
                continue
            tab.value("void document.querySelector('.md-search-result__link').click()")
            tab.loaded()
            if not str(tab.value("location.href")).startswith(f"{address}/{page}"):
                found.append(f"the first hit for {words!r} does not open {page}")
    finally:
        tab.close()
    return found


SEARCHES: Final = {
    "kubernetes": "tasks/kubernetes.html",
    "gate": "concepts/gate.html",
    "RunBusyError": "reference/",
}


def main(arguments: list[str] | None = None) -> int:
    """Look at all pages, and print what is wrong; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m website.look", description=__doc__)
    parser.add_argument("site", nargs="?", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--pictures", type=Path, help="where to put a picture of each page in each view")
    parser.add_argument("--page", action="append", help="only this one, such as start.html (may be repeated)")
    options = parser.parse_args(arguments)
    pages = options.page or sorted(path.relative_to(options.site).as_posix() for path in options.site.rglob("*.html"))

    def keep(page: str, view: View, picture: bytes) -> None:
        name = f"{page.removesuffix('.html').replace('/', '-')}-{str(view).replace(' ', '-')}.png"
        (options.pictures / name).write_bytes(picture)

    if options.pictures is not None:
        options.pictures.mkdir(parents=True, exist_ok=True)
    try:
        with served(options.site) as address, started() as browser:
            problems = look(browser, address, pages, seen=keep if options.pictures is not None else None)
            problems += [] if options.page else problems_of_search(browser, address, SEARCHES)
    except (BrowserError, PackageError) as error:
        print(error, file=sys.stderr)
        return 1
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    print(f"{len(pages)} pages, each in {len(VIEWS)} views: nothing hinders anyone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
