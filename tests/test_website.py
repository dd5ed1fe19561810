"""The documentation site: what is generated equals what the code declares, and the built site has all of it."""

from __future__ import annotations

import importlib
import re
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests import tiers
from tests.command_line import commands_of
from tests.test_docs import DOCUMENTS, blocks, by_name, commands
from website import api, build, check, finish
from website.commands import commands_page
from website.errors import errors_page
from website.examples import examples_page
from website.modules import API_PAGES, entries
from website.navigation import page_titles
from website.npm import PackageError
from website.settings import settings_page
from website.sources import ROOT, DeadLinkError, rewritten

from toolexec import errors
from toolexec.cli.app import app
from toolexec.config.blocks import KEYS
from toolexec.config.template import toml_value

TASKS = sorted((ROOT / "docs" / "tasks").glob("*.md"))
LEARNED = [*TASKS, *sorted((ROOT / "docs" / "concepts").glob("*.md")), ROOT / "docs" / "start.md"]


def section(page: str, heading: str) -> str:
    """Return what is below a heading, up to the next one of its level or of the one above it."""
    level = len(heading.partition(" ")[0])
    return page.partition(f"\n{heading}\n")[2].split(f"\n{'#' * level} ")[0].split(f"\n{'#' * (level - 1)} ")[0]


def test_the_settings_are_those_that_are_declared() -> None:
    """The page has one row for each setting, in the section of its block, with its kind, default and help."""
    page = settings_page()
    for key in KEYS.values():
        row = f"| `{key.name}` | {key.kind.name} | `{toml_value(key.default)}` | {key.help}"
        assert row in section(page, f"## {key.block}").replace("\\|", "|"), key.path
    assert len(re.findall(r"^\| `", page, re.MULTILINE)) == len(KEYS)


def test_the_commands_are_those_of_the_app() -> None:
    """The page has a section for each command and group, with each of its options and arguments."""
    page = commands_page()
    group = commands_of(app)
    waiting = [("toolexec", group)]
    found: list[str] = []
    while waiting:
        words, command = waiting.pop()
        waiting += [(f"{words} {name}", inner) for name, inner in getattr(command, "commands", {}).items()]
        found.append(words)
        below = section(page, f"{'##' if words.count(' ') < 2 else '###'} {words}")
        names = [name for param in command.params for name in param.opts if param.param_type_name == "option"]
        assert [
            name for name in names if f"{name}`" not in below and f"{name} " not in below and f"{name}," not in below
        ] == []
    assert len(found) > 70
    assert sorted(re.findall(r"^##+ (toolexec.*)$", page, re.MULTILINE)) == sorted(found)


