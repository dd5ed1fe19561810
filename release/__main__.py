"""Make and check releases: `python -m release version 1.2.3`, `... build`, `... check`; and `... image --base BASE`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sys
from pathlib import Path

from release.building import build_all, digest
from release.chart import MANIFESTS, rendered
from release.checking import problems_of
from release.image import bill_of, build_images
from release.projects import ROOT, ReleaseError, source_url, version
from release.versions import set_version, unequal


def problems_of_tree(*, tag: str = "", repository: str = "", root: Path = ROOT) -> list[str]:
    """Return what keeps the tree from being released: of the *tag*, if there is one, and from the *repository*."""
    found = unequal(root)
    number = version(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md has no heading of {number} with its date")
    if tag and tag != f"v{number}":
        found.append(f"the tag is {tag}, and the version {number}")
    if tag and re.search(r"^## \[Unreleased\]\n+(?=[^#\n]|###)", changelog, re.MULTILINE):
        found.append("CHANGELOG.md has entries under [Unreleased]")
    if repository and repository != source_url(root):
        found.append(f"this is {repository}, and the metadata says {source_url(root)}")
    return found


def table(dist: Path) -> str:
    """Return the files of *dist*, each with its size in bytes and its SHA-256."""
    rows = [(path.name, f"{path.stat().st_size:,}", digest(path)) for path in sorted(dist.iterdir())]
    width, size = (max(len(row[column]) for row in rows) for column in (0, 1))
    return "\n".join(f"{name:<{width}}  {amount:>{size}}  {sha256}" for name, amount, sha256 in rows)


def main(arguments: list[str] | None = None) -> int:
    """Do what the command line says, and print what is wrong; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    setting = commands.add_parser("version", help="set the version in all files, and date the changelog")
    setting.add_argument("new")
    setting.add_argument("--date", type=dt.date.fromisoformat, default=None, help="of the heading; today by default")
    commands.add_parser("manifests", help="render the chart into the manifests; needs helm-python-sdk")
    for name, about in (("build", "build all distributions twice, and check them"), ("check", "check those of dist")):
        command = commands.add_parser(name, help=about)
        command.add_argument("--dist", type=Path, default=ROOT / "dist")
        command.add_argument("--tag", default="", help="what the release is of; then nothing may be unreleased")
        command.add_argument("--repository", default="", help="where it is made, as an address")
    images = commands.add_parser("image", help="build the container images from dist, without a registry or an index")
    images.add_argument("--dist", type=Path, default=ROOT / "dist")
    images.add_argument("--base", required=True, help="an image that the engine has, with Python and pip")
    images.add_argument("--python", default=sys.executable, help="a Python of the base's minor version, with pip")
    images.add_argument("--engine", default="docker", help="the command, such as podman")
    images.add_argument("--bills", type=Path, default=ROOT / "build", help="where to put their bills of materials")
    options = parser.parse_args(arguments)
    try:
        if options.command == "version":
            day = options.date or dt.datetime.now(dt.UTC).date()
            for path in set_version(options.new, day):
                print(path.relative_to(ROOT))
            return 0
        if options.command == "manifests":
            MANIFESTS.write_text(rendered(), encoding="utf-8")
            return 0
        if options.command == "image":
            options.bills.mkdir(parents=True, exist_ok=True)
            for image in build_images(options.dist, options.base, python=options.python, engine=options.engine):
                bill = options.bills / f"{image.replace(':', '-')}.cdx.json"
                bill.write_text(json.dumps(bill_of(image, engine=options.engine), indent=1) + "\n", encoding="utf-8")
                print(f"{image}  {bill}")
            return 0
        problems = problems_of_tree(tag=options.tag, repository=options.repository)
        if not problems and options.command == "build":
            problems = build_all(options.dist)
        problems = problems or problems_of(options.dist)
    except (ReleaseError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 1
    print(table(options.dist))
    return 0


if __name__ == "__main__":
    sys.exit(main())
