"""The built site as its readers see it, in Chromium: no page keeps a reader out, and the search finds what there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tiers import missing
from website import finish
from website.__main__ import make
from website.browser import Browser, BrowserError, started
from website.look import AXE, SEARCHES, VIEWS, look, problems_of_search, served
from website.npm import PackageError

pytestmark = pytest.mark.soak

BROKEN = """<html><head><title>x</title></head><body style="color: #ccc"><p>pale</p><img src="nowhere.png">
<pre class="mermaid">graph</pre><div style="width: 3000px">wide</div><script>throw new Error("it fails")</script>"""


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Give a browser, which is gone with all of its processes after the test."""
    try:
        finish.MERMAID.path()
        AXE.path()
        with started() as found:
            yield found
    except (BrowserError, PackageError) as error:
        missing(str(error), "apt-get install chromium && make docs")


def test_nothing_hinders_a_reader(browser: Browser, tmp_path: Path) -> None:
    """Every page, wide and narrow, light and dark: no serious finding of axe, no failure, no picture that is not drawn,
    nothing wider than the window; and each search finds and opens its page."""
    site = tmp_path / "site"
    make(site)
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    with served(site) as address:
        assert look(browser, address, pages) == []
        assert problems_of_search(browser, address, SEARCHES) == []


def test_what_hinders_a_reader_is_found(browser: Browser, tmp_path: Path) -> None:
    """Pale text, an image without words, a file that is not there, a script that fails, and what is too wide."""
    (tmp_path / "broken.html").write_text(BROKEN)
    with served(tmp_path) as address:
        found = "\n".join(look(browser, address, ["broken.html"], VIEWS[:1]))
    for problem in (
        "broken.html (1440 light): it is 1",
        "a picture was not drawn",
        "nowhere.png",
        "it fails",
        "(color-contrast): p",
        "(image-alt): img",
        "(html-has-lang): html",
    ):
        assert problem in found
