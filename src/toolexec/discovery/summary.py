"""What a search result says about a tool: enough to choose by, without its schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Final, TypeAlias

from toolexec.discovery.explanation import Explanation
from toolexec.model.binding import Binding
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.settings import checked
from toolexec.model.tags import normalize_tags
from toolexec.model.tool import HINTS, Tool, ToolAnnotations

MAX_SHORT_DESCRIPTION = 120
Facts: TypeAlias = tuple[object, ...]
"""The fields of a summary that do not depend on a search, in their order."""


PUBLIC_REASON: Final = (
    "it cannot be called just now: try again later or use another tool; operators find the reason with `toolexec "
    "backends`"
)
"""Why a tool is unavailable, as models may read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """One tool in a list. `short_description` has at most 120 characters.

    `bindings` says where the tool lives, as `kind:backend`. `unavailable` is the reason why it cannot be called just
    now, or None. `score` is set by a search: higher is better, comparable within one answer only. `explanation` is
    there when the search was asked for it. `produces` says where in the tool's result the value is (JMESPath, `@` for
    all of it, `?` where the result is not described) that a search by `produces` asked for.

    >>> from toolexec import Exec, Tool
    >>> tool = Tool(name="add", namespace="math", description="Adds two numbers.", input_schema={"type": "object"})
    >>> with Exec().sync as ex:
    ...     _ = ex.add(tool, handler=sum)
    ...     found = ex.search_tools("add numbers")[0]
    >>> found.id, found.short_description, found.bindings
    ('math:add', 'Adds two numbers.', ('local:local',))
    """

    id: str
    name: str
    namespace: str = ""
    short_description: str = ""
    category: str = ""
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    security_summary: str = ""
    tags: tuple[str, ...] = ()
    annotations: ToolAnnotations = field(default_factory=ToolAnnotations)
    bindings: tuple[str, ...] = ()
    unavailable: str | None = None
    score: float | None = None
    explanation: Explanation | None = None
    produces: str | None = None

    def public(self) -> Summary:
        """Give the summary as models may read it: without the reason why the tool is unavailable, which is for
        operators."""
        return replace(self, unavailable=PUBLIC_REASON) if self.unavailable else self

    def to_dict(self) -> JSONDict:
        """Return the summary as JSON-able data, without what is empty."""
        data: JSONDict = {"id": self.id, "name": self.name}
        optional: JSONDict = {
            "namespace": self.namespace,
            "shortDescription": self.short_description,
            "category": self.category,
            "inputModes": list(self.input_modes),
            "outputModes": list(self.output_modes),
            "securitySummary": self.security_summary,
            "tags": list(self.tags),
            "annotations": self.annotations.to_mcp(),
            "bindings": list(self.bindings),
            "unavailable": self.unavailable,
        }
        data |= {key: value for key, value in optional.items() if value}
        if self.score is not None:
            data["score"] = round(self.score, 4)
        if self.explanation is not None:
            data["explanation"] = self.explanation.to_dict()
        if self.produces is not None:
            data["produces"] = self.produces
        return data


@checked("Filters")
@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """Which tools count; a field left at its default lets all through.

    `namespace` is exact (`""` selects tools without one). `tags` (normalised as a tool's are):
    the tool has all of them. `backend` matches the kind
    (`mcp`) or the name (`git`) of any binding. The four hints match the annotation as a caller would read it: a tool
    that does not say whether it is destructive counts as destructive unless it is read-only.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda: 1, "a:one"), ex.add(lambda: 2, "b:two")
    ...     [found.id for found in ex.search_tools("", filters=Filters(namespace="b"))]
    ['b:two']
    """

    namespace: str | None = None
    tags: str | Sequence[str] = ()
    backend: str | None = None
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None

    def __post_init__(self) -> None:
        tags = (self.tags,) if isinstance(self.tags, str) else self.tags
        object.__setattr__(self, "tags", normalize_tags(tags))

    def accept(self, tool: Tool, bindings: Sequence[Binding]) -> bool:
        """Return whether the tool passes."""
        hints = tool.annotations
        if self.namespace is not None and tool.namespace != self.namespace:
            return False
        if self.tags and not set(self.tags) <= set(tool.tags):
            return False
        if self.backend is not None and not any(self.backend in (b.kind, b.backend) for b in bindings):
            return False
        asked = (self.read_only, self.idempotent, self.destructive, self.open_world)
        on = hints.on()
        return all(ask is None or ask is (name in on) for name, ask in zip(HINTS, asked, strict=True))