def test_the_errors_are_those_of_the_tree() -> None:
    """The page has one row for each code, and one section for each class."""
    page = errors_page()
    kinds = [kind for kind in map(errors.__dict__.get, errors.__all__) if isinstance(kind, type)]
    classes = {kind for kind in kinds if issubclass(kind, errors.ToolExecError)}
    codes = {code for kind in classes for code in (kind.code, *vars(kind).get("further_codes", ()))}
    assert set(re.findall(r"^\| `(\w+)` ", page, re.MULTILINE)) == codes
    assert sorted(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == sorted(kind.__name__ for kind in classes)


def test_the_examples_are_those_of_the_repository() -> None:
    """The page has the whole text of each program."""
    page = examples_page()
    for path in (*ROOT.glob("examples/*.py"), *ROOT.glob("packages/*/examples/*.py")):
        assert path.read_text(encoding="utf-8").rstrip() in page, path


def test_the_api_has_every_name() -> None:
    """Each page of the API describes each name of its modules, or leads to the page that does."""
    for page in API_PAGES:
        text = api.api_page(page)
        for entry in (entry for module in page.modules for entry in entries()[module]):
            assert f"::: {entry.definition}\n" in text or f"#{entry.identifier})" in text, entry
    modules = {module for page in API_PAGES for module in page.modules}
    assert {name: len(entries()[name]) for name in modules} == {
        name: len(importlib.import_module(name).__all__) for name in modules
    }


@cache
def described() -> set[int]:
    """Return the identities of all that the API describes."""
    return {
        id(getattr(importlib.import_module(each.module), each.name)) for some in entries().values() for each in some
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=by_name)
def test_what_a_document_imports_is_in_the_reference(path: Path) -> None:
    """A name that a document imports from toolexec is described in the API, wherever it is imported from."""
    missing: list[str] = []
    for module, names in re.findall(r"^from (toolexec[\w.]*) import ([^(\n]+)$", path.read_text(), re.MULTILINE):
        for name in (name.partition(" as ")[0].strip() for name in names.partition("#")[0].split(",")):
            value = getattr(importlib.import_module(module), name)
            missing += [f"{module}.{name}"] if id(value) not in described() else []
    assert missing == []


def test_every_page_is_in_the_navigation_once() -> None:
    """All documents become pages, with links that lead to pages, and each page has its place."""
    contents = build.pages()
    assert sorted(contents) == sorted(path for _, _, path in page_titles())
    assert [name for name, text in contents.items() if not text.startswith("# ")] == []


def test_a_page_that_has_no_place_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that the navigation does not name, and a place without a document, stop the build."""
    documents = build.documents()
    documents["docs/start.md"] = "elsewhere.md"
    monkeypatch.setattr(build, "documents", lambda: documents)
    with pytest.raises(build.SiteError) as caught:
        build.pages()
    assert len(caught.value.problems) == 2
    assert "elsewhere.md is not in the navigation" in caught.value.problems[0]


def test_links_lead_to_pages_of_the_site() -> None:
    """Links between documents, to examples and to the README become links between pages; code stays as it is."""
    text = (
        "[a](../README.md#install) [b](../examples/basic.py) [c](concepts/gate.md) [d](decisions/) [e](#x) "
        "`[f](nowhere.md)`\n\n<!-- file: app.py -->\n```python\nx = '[g](nowhere.md)'\n```\n\n<!-- no-run -->\n```sh\nls\n```\n"
    )
    assert rewritten(text, "docs/serve.md", "serve.md") == (
        "[a](tour.md#install) [b](reference/examples.md#basic) [c](concepts/gate.md) [d](decisions/index.md) [e](#x) "
        "`[f](nowhere.md)`\n\n```python title=\"app.py\"\nx = '[g](nowhere.md)'\n```\n\n```sh\nls\n```\n"
    )
    with pytest.raises(DeadLinkError, match=r"serve\.md links to nowhere"):
        rewritten("[a](nowhere.md)", "docs/serve.md", "serve.md")


def test_programs_find_every_page() -> None:
    """`llms.txt` has a line for each page, and `llms-full.txt` the text of each."""
    contents = build.pages()
    index, full = finish.llms(contents), finish.llms_full(contents)
    listed = re.findall(r"^- \[.+\]\((\S+)\): \S", index, re.MULTILINE)
    assert listed == [path for _, _, path in page_titles()]
    assert [path for path, text in contents.items() if text.strip() not in full] == []


@pytest.mark.parametrize("path", TASKS, ids=by_name)
def test_a_task_is_short(path: Path) -> None:
    """A task takes at most twelve commands and forty lines of files and programs, and some of it is run here."""
    count = lines = run = 0
    for block in blocks(path):
        text = [line for line in block.text.splitlines() if line.strip()]
        if block.language == "console":
            count += len(commands(block.text))
        elif block.language == "sh":
            count += len(text)
        elif block.language != "text":
            lines += len(text)
        run += block.language in {"console", "python"} and block.note != "no-run"
    assert (count <= 12, lines <= 40, run > 0) == (True, True, True), (count, lines, run)


def test_there_are_ten_tasks() -> None:
    """The titles of the navigation are those of the pages."""
    listed = {path: title for above, title, path in page_titles() if path.startswith("tasks/")}
    assert listed == {f"tasks/{path.name}": path.read_text().splitlines()[0].removeprefix("# ") for path in TASKS}
    assert len(listed) == 10


@pytest.mark.parametrize("path", LEARNED, ids=by_name)
def test_a_page_opens_with_what_it_is_for(path: Path) -> None:
    """The first thing below the title is a sentence, and there is something to run."""
    first = path.read_text().split("\n\n")[1]
    assert re.match(r"[A-Z].*\.", first), first
    assert {block.language for block in blocks(path)} & {"python", "console", "sh"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    if find_spec("mkdocs") is None or find_spec("mkdocstrings_handlers") is None:
        tiers.missing("the generator of the site is not installed", "make docs")
    try:
        finish.MERMAID.path()
    except PackageError as error:
        tiers.missing(str(error), "make docs")
    from website.__main__ import make

    into = tmp_path_factory.mktemp("site") / "site"
    make(into)
    return into


@pytest.mark.full
def test_the_built_site_is_whole(site: Path) -> None:
    """No link is dead, no page is an orphan, every public name has an entry, and nothing comes from another host."""
    assert check.problems_of(site) == []
    assert (site / "search" / "search_index.json").exists()
    for _, _, path in page_titles():
        assert (site / path).exists(), "as Markdown"
        assert (site / path).with_suffix(".html").exists()
    assert "::: " not in (site / "llms-full.txt").read_text()


@pytest.mark.full
def test_what_is_wrong_with_a_site_is_found(site: Path, tmp_path: Path) -> None:
    """A dead link, a wrong heading, an orphan, a foreign script and a missing name are each reported."""
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    page = broken / "start.html"
    wrong = '<a href="nowhere.html">a</a><a href="policy.html#nowhere">b</a><script src="https://example.com/x.js"></script>'
    page.write_text(page.read_text().replace("</article>", f"{wrong}</article>"))
    (broken / "orphan.html").write_text("<p>alone</p>")
    api_of_errors = broken / "reference" / "api" / "errors.html"
    api_of_errors.write_text(api_of_errors.read_text().replace('id="toolexec.errors.RunBusyError"', ""))
    found = "\n".join(check.problems_of(broken))
    for problem in (
        "start.html links to nowhere.html, which is not there",
        "start.html links to policy.html#nowhere; the page has no such heading",
        "no page leads to orphan.html",
        "start.html loads https://example.com/x.js from another host",
        "reference/api/errors.md does not describe toolexec.errors.RunBusyError",
    ):
        assert problem in found
