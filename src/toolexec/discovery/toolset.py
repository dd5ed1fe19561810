"""A named part of all tools, said by what the tools are: all that an agent, an `Exec` or a server may see."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Final, TypeAlias

from toolexec.discovery.index import Index, Registered
from toolexec.discovery.summary import Filters, Metadata
from toolexec.discovery.view import IndexView, both_filters
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.id_patterns import IDPatterns
from toolexec.model.ids import check_segment
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.settings import checked
from toolexec.model.tags import normalize_tags

logger: logging.Logger = logging.getLogger(__name__)

_HINTS: Final = ("read_only", "destructive", "idempotent", "open_world")
_TEXTS: Final = ("namespaces", "any_tags", "all_tags", "no_tags", "categories", "backends", "allow", "deny")
_SETS: Final = ("all_of", "any_of", "none_of")
_MAX_TEXTS: Final = 10_000
_MAX_TEXT: Final = 500
_MAX_QUERY: Final = 1_000
_MAX_SIZE: Final = 500
_MAX_DEPTH: Final = 16


_Test: TypeAlias = Callable[[Registered], bool]


@checked("Toolset", leave="*")
@dataclass(frozen=True, slots=True)
class Toolset:
    """The tools that meet every condition given here; nothing, where none is given.

    >>> safe = Toolset("safe", namespaces=["github", "git"], read_only=True, deny="git:secret_*")
    >>> safe.describe()
    'safe: tools of the namespace github or git, that only read, except those with an ID like git:secret_*'

    It is a rule, not a list: `view` shows those tools of an index that are in it at the moment. A single value may
    stand for a list of one. Conditions with an empty list are met by no tool, but `all_tags`, `no_tags`, `deny` and
    `none_of`, which then say nothing.

    `namespaces` and `categories`: the tool has one of them (`""` means none). `any_tags`, `all_tags`, `no_tags`: it has
    one, all, none of them. `backends`: calls of it go to one of these, by kind (`mcp`), name (`github`) or both
    (`mcp:github`). `read_only`, `destructive`, `idempotent`, `open_world`: its annotations say so, as a caller must
    read them (see `Filters`). `allow`: its ID is like one of these patterns, as in a shell, case-sensitive; one that
    fits the ID without its version fits all versions. `query`: a search for these words finds it among the best *limit*
    of those tools that meet all other conditions. `where`: the function says yes; it must be quick and always say the
    same of the same tool, and a tool that it raises for is in nothing that is made of this toolset. `all_of`,
    `any_of`: it is in all, in one of these toolsets. Last of all, whatever was said before, `deny`: its ID is like none
    of these patterns; `none_of`: it is in none of these toolsets.

    `a & b`, `a | b` and `a - b` make a new one. Raises ConfigurationError for a condition that makes no sense.
    """

    name: str = ""
    _: KW_ONLY
    description: str = ""
    namespaces: Sequence[str] | None = None
    any_tags: Sequence[str] | None = None
    all_tags: Sequence[str] = ()
    no_tags: Sequence[str] = ()
    categories: Sequence[str] | None = None
    backends: Sequence[str] | None = None
    read_only: bool | None = None
    destructive: bool | None = None
    idempotent: bool | None = None
    open_world: bool | None = None
    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()
    query: str = ""
    limit: int = 20
    where: Callable[[Registered], bool] | None = None
    all_of: Sequence[Toolset] = ()
    any_of: Sequence[Toolset] | None = None
    none_of: Sequence[Toolset] = ()
    filters: Filters = field(init=False, repr=False, compare=False)
    """What every tool of it passes for certain; an index may apply it before anything else."""
    depth: int = field(init=False, repr=False, compare=False)
    """How many toolsets are within each other, this one included."""
    size: int = field(init=False, repr=False, compare=False)
    """How many toolsets it is made of, this one included."""
    _tests: tuple[_Test, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("name", "description", "query"):
            _check_text(name, getattr(self, name), _MAX_QUERY)
        for name in _TEXTS:
            value = getattr(self, name)
            put(self, name, None if value is None else _strings(name, value))
        for name in ("any_tags", "all_tags", "no_tags"):
            tags = getattr(self, name)
            put(self, name, None if tags is None else tuple(_tag(name, tag) for tag in tags))
        for namespace in self.namespaces or ():
            problem = check_segment(namespace) if namespace else ""
            if problem:
                raise ConfigurationError(f"the namespace {namespace!r} of a toolset {problem}; allow takes patterns")
        for name in _HINTS:
            if not isinstance(getattr(self, name), bool | None):
                raise ConfigurationError(f"{name} of a toolset must be true or false, not {getattr(self, name)!r}")
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or not 1 <= self.limit <= _MAX_TEXTS:
            raise ConfigurationError(f"limit of a toolset must be 1 to {_MAX_TEXTS}, not {self.limit!r}")
        if self.where is not None and not callable(self.where):
            raise ConfigurationError(f"where of a toolset must be a function of a tool, not {self.where!r}")
        self._put_sets()
        put(self, "filters", self._make_filters())
        put(self, "_tests", self._make_tests())

    def _put_sets(self) -> None:
        put = object.__setattr__
        parts: list[Toolset] = []
        for name in _SETS:
            value = getattr(self, name)
            if value is None:
                continue
            sets = (value,) if isinstance(value, Toolset) else value
            if not isinstance(sets, Sequence) or not all(isinstance(each, Toolset) for each in sets):
                raise ConfigurationError(f"{name} of a toolset must be a list of toolsets, not {value!r}")
            put(self, name, tuple(sets))
            parts += sets
        depth, size = 1 + max((part.depth for part in parts), default=0), 1 + sum(part.size for part in parts)
        if depth > _MAX_DEPTH or size > _MAX_SIZE:
            raise ConfigurationError(
                f"a toolset can be made of at most {_MAX_SIZE} others, {_MAX_DEPTH} deep; make it simpler"
            )
        put(self, "depth", depth)
        put(self, "size", size)

    def _make_filters(self) -> Filters:
        sole = self.namespaces[0] if self.namespaces is not None and len(self.namespaces) == 1 else None
        backend = self.backends[0] if self.backends is not None and len(self.backends) == 1 else None
        own = Filters(
            namespace=sole,
            tags=tuple(self.all_tags),
            backend=backend if backend is not None and ":" not in backend else None,
            **{name: getattr(self, name) for name in _HINTS},
        )
        for part in self.all_of:
            own = both_filters(own, part.filters) or own
        return own

    # -- what is in it ------------------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no condition is given, so that no tool is in it."""
        given = (self.namespaces, self.any_tags, self.categories, self.backends, self.allow, self.any_of, self.where)
        hints = (getattr(self, name) for name in _HINTS)
        said = (self.all_tags, self.no_tags, self.deny, self.query, self.all_of, self.none_of)
        return all(part is None for part in (*given, *hints)) and not any(said)

    @property
    def is_ranked(self) -> bool:
        """Whether it goes by a search somewhere, so that a change of one tool may let others in or out."""
        parts = (*self.all_of, *(self.any_of or ()), *self.none_of)
        return bool(self.query) or any(part.is_ranked for part in parts)

    def on(self, index: Index) -> Members:
        """Says of the tools of *index* whether they are in."""
        return Members(self, index)

    def view(self, index: Index) -> IndexView:
        """*index* as if there were no other tools than these; what is added later and belongs here is there at once."""
        return IndexView(index, Members(self, index), filters=self.filters, ranked=self.is_ranked)

    def accepts(self, entry: Registered) -> bool:
        """Return whether the tool meets the conditions that are about itself alone: not the query, and not other
        toolsets.

        Raises whatever `where` raises.
        """
        return all(test(entry) for test in self._tests)

    def _make_tests(self) -> tuple[_Test, ...]:
        """Return one test for each condition about a tool itself, the quick ones first."""
        if self.is_empty:
            return (lambda _: False,)
        tests: list[_Test] = []
        if self.namespaces is not None:
            namespaces = frozenset(self.namespaces)
            tests.append(lambda entry: entry.tool.namespace in namespaces)
        if self.any_tags is not None:
            any_tags = frozenset(self.any_tags)
            tests.append(lambda entry: not any_tags.isdisjoint(entry.tool.tags))
        if self.all_tags:
            all_tags = frozenset(self.all_tags)
            tests.append(lambda entry: all_tags.issubset(entry.tool.tags))
        if self.no_tags:
            no_tags = frozenset(self.no_tags)
            tests.append(lambda entry: no_tags.isdisjoint(entry.tool.tags))
        if self.backends is not None:
            backends = frozenset(self.backends)
            tests.append(lambda entry: not backends.isdisjoint(_places(entry)))
        if any(getattr(self, name) is not None for name in _HINTS):
            hints = Filters(**{name: getattr(self, name) for name in _HINTS})
            tests.append(lambda entry: hints.accept(entry.tool, ()))
        if self.categories is not None:
            categories = frozenset(self.categories)
            tests.append(lambda entry: Metadata(entry.tool.meta).category in categories)
        if self.allow is not None:
            allowed = IDPatterns("allow of a toolset", self.allow)
            tests.append(lambda entry: allowed.match(entry.tool.id))
        if self.deny:
            denied = IDPatterns("deny of a toolset", self.deny)
            tests.append(lambda entry: not denied.match(entry.tool.id))
        if self.where is not None:
            tests.append(self.where)
        return tuple(tests)

    # -- more of them -------------------------------------------------------------------------------------------

    def __and__(self, other: Toolset) -> Toolset:
        return Toolset(all_of=(*_parts(self, "all_of"), *_parts(other, "all_of")))

    def __or__(self, other: Toolset) -> Toolset:
        return Toolset(any_of=(*_parts(self, "any_of"), *_parts(other, "any_of")))

    def __sub__(self, other: Toolset) -> Toolset:
        return Toolset(all_of=(self,), none_of=(other,))

    @staticmethod
    def union(toolsets: Iterable[Toolset], name: str = "") -> Toolset:
        """Return the tools that are in any of *toolsets*: none, if there are none."""
        found = Toolset(any_of=())
        for each in toolsets:
            found |= each
        return replace(found, name=name)

    # -- in words, and as data ----------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return what is in it, in words."""
        return f"{self.name}: {_in_words(self)}" if self.name else _in_words(self)

    def to_dict(self) -> JSONDict:
        """Return the toolset as JSON-able data, without what is not given; raises ConfigurationError for `where`, which
        is a function."""
        if self.where is not None:
            raise ConfigurationError(f"the toolset {self.name} has a function in where, which cannot be written down")
        data: JSONDict = {}
        for each in _KEYS:
            value = getattr(self, each.name)
            if value == each.default:
                continue
            if each.name in _SETS:
                value = [part.to_dict() for part in value]
            data[each.name] = list(value) if isinstance(value, tuple) else value
        return data

    @classmethod
    def from_dict(cls, data: JSONObject, name: str = "") -> Toolset:
        """Read a toolset from JSON data with the fields above, but for `where`; *name* is for one that has none.

        Raises ConfigurationError for unknown keys, naming the nearest one, for empty lists and for values that make no
        sense.
        """
        return cls._read(data, name, 1)

    @classmethod
    def _read(cls, data: object, name: str, depth: int) -> Toolset:
        known = [each.name for each in _KEYS]
        if not isinstance(data, Mapping):
            raise ConfigurationError(f"a toolset must be a mapping of {', '.join(known)}, not {type(data).__name__}")
        if depth > _MAX_DEPTH:
            raise ConfigurationError(f"a toolset can be made of others at most {_MAX_DEPTH} deep; make it simpler")
        for key in data:
            if key not in known:
                hint = did_you_mean(key, known, otherwise=f"the keys are {', '.join(known)}")
                raise ConfigurationError(f"a toolset has the unknown key {str(key)[:_MAX_TEXT]!r}; {hint}")
        values: JSONDict = {"name": name, **data}
        for key in (*_TEXTS, *_SETS):
            if key not in data:
                continue
            value = data[key]
            if value is None or (not isinstance(value, str) and isinstance(value, Sequence) and not value):
                raise ConfigurationError(f"{key} of a toolset is empty; leave it out if it shall not matter")
            if key in _SETS:
                if not isinstance(value, Sequence) or isinstance(value, str):
                    raise ConfigurationError(f"{key} of a toolset must be a list of toolsets")
                values[key] = [cls._read(each, "", depth + 1) for each in value]
        return cls(**values)