class Metadata:
    """The keys of a tool's `_meta` that have a meaning here; values of the wrong type count as absent."""

    __slots__ = ("category", "input_modes", "output_modes", "security_summary", "summary")

    def __init__(self, meta: Mapping[str, object]) -> None:
        self.summary: str = _text(meta.get("summary"))
        self.category: str = _text(meta.get("category"))
        self.input_modes: tuple[str, ...] = _strings(meta.get("inputModes"))
        self.output_modes: tuple[str, ...] = _strings(meta.get("outputModes"))
        self.security_summary: str = ",".join(sorted(_schemes(meta)))


def summarize(
    tool: Tool,
    bindings: Sequence[Binding],
    *,
    score: float | None = None,
    explanation: Explanation | None = None,
) -> Summary:
    """Return the summary of *tool*: its `_meta.summary` if it has one, else the start of its description."""
    return summary_of(facts_of(tool, bindings), score, explanation)


def facts_of(tool: Tool, bindings: Sequence[Binding]) -> Facts:
    """Return what the summary of *tool* says whatever was searched for."""
    meta = Metadata(tool.meta) if tool.has_meta else _NO_META
    return (
        tool.id,
        tool.name,
        tool.namespace,
        cut(meta.summary or tool.description, MAX_SHORT_DESCRIPTION),
        meta.category,
        meta.input_modes,
        meta.output_modes,
        meta.security_summary,
        tool.tags,
        tool.annotations,
        tuple([_home(binding.kind, binding.backend) for binding in bindings]),
        None,
    )


def summary_of(facts: Facts, score: float | None, explanation: Explanation | None) -> Summary:
    """Return a new summary with these facts."""
    made = object.__new__(Summary)  # as `Summary(...)` makes it, in half of the time: searches make ten at once
    for put, value in zip(_SETTERS, facts, strict=False):
        put(made, value)
    _put_score(made, score)
    _put_explanation(made, explanation)
    _put_produces(made, None)
    return made


@lru_cache(maxsize=1024)
def _home(kind: str, backend: str) -> str:
    return f"{kind}:{backend}"


def cut(text: str, limit: int) -> str:
    """At most *limit* characters on one line, with an ellipsis where something is missing."""
    start = text[: limit + 1]
    if len(start) > limit and start.isprintable() and "  " not in start and " " not in (start[0], start[-1]):
        return f"{start[: limit - 1]}…"  # as below, without a look at the rest
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def parameter_words(tool: Tool) -> str:
    """Return the names and descriptions of the tool's top-level parameters, for searching."""
    text = tool.input_schema.text
    if '"properties"' not in text:
        return ""
    schema = json.loads(text)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict):
        return ""
    words: list[str] = []
    for name, schema in properties.items():
        words.append(name)
        if isinstance(schema, dict) and isinstance(schema.get("description"), str):
            words.append(schema["description"])
    return " ".join(words)


def _text(value: JSONValue) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _schemes(meta: Mapping[str, object]) -> set[str]:
    required, schemes = meta.get("securityRequirements"), meta.get("securitySchemes")
    if isinstance(required, list) and required:
        return {str(name) for item in required if isinstance(item, dict) for name in item}
    return {str(name) for name in schemes} if isinstance(schemes, dict) else set()


_NO_META: Final = Metadata({})
_SETTERS: Final = [getattr(Summary, each.name).__set__ for each in fields(Summary)]
_put_score, _put_explanation, _put_produces = _SETTERS[-3:]
