"""What code calls a tool: `tools.github.create_issue` for `github:create_issue`.

Where a name is not a Python name, its nearest one stands for it: `list-issues` is `list_issues`, `import` is `import_`.
The tool that has exactly the name always has it. Where several tools come to the same name and none has it exactly,
none of them gets it: `tools.run("github:list-issues", {...})` reaches each by its ID.
"""

from __future__ import annotations

import difflib
import itertools
import keyword
import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from toolexec.discovery.index import Index
from toolexec.discovery.view import IndexView
from toolexec.errors import InvalidVersionError, ToolNotFoundError
from toolexec.model.tool import Tool
from toolexec.model.version import Version

ToolPath: TypeAlias = tuple[str, ...]
"""The attributes that lead from `tools` to a tool: namespace and name, or the name alone."""

TOOLS_METHODS: Final = frozenset(
    {
        "describe",
        "describe_tool",
        "examples",
        "list_namespaces",
        "list_tool_examples",
        "println",
        "run",
        "run_chain",
        "run_tool",
        "search",
        "search_tools",
    }
)
"""What `tools` itself can do. A namespace of such a name, or a tool without a namespace, gets a `_` behind it."""

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_]", re.ASCII)
_WORD: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_MAX_ATTRIBUTE: Final = 300
_MAX_COMPARED: Final = 2_000
MAX_LISTED: Final = 20_000
"""Of a larger catalogue only the names as they are spelled count; others would take too long to list."""
_MAX_CLOSE: Final = 3
_READING: Final = frozenset(["fetch", "find", "get", "list", "load", "lookup", "query", "read", "search", "show"])
"""First words of names of tools that only read: one may mean another."""


def python_name(name: str) -> str:
    """Return the Python identifier for *name*: `_` for each character that cannot be in one, `_` before a digit at the
    start, one `_` for several at the start (Python has its own use for those), and `_` after a keyword.

    >>> [python_name(name) for name in ("list-issues", "2fa", "import", "__init__", "ok")]
    ['list_issues', '_2fa', 'import_', '_init__', 'ok']
    """
    if name.isidentifier() and name.isascii() and name[:2] != "__" and not keyword.iskeyword(name):
        return name
    result = _FOREIGN.sub("_", name)
    if result[:1].isdigit():
        return f"_{result}"
    if result[:2] == "__" or not result:
        return f"_{result.lstrip('_')}"
    return f"{result}_" if keyword.iskeyword(result) else result


def attribute_path(namespace: str, name: str) -> ToolPath:
    """Return the attributes that a tool of this namespace (may be empty) and name has if it shares them with no
    other.
    """
    first = python_name(namespace or name)
    if first in TOOLS_METHODS:
        first = f"{first}_"
    return (first, python_name(name)) if namespace else (first,)


def paths_of(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], ToolPath | None]:
    """Return the attributes that lead to each (namespace, name), or None if they lead to another one or to none."""
    paths = {key: attribute_path(*key) for key in keys}
    owners: dict[ToolPath, tuple[str, str] | None] = {}
    for key, path in paths.items():
        if path == _exact(key) or path not in owners:
            owners[path] = key
        else:
            taken = owners[path]
            owners[path] = taken if taken is not None and path == _exact(taken) else None
    return {key: path if owners[path] == key else None for key, path in paths.items()}


def preferred(tools: Iterable[Tool]) -> dict[tuple[str, str], Tool]:
    """Return the tool that `namespace:name` stands for, by (namespace, name): the one without a version, else the
    highest.
    """
    found: dict[tuple[str, str], Tool] = {}
    for tool in tools:
        key = (tool.namespace, tool.name)
        known = found.get(key)
        if known is None or _version_key(tool.version) > _version_key(known.version):
            found[key] = tool
    return found