_KEYS: Final = tuple(each for each in fields(Toolset) if each.init and each.name != "where")


class Members:
    """Says of the tools of *index* whether they are in *toolset*, as they are at the moment: the `Visible` of a view.
    Safe to use from several threads at once."""

    __slots__ = ("_all_of", "_any_of", "_best", "_index", "_none_of", "toolset")

    def __init__(self, toolset: Toolset, index: Index) -> None:
        self.toolset: Toolset = toolset
        self._index = index
        self._all_of = tuple(Members(part, index) for part in toolset.all_of)
        self._any_of = None if toolset.any_of is None else tuple(Members(part, index) for part in toolset.any_of)
        self._none_of = tuple(Members(part, index) for part in toolset.none_of)
        self._best: tuple[int, frozenset[str]] = (-1, frozenset())

    def __call__(self, entry: Registered) -> bool:
        """Return whether the tool is in. Raises nothing: one that `where` fails on is not."""
        try:
            return self.holds(entry)
        except Exception as error:
            name, kind = self.toolset.name, type(error).__name__
            logger.warning("where of the toolset %s failed on %s: %s", name, entry.tool.id, kind)
            return False

    def holds(self, entry: Registered) -> bool:
        """Return whether the tool is in; raises whatever `where` raises."""
        return self._fits(entry) and (not self.toolset.query or entry.tool.id in self._found())

    def _fits(self, entry: Registered) -> bool:
        """Return whether it meets all conditions but the query. What a part raises is left to the outermost one: in
        doubt, a tool must not be let in because it may not be in what is taken away."""
        if not self.toolset.accepts(entry) or not all(part.holds(entry) for part in self._all_of):
            return False
        if self._any_of is not None and not any(part.holds(entry) for part in self._any_of):
            return False
        return not any(part.holds(entry) for part in self._none_of)

    def _fits_surely(self, entry: Registered) -> bool:
        try:
            return self._fits(entry)
        except Exception:
            return False

    def _found(self) -> frozenset[str]:
        """Return the IDs that the query finds in this version of the index."""
        version, found = self._best
        now = self._index.version
        if version != now:
            toolset = self.toolset
            fitting = IndexView(self._index, self._fits_surely, filters=toolset.filters, stable=False)
            found = frozenset(fitting.search(toolset.query, toolset.limit).ids())
            self._best = (now, found)
        return found


