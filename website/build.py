"""Put all pages in one directory, and build the site from it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from toolexec.version import __version__
from website.api import SEARCH_PATHS, api_page
from website.commands import commands_page
from website.errors import errors_page
from website.examples import examples_page
from website.modules import API_PAGES
from website.navigation import as_nav, page_titles
from website.settings import settings_page
from website.sources import EXAMPLES, ROOT, documents, rewritten

_LINKED: Final = re.compile(r"\]\((?:\.\./)*files/([^)#\s]+)")
_THEME: Final = Path(__file__).parent / "theme"


class SiteError(Exception):
    """The site cannot be built as it is; each of the `problems` is one line."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def pages() -> dict[str, str]:
    """Return the text of each page by its path. Raises SiteError unless the navigation has each of them once."""
    found = {target: rewritten(_read(source), source, target) for source, target in documents().items()}
    found |= {page.path: api_page(page) for page in API_PAGES}
    found |= {
        "reference/commands.md": commands_page(),
        "reference/settings.md": settings_page(),
        "reference/errors.md": errors_page(),
        EXAMPLES: examples_page(),
    }
    listed = [path for _, _, path in page_titles()]
    problems = [f"{path} is not in the navigation (website/navigation.py)" for path in sorted({*found} - {*listed})]
    problems += [f"the navigation has {path}, which is not there" for path in sorted({*listed} - {*found})]
    problems += [f"the navigation has {path} twice" for path in sorted({*listed}) if listed.count(path) > 1]
    if problems:
        raise SiteError(problems)
    return found


def assemble(into: Path, contents: dict[str, str]) -> Path:
    """Write the sources of the site into the directory *into*, and return its configuration."""
    shutil.rmtree(into, ignore_errors=True)
    for path, text in contents.items():
        (into / "pages" / path).parent.mkdir(parents=True, exist_ok=True)
        (into / "pages" / path).write_text(_ranked(path, text), encoding="utf-8")
    for name in _files(contents):
        (into / "pages" / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, into / "pages" / "files" / name)
    (into / "pages" / "assets").mkdir()
    for name in ("site.css", "site.js"):
        shutil.copy(_THEME / name, into / "pages" / "assets")
    plugins = ["search", {"mkdocstrings": {"handlers": {"python": {"paths": [*SEARCH_PATHS], "options": _OPTIONS}}}}]
    own = {
        "site_name": f"toolexec {__version__}",
        "docs_dir": str(into / "pages"),
        "site_dir": str(into / "site"),
        "plugins": plugins,
        "nav": as_nav(),
    }
    lines = [f"{name}: {json.dumps(value)}" for name, value in own.items()]
    config = into / "mkdocs.yml"
    config.write_text("\n".join([_read_theme(), *lines]) + "\n", encoding="utf-8")
    return config


_OPTIONS: Final = {
    "allow_inspection": False,
    "extensions": ["website.doctests.Doctests"],
    "docstring_style": "google",
    "docstring_section_style": "list",
    "filters": ["!^_"],
    "inherited_members": False,
    "members_order": "source",
    "separate_signature": True,
    "show_bases": True,
    "show_docstring_attributes": True,
    "show_if_no_docstring": True,
    "show_root_full_path": False,
    "show_root_heading": True,
    "show_signature_annotations": True,
    "show_source": False,
    "show_symbol_type_heading": True,
    "show_symbol_type_toc": False,
    "signature_crossrefs": True,
}


def build(config: Path) -> None:
    """Build the site. Raises SiteError with what the generator says, for its warnings, too."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-f", str(config)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "true", "DISABLE_MKDOCS_2_WARNING": "true"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    if done.returncode:
        raise SiteError([*done.stdout.splitlines(), *done.stderr.splitlines()])


def _ranked(path: str, text: str) -> str:
    """Return a page with its weight in the search: what a word means comes first, then the tasks, and a class that has
    the word in its name last.
    """
    weights = {"concepts/": 8, "start.": 4, "tasks/": 4, "reference/api/": 0.3}
    weight = next((each for start, each in weights.items() if path.startswith(start)), 1)
    return f"---\nsearch:\n  boost: {weight}\n---\n\n{text}"


def _files(contents: dict[str, str]) -> list[str]:
    """Return the files of the repository that pages link to and that are not pages."""
    linked = {name for text in contents.values() for name in _LINKED.findall(text)}
    return sorted(name for name in linked if (ROOT / name).is_file())


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _read_theme() -> str:
    return (_THEME / "mkdocs.yml").read_text(encoding="utf-8")