class ToolNames:
    """From the attributes that code writes to the IDs of an index's tools.

    A name that is exactly a tool's is one look into the index, however many tools there are. For others all tools are
    listed, once for each state of the index. Safe to use from several threads at once.
    """

    __slots__ = ("__weakref__", "_book", "_index")

    def __init__(self, index: Index) -> None:
        self._index = index
        self._book: _Book | None = None

    def at(self, path: Sequence[str], *, allowed: Callable[[str], bool] | None = None) -> str:
        """Return the ID of the tool at *path*: its own, or the unversioned one that stands for its highest version.

        Where no tool is there, it is the only tool that *allowed* says yes to with the same names in another spelling
        (`listIssues`, `github__list_issues`), or in a path without a namespace the only one of that name.
        Raises ToolNotFoundError when no tool is there, or several without one that has the name exactly; its
        `details["close"]` lists those, or similar ones, and names no tool that *allowed* says no to.
        """
        parts = tuple(path)
        return self.exactly(parts) or self.meant(parts, allowed=allowed) or self._refuse(parts, allowed)

    def path_of(self, tool: Tool) -> ToolPath | None:
        """Return the attributes that lead to *tool*, a tool of the index; None when only its ID does."""
        path = attribute_path(tool.namespace, tool.name)
        found = self.exactly(path)
        entry = self._index.find(found) if found is not None else None
        return path if entry is not None and entry.tool.id == tool.id else None

    def meant(self, path: ToolPath, *, allowed: Callable[[str], bool] | None = None) -> str | None:
        """Return the ID of the only tool at *path* in another spelling, as `at` finds it; None without one."""
        book = self._book_now()
        if book.find(path):
            return None
        found = [tool_id for tool_id in book.spelled(path) if allowed is None or allowed(tool_id)]
        return found[0] if len(found) == 1 else None

    def exactly(self, path: ToolPath) -> str | None:
        """Return the ID of the only tool at *path*, in no other spelling; None without one."""
        exact = self._exact_id(path)
        if exact is not None:
            return exact
        found = self._book_now().find(path)
        return found[0] if len(found) == 1 else None

    def _exact_id(self, path: ToolPath) -> str | None:
        if not 1 <= len(path) <= 2:
            return None
        key = (path[0], path[1]) if len(path) == 2 else ("", path[0])
        if attribute_path(*key) != path:
            return None
        tool_id = ":".join(path)
        return tool_id if self._index.find(tool_id) is not None else None

    def _book_now(self) -> _Book:
        book = self._book
        version = self._index.version  # read before the tools are: an older one only means to look again
        if book is None or book.version != version:
            book = self._book = _Book(self._index, version)
        return book

    def _refuse(self, path: ToolPath, allowed: Callable[[str], bool] | None) -> NoReturn:
        asked = ":".join(part[:_MAX_ATTRIBUTE] for part in path[:3])
        book = self._book_now()
        close = [tool_id for tool_id in book.close_to(path) if allowed is None or allowed(tool_id)]
        details = {"ambiguous": True} if close and book.find(path) else None
        raise ToolNotFoundError(asked, close=close[:_MAX_CLOSE], details=details)


class _Book:
    """One state of an index: its names by namespace, and what they become in code, computed on demand."""

    __slots__ = ("_folded", "_names", "_odd", "_spaces", "version")

    def __init__(self, index: Index, version: int) -> None:
        self.version = version
        self._names: dict[str, list[str]] = {}
        self._spaces: dict[str, list[str]] = {}
        self._odd: dict[str, dict[ToolPath, list[str]]] = {}
        self._folded: dict[ToolPath, dict[str, None]] | None = None
        for entry in index.tools():
            self._names.setdefault(entry.tool.namespace, []).append(entry.tool.name)
        for namespace in self._names:
            if namespace:
                self._spaces.setdefault(attribute_path(namespace, "x")[0], []).append(namespace)

    def find(self, path: ToolPath) -> list[str]:
        """Return the IDs of the tools at *path* whose names are not exactly those in it."""
        if not 1 <= len(path) <= 2:
            return []
        first = path[0] if len(path) == 2 else ""
        odd = self._odd.get(first)
        if odd is None:
            odd = {}
            for key in self._keys(first):
                found = attribute_path(*key)
                if found != _exact(key):
                    odd.setdefault(found, []).append(":".join(_exact(key)))
            if first in self._spaces or not first:
                self._odd[first] = odd
        return odd.get(path, [])

    def spelled(self, path: ToolPath) -> list[str]:
        """Return the IDs of the tools whose names are those of *path* but for case and `_`; of a path without a
        namespace also those that have the name in any namespace."""
        if not 1 <= len(path) <= 2 or not all(part.isidentifier() for part in path):
            return []
        path = (path[0].removeprefix("mcp__"),) if len(path) == 1 else path
        if self._folded is None:
            self._folded = {}
            if sum(map(len, self._names.values())) <= MAX_LISTED:
                for space, names in self._names.items():
                    for name in names:
                        tool_id = ":".join(_exact((space, name)))
                        for key in {(_fold(space), _fold(name)), ("", _fold(name)), ("", _fold(space + name))}:
                            self._folded.setdefault(key, {})[tool_id] = None
        space, name = path if len(path) == 2 else ("", path[0])
        return list(self._folded.get((_fold(space[:_MAX_ATTRIBUTE]), _fold(name[:_MAX_ATTRIBUTE])), ()))

    def _keys(self, first: str) -> dict[tuple[str, str], None]:
        """Return the (namespace, name) of all tools whose path begins with *first*; empty: of those with no
        namespace.
        """
        spaces = self._spaces.get(first, ()) if first else ("",)
        return {(space, name): None for space in spaces for name in self._names.get(space, ())}

    def close_to(self, path: ToolPath) -> list[str]:
        """IDs of the tools that may have been meant, best first."""
        shared = self.find(path)
        if shared or not 1 <= len(path) <= 2:
            return shared
        if len(path) == 1:
            return self._similar("", path[0]) or self.spelled(path) or self._some(path[0])
        if path[0] in self._spaces:
            return self._likely(path[0], path[1]) or self._some(path[0])
        if elsewhere := self.spelled(path[1:]):
            return elsewhere
        spaces = difflib.get_close_matches(path[0][:_MAX_ATTRIBUTE], list(self._spaces)[:_MAX_COMPARED])
        near = [tool_id for space in spaces for tool_id in self._similar(space, path[1]) or self._some(space)]
        return near or self._by_words(path)

    def _by_words(self, path: ToolPath) -> list[str]:
        """Return the IDs of the tools that have all words of *path*: `shop:get_order` for `orders:get`."""
        asked = _words(path)
        keys = itertools.islice(
            ((space, name) for space, names in self._names.items() for name in names), _MAX_COMPARED
        )
        return [":".join(_exact(key)) for key in keys if asked <= _words(key)]

    def _similar(self, first: str, name: str) -> list[str]:
        known: dict[str, ToolPath] = {}
        for key in itertools.islice(self._keys(first), _MAX_COMPARED):
            known.setdefault(python_name(key[1]), _exact(key))
        return [":".join(known[found]) for found in difflib.get_close_matches(name[:_MAX_ATTRIBUTE], known)]

    def _likely(self, first: str, name: str) -> list[str]:
        """Return the IDs of the tools of a namespace whose names share words with *name*, or are spelled like it: those
        first that share most; what reads is not meant by what writes."""
        asked, found, similar = _words(("", name)), dict[str, float](), self._similar(first, name)
        verb, _, wanted = name.partition("_")
        for key in itertools.islice(self._keys(first), _MAX_COMPARED):
            tool_id, words = ":".join(_exact(key)), _words(("", key[1]))
            if asked & words or tool_id in similar:
                own = python_name(key[1])
                does, _, what = own.partition("_")
                alike = difflib.SequenceMatcher(None, name[:_MAX_ATTRIBUTE], own).ratio()
                shared = len(asked & words) - (
                    does == verb and bool(what and wanted)
                )  # of what, not what is done with it
                done = 1.0 if does == verb else 0.0 if verb not in _READING else 0.75 if does in _READING else -2.0
                is_same = bool(wanted) and what == wanted
                found[tool_id] = 2 * shared + done + is_same / 4 - len(words - asked) / 4 + alike
        return sorted(found, key=lambda tool_id: -found[tool_id])[:_MAX_CLOSE]

    def _some(self, first: str) -> list[str]:
        return [":".join(key) for key in itertools.islice(self._keys(first), _MAX_CLOSE)] if first else []