def _parts(toolset: Toolset, name: str) -> tuple[Toolset, ...]:
    """Return the toolsets that one is made of, if it says nothing but *name*; else itself."""
    value: Sequence[Toolset] | None = getattr(toolset, name)
    alone: JSONDict = {name: value}
    if value is not None and (value or name == "any_of") and toolset == Toolset(**alone):
        return tuple(value)
    return (toolset,)


def _places(entry: Registered) -> tuple[str, str, str]:
    """Return what the backend that calls go to may be called."""
    binding = entry.binding
    return binding.kind, binding.backend, f"{binding.kind}:{binding.backend}"


def _check_text(name: str, value: object, most: int) -> None:
    if not isinstance(value, str) or len(value) > most:
        raise ConfigurationError(f"{name} of a toolset must be a text of at most {most} characters")


def _strings(name: str, value: object) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else value
    if not isinstance(items, Sequence | AbstractSet) or len(items) > _MAX_TEXTS:
        raise ConfigurationError(f"{name} of a toolset must be a list of strings, at most {_MAX_TEXTS}")
    for item in items:
        _check_text(f"each of {name}", item, _MAX_TEXT)
    return tuple(sorted(items)) if isinstance(items, AbstractSet) else tuple(items)


def _tag(name: str, tag: str) -> str:
    words = normalize_tags([tag])
    if not words:
        raise ConfigurationError(f"{tag!r} in {name} of a toolset is not a tag; use letters, digits and - _ .")
    return words[0]


