"""Put the built site beside those of earlier versions: `python -m website.versions DIRECTORY`.

What is published at the address of the documentation (pyproject.toml) is fetched and kept; where there is nothing yet
(404), this is the first site. DIRECTORY then has all of it: a directory and an archive for each version,
`versions.json` for the selector in the head of each page, and at the top a page that leads to the newest version.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import tarfile
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from toolexec.version import __version__
from website.sources import ROOT

_NUMBERS: Final = re.compile(r"\d+\.\d+\.\d+")
_LEAD: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>toolexec</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html">
</head>
<body><a href="{newest}/index.html">The documentation of toolexec {newest}</a></body>
</html>
"""


class PublishedError(Exception):
    """The sites that are published cannot be had, so that publishing would lose them; or the version is no release."""


def publish(site: Path, address: str, into: Path, version: str = __version__) -> list[str]:
    """Write the *site* of *version* and all that *address* publishes to *into*; return the versions, newest first.

    Raises PublishedError for a version that is not three numbers, and where a published version cannot be fetched.
    """
    if not _NUMBERS.fullmatch(version):
        raise PublishedError(f"{version} is not the version of a release, such as 1.2.3")
    if not (site / "index.html").is_file():
        raise PublishedError(f"{site} has no site: make docs builds it")
    earlier = [each for each in _published(address) if each != version]
    shutil.rmtree(into, ignore_errors=True)
    (into / "archives").mkdir(parents=True)
    for each in earlier:
        name = f"archives/{each}.tar.gz"
        data = _get(f"{address}/{name}")
        (into / name).write_bytes(data)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(into / each, filter="data")
    shutil.copytree(site, into / version)
    for page in (into / version).rglob("*.html"):
        page.write_text(_with_selector(page.read_text(encoding="utf-8")), encoding="utf-8")
    with tarfile.open(into / "archives" / f"{version}.tar.gz", "w:gz") as archive:
        archive.add(into / version, ".")
    versions = sorted([*earlier, version], key=_numbers, reverse=True)
    selector = [{"version": each, "title": each, "aliases": ["latest"][: each == versions[0]]} for each in versions]
    (into / "versions.json").write_text(json.dumps(selector, indent=1) + "\n", encoding="utf-8")
    (into / "index.html").write_text(_LEAD.format(newest=versions[0]), encoding="utf-8")
    listed = (into / versions[0] / "llms.txt").read_text(encoding="utf-8")
    (into / "llms.txt").write_text(listed.replace("](", f"]({versions[0]}/"), encoding="utf-8")
    return versions


def _published(address: str) -> list[str]:
    """Return the versions that are published; none where there is no site yet."""
    try:
        found: Any = json.loads(_get(f"{address}/versions.json"))
    except PublishedError as error:
        if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == 404:
            return []
        raise
    except ValueError as error:
        raise PublishedError(f"{address}/versions.json is not JSON: {error}") from error
    versions = [str(each["version"]) for each in found]
    if wrong := [each for each in versions if not _NUMBERS.fullmatch(each)]:
        raise PublishedError(f"{address}/versions.json has the version {wrong[0]!r}")
    return versions


def _get(address: str) -> bytes:
    if not address.startswith(("https://", "http://127.0.0.1:")):
        raise PublishedError(f"{address} is not an https:// address")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310
            return answer.read()
    except OSError as error:
        raise PublishedError(f"{address} cannot be fetched: {error}") from error


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _with_selector(html: str) -> str:
    """Have the theme of a page show the versions; it looks for `versions.json` above the site."""
    return re.sub(r'("version": )null(?=[^<]*</script>)', r'\1{"provider": "mike"}', html, count=1)


def _documentation() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Documentation"])


def main() -> int:
    """Publish `build/site`, and print the versions."""
    parser = argparse.ArgumentParser(prog="python -m website.versions", description=__doc__)
    parser.add_argument("directory", type=Path, help="what to publish from now on; it is emptied first")
    parser.add_argument("--address", default=_documentation(), help="where the sites are published")
    given = parser.parse_args()
    try:
        versions = publish(ROOT / "build" / "site", given.address.rstrip("/"), given.directory)
    except PublishedError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{given.directory} has {', '.join(versions)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