_by_index: weakref.WeakKeyDictionary[Any, ToolNames] = weakref.WeakKeyDictionary()


def path_in(tool_id: str) -> ToolPath:
    """Return the path that an ID in another spelling stands for, as `github.list_issues` and `github/list_issues`."""
    first, _, rest = tool_id.replace("/", ":").replace(".", ":").partition(":")
    return (first, rest) if rest else (first,)


def tool_at(index: Index, path: Sequence[str], *, allowed: Callable[[str], bool] | None = None) -> str:
    """Return the ID of *index*'s tool at *path*, such as `("github", "create_issue")`; raises as `ToolNames.at` does.

    What was learned about an index is kept as long as that lives; keep a `ToolNames` for an index that cannot be
    referenced weakly.
    """
    return names_of(index).at(path, allowed=allowed)


def named_at(index: Index, path: Sequence[str]) -> str | None:
    """Return the ID of the only tool at *path* in just this spelling, also of one that rules hide from callers of
    *index*: its call says that it is refused, as by its ID. None without one, and where rules hide nothing."""
    whole = index.whole if isinstance(index, IndexView) else None
    return names_of(whole).exactly(tuple(path)) if whole is not None else None


def names_of(index: Index) -> ToolNames:
    """Return the names of an index, those that are known already if it can be referenced weakly."""
    try:
        names = _by_index.get(index)
        if names is None:
            # Kept by value, a ToolNames would keep its own key alive; the proxy does not keep the index alive.
            names = _by_index.setdefault(index, ToolNames(weakref.proxy(index)))
    except TypeError:
        names = ToolNames(index)
    return names


def _exact(key: tuple[str, str]) -> ToolPath:
    """Return the path of a tool whose names need no change."""
    return key if key[0] else key[1:]


def _words(path: ToolPath) -> set[str]:
    return {word.lower().removesuffix("s") for part in path for word in _WORD.findall(part[:_MAX_ATTRIBUTE])}


def _fold(name: str) -> str:
    """Return a name without what spellings of it differ in."""
    return _FOREIGN.sub("", name).replace("_", "").lower()


def _version_key(version: str) -> tuple[int, Any, str]:
    """No version first of all, then semantic versions by precedence, then all other strings: as an index chooses."""
    if not version:
        return (2, 0, "")
    try:
        return (1, Version.parse(version), version)
    except InvalidVersionError:
        return (0, 0, version)