_SHOWN: Final = 8
_LONGEST: Final = 2_000
_CLAUSES: Final[Mapping[str, tuple[str, str]]] = {
    "namespaces": ("of the namespace", "or"),
    "any_tags": ("tagged", "or"),
    "all_tags": ("tagged", "and"),
    "no_tags": ("not tagged", "or"),
    "categories": ("of the category", "or"),
    "backends": ("on the backend", "or"),
    "read_only": ("that only read", "that may write"),
    "destructive": ("that may destroy", "that destroy nothing"),
    "idempotent": ("that can be repeated", "that may not be repeated"),
    "open_world": ("that may reach the outside", "that do not reach the outside"),
    "allow": ("with an ID like", "or"),
}
"""What a condition begins with, and what stands between its values; or what it says when true, and when false."""


def _in_words(toolset: Toolset) -> str:
    """Return what is in *toolset*, on one line of at most 2,000 characters."""
    text = _described(toolset)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _described(toolset: Toolset) -> str:
    if toolset.is_empty:
        return "no tools"
    parts = [_clause(name, getattr(toolset, name)) for name in _CLAUSES if _matters(name, getattr(toolset, name))]
    if toolset.where is not None:
        parts.append(f"that {getattr(toolset.where, '__name__', 'a function')} accepts")
    if toolset.all_of:
        parts.append(f"in each of {_named(toolset.all_of)}")
    if toolset.any_of is not None:
        parts.append(f"in any of {_named(toolset.any_of)}")
    if toolset.query:
        parts.append(f"among the best {toolset.limit} for {_quoted(toolset.query)}")
    without = [f"those with an ID like {_listed(toolset.deny, ' or ')}"] if toolset.deny else []
    if toolset.none_of:
        without.append(f"those in {_named(toolset.none_of)}")
    what = f"tools {', '.join(parts)}" if parts else "all tools"
    return f"{what}, except {' and '.join(without)}" if without else what


def _matters(name: str, value: object) -> bool:
    return value is not None and (bool(value) or name not in ("all_tags", "no_tags"))


def _clause(name: str, value: JSONValue) -> str:
    first, second = _CLAUSES[name]
    if isinstance(value, bool):
        return first if value else second
    return f"{first} {_listed([text or _quoted(text) for text in value], f' {second} ')}"


def _named(toolsets: Sequence[Toolset]) -> str:
    return _listed([toolset.name or f"({_described(toolset)})" for toolset in toolsets], ", ")


def _listed(words: Sequence[str], between: str) -> str:
    more = [f"{len(words) - _SHOWN} more"] if len(words) > _SHOWN else []
    return between.join([*words[:_SHOWN], *more]) or "(none)"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
