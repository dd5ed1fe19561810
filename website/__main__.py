"""Build the documentation site: `python -m website [DIRECTORY]`, by default `build/site`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from website.build import SiteError, assemble, build, pages
from website.check import problems_of
from website.finish import finish
from website.npm import PackageError
from website.sources import ROOT, DeadLinkError


def make(site: Path) -> None:
    """Build the site into the directory *site*, in place of what is there, unless there are problems: SiteError."""
    sources = site.parent / f"{site.name}-sources"
    contents = pages()
    build(assemble(sources, contents))
    made = sources / "site"
    finish(made, contents)
    if problems := problems_of(made):
        raise SiteError(problems)
    shutil.rmtree(site, ignore_errors=True)
    made.replace(site)


def main() -> int:
    """Build it, and print what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m website", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=ROOT / "build" / "site")
    site: Path = parser.parse_args().directory.absolute()
    try:
        make(site)
    except SiteError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return 1
    except (DeadLinkError, PackageError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The site is in {site}: open {site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
