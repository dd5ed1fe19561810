"""The sites of several versions are published together."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from website.versions import PublishedError, publish


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory, and the address where a server publishes it."""
    root = tmp_path / "published"
    root.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(root))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield root, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of one page, as the theme makes it."""
    directory = tmp_path / "site"
    directory.mkdir()
    config = '<script id="__config" type="application/json">{"base": ".", "tags": null, "version": null}</script>'
    (directory / "index.html").write_text(f"<title>t</title>{config}")
    (directory / "llms.txt").write_text("- [Start](start.md): begin\n")
    return directory


def test_an_earlier_version_stays(site: Path, served: tuple[Path, str], tmp_path: Path) -> None:
    """Both are there afterwards, the newest by its number is the one that the top leads to, and pages have the selector."""
    root, address = served
    assert publish(site, address, tmp_path / "first", "0.9.0") == ["0.9.0"]
    (tmp_path / "first").rename(root / "..first")
    for each in (root / "..first").iterdir():
        each.rename(root / each.name)
    (site / "index.html").write_text((site / "index.html").read_text().replace("<title>t", "<title>new"))
    into = tmp_path / "second"
    assert publish(site, address, into, "0.10.0") == ["0.10.0", "0.9.0"]
    assert [(each["version"], each["aliases"]) for each in json.loads((into / "versions.json").read_text())] == [
        ("0.10.0", ["latest"]),
        ("0.9.0", []),
    ]
    assert "url=0.10.0/index.html" in (into / "index.html").read_text()
    assert (into / "llms.txt").read_text() == "- [Start](0.10.0/start.md): begin\n"
    assert "<title>new" in (into / "0.10.0" / "index.html").read_text()
    old = (into / "0.9.0" / "index.html").read_text()
    assert "<title>t<" in old
    assert '"version": {"provider": "mike"}' in old
    assert {path.name for path in (into / "archives").iterdir()} == {"0.9.0.tar.gz", "0.10.0.tar.gz"}


def test_a_version_is_published_again_in_its_place(site: Path, served: tuple[Path, str], tmp_path: Path) -> None:
    """The version is there once, and no other is lost."""
    root, address = served
    (root / "versions.json").write_text('[{"version": "1.0.0"}]')
    assert publish(site, address, tmp_path / "all", "1.0.0") == ["1.0.0"]


@pytest.mark.parametrize(
    ("published", "version", "reason"),
    [
        ('[{"version": "1.0.0"}]', "1.1.0", "archives/1.0.0.tar.gz cannot be fetched"),
        ('[{"version": "../x"}]', "1.1.0", "has the version '../x'"),
        ("<html>", "1.1.0", "is not JSON"),
        ("[]", "1.1.0.dev1", "is not the version of a release"),
    ],
)
def test_nothing_is_lost(
    site: Path, served: tuple[Path, str], tmp_path: Path, published: str, version: str, reason: str
) -> None:
    """A published version that cannot be had stops it, and so does an invalid version."""
    root, address = served
    (root / "versions.json").write_text(published)
    with pytest.raises(PublishedError, match=reason):
        publish(site, address, tmp_path / "all", version)


def test_a_server_that_is_down_is_not_an_empty_one(site: Path, tmp_path: Path) -> None:
    """Only a server that says 404 has no sites."""
    with pytest.raises(PublishedError, match="cannot be fetched"):
        publish(site, "http://127.0.0.1:9", tmp_path / "all", "1.0.0")
    with pytest.raises(PublishedError, match="is not an https:// address"):
        publish(site, "ftp://example.com", tmp_path / "all", "1.0.0")
