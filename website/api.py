"""The pages of the API: what each public module exports, in its words."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from website.doctests import fenced
from website.modules import API_PAGES, APIPage, Entry, entries
from website.sources import ROOT

if TYPE_CHECKING:
    import griffe

SEARCH_PATHS: Final = tuple(str(path) for path in (ROOT / "src", *sorted((ROOT / "packages").glob("*/src"))))


def api_page(page: APIPage) -> str:
    """Return a page with directives in the places of the descriptions, which the site generator fills in."""
    return _page(page, lambda entry: _directive(entry, _depth(page)))


def api_markdown(page: APIPage) -> str:
    """Return the same page with the descriptions themselves, for readers of Markdown."""
    return _page(page, lambda entry: [*_described(entry)])


def undocumented() -> list[str]:
    """Return the public names that say nothing of what they are, but for those that guests load, too: these bring no
    words with them."""
    unique = {entry.identifier: _object(entry) for each in entries().values() for entry in each}
    del unique["toolexec.__version__"]
    return [
        name
        for name, thing in unique.items()
        if not thing.has_docstring and "guest" not in str(thing.canonical_path).split(".")
    ]


def _depth(page: APIPage) -> int:
    """Return the level of the headings of names: below those of modules, where a page has several."""
    return 3 if len(page.modules) > 1 else 2


def _directive(entry: Entry, depth: int) -> list[str]:
    anchor = [f'<a id="{entry.identifier}"></a>', ""] if entry.definition != entry.identifier else []
    return [*anchor, f"::: {entry.definition}", "    options:", f"      heading_level: {depth}"]


def _page(page: APIPage, describe: Callable[[Entry], list[str]]) -> str:
    lines = [f"# {page.title}", "", page.about, ""]
    for module in page.modules:
        names = entries()[module]
        if len(page.modules) > 1:
            lines += [f"## {module}", ""]
        lines += [
            fenced(inspect.getdoc(import_module(module)) or ""),
            "",
            "```python",
            *_import(module, names),
            "```",
            "",
        ]
        elsewhere = [entry for entry in names if entry.home != module]
        if elsewhere:
            links = ", ".join(f"[`{entry.name}`]({_link(entry, page.path)})" for entry in elsewhere)
            lines += [f"Also exported here, and described where these lead: {links}.", ""]
        for entry in names:
            if entry.home == module:
                lines += [*describe(entry), ""]
    return "\n".join(lines)


def _import(module: str, names: tuple[Entry, ...]) -> list[str]:
    """Return the statement that imports *names*, wrapped."""
    whole = ", ".join(entry.name for entry in names)
    if len(whole) < 70:
        return [f"from {module} import {whole}"]
    return [
        f"from {module} import (",
        *textwrap.wrap(f"{whole},", 90, initial_indent="    ", subsequent_indent="    "),
        ")",
    ]


def _link(entry: Entry, path: str) -> str:
    home = next(page.path for page in API_PAGES if entry.home in page.modules)
    return f"{os.path.relpath(home, PurePosixPath(path).parent) if home != path else ''}#{entry.identifier}"


# -- as Markdown ----------------------------------------------------------------------------------------------------


@cache
def _modules() -> griffe.ModulesCollection:
    """Read all modules, without importing them."""
    import griffe

    loader = griffe.GriffeLoader(search_paths=[*SEARCH_PATHS])
    for package in dict.fromkeys(module.partition(".")[0] for page in API_PAGES for module in page.modules):
        loader.load(package)
    loader.resolve_aliases()
    return loader.modules_collection


def _object(entry: Entry) -> Any:
    found: Any = _modules()[entry.definition]
    return found.final_target if found.is_alias else found


def _described(entry: Entry) -> Iterator[str]:
    thing = _object(entry)
    yield from (f"### {entry.identifier}", "", "```python", _head(thing, entry.name), "```", "", _text(thing), "")
    if not thing.is_class:
        return
    for name, member in thing.members.items():
        if not name.startswith("_") and not member.is_alias and member.has_docstring:
            yield from (f"#### {entry.name}.{name}", "", "```python", _head(member, name), "```", "", _text(member), "")


def _text(thing: Any) -> str:
    return fenced(str(thing.docstring.value)) if thing.has_docstring else ""


def _head(thing: Any, name: str) -> str:
    """Return the first line of a definition, as the code has it."""
    if thing.is_class:
        bases = ", ".join(map(str, thing.bases))
        own = _parameters(thing.parameters)
        return f"class {name}{f'({bases})' if bases else ''}" + (f"  # {name}({own})" if own else "")
    if thing.is_function:
        returns = f" -> {thing.returns}" if thing.returns is not None else ""
        return f"{'async ' if 'async' in thing.labels else ''}def {name}({_parameters(thing.parameters)}){returns}"
    kind = f": {thing.annotation}" if thing.annotation is not None else ""
    value = f" = {thing.value}" if thing.value is not None and not thing.is_function else ""
    return textwrap.shorten(f"{name}{kind}{value}", 300, placeholder=" ...")


def _parameters(parameters: Any) -> str:
    marks = {"variadic positional": "*", "variadic keyword": "**"}
    parts: list[str] = []
    keywords = False
    for each in parameters:
        kind = each.kind.value if each.kind is not None else ""
        if each.name in {"self", "cls"}:
            continue
        if kind == "keyword-only" and not keywords:
            parts.append("*")
        keywords = keywords or kind in {"keyword-only", "variadic positional"}
        hint = f": {each.annotation}" if each.annotation is not None else ""
        default = f" = {each.default}" if each.default is not None and kind not in marks else ""
        parts.append(f"{marks.get(kind, '')}{each.name}{hint}{default}")
    return ", ".join(parts)
