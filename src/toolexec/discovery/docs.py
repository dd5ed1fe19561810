"""What tools say about themselves, at three levels of detail."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, Protocol, TypeAlias, get_args

from toolexec.discovery.examples import ToolExample, copy_json, example_args
from toolexec.discovery.index import Index, get_tool
from toolexec.discovery.links.producer import Producer
from toolexec.discovery.summary import PUBLIC_REASON, Metadata, cut
from toolexec.errors import ConfigurationError, DocNotFoundError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.model.binding import Binding
from toolexec.model.json_value import JSONDict
from toolexec.model.settings import check_ranges, checked
from toolexec.model.tool import Tool

FindProducers: TypeAlias = "Callable[[], Mapping[str, Sequence[Producer]]]"
DetailLevel: TypeAlias = Literal["summary", "schema", "full"]
"""How much a description has: a line, the schemas too, or everything."""
MAX_SUMMARY = 200
MAX_NOTES = 2000
MAX_REF = 500
MAX_REFS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DocEntry:
    """Documentation for one tool, written by a person. Over-long strings are cut: summary at 200 characters, notes at
    2,000, each of at most 20 references at 500.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add", doc=DocEntry(notes="Exact for integers."))
    ...     ex.get_tool_doc("math:add").notes
    'Exact for integers.'
    """

    summary: str = ""
    notes: str = ""
    examples: tuple[ToolExample, ...] = ()
    external_refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaInfo:
    """The top level of an input schema at a glance: required names, types and defaults by name."""

    required: tuple[str, ...] = ()
    types: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    defaults: Mapping[str, object] = field(default_factory=JSONDict)

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        data: JSONDict = {"required": list(self.required)} if self.required else {}
        if self.types:
            data["types"] = {name: list(types) for name, types in self.types.items()}
        if self.defaults:
            data["defaults"] = dict(self.defaults)
        return data


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDoc:
    """A tool's documentation; what is not part of the level asked for is empty or None.

    `summary` level: id, summary, modes, security and annotations. `schema` adds the tool with its schemas, its
    bindings and `schema_info`. `full` adds notes, references, examples and `example_call`, arguments that fit the
    input schema. The last two are computed when they are read. `unavailable` is the reason why the tool cannot be
    called just now, or None.

    `producers` are, for each argument (of the `full` level), the tools whose results have a value for it; they are
    computed by `find_producers`, if there is one, when they are first read.

    >>> from toolexec import Exec
    >>> def add(a: int, b: int = 1) -> int:
    ...     'Adds two numbers.'
    ...     return a + b
    >>> with Exec().sync as ex:
    ...     _ = ex.add(add, "math:add")
    ...     doc = ex.get_tool_doc("math:add")
    >>> doc.summary, dict(doc.example_call)
    ('Adds two numbers.', {'a': 1})
    """

    id: str
    level: DetailLevel
    summary: str
    tool: Tool | None = None
    bindings: tuple[Binding, ...] = ()
    notes: str = ""
    examples: tuple[ToolExample, ...] = ()
    external_refs: tuple[str, ...] = ()
    unavailable: str | None = None
    described: Tool | None = field(default=None, repr=False)
    find_producers: FindProducers | None = field(default=None, repr=False, compare=False)

    @property
    def producers(self) -> Mapping[str, Sequence[Producer]]:
        """By argument, the tools that produce it, best first; empty below the full level."""
        return self.find_producers() if self.find_producers is not None else {}

    @property
    def schema_info(self) -> SchemaInfo:
        """The top level of the input schema at a glance; empty at the summary level."""
        return schema_info(self.tool.input_schema.text) if self.tool is not None else SchemaInfo()

    @property
    def example_call(self) -> JSONDict | None:
        """Arguments to call the tool with: those of the first example, else made up from the schema; None when no guess
        fits, and below the full level."""
        if self.tool is None or self.level != "full":
            return None
        return dict(self.examples[0].copy().args) if self.examples else example_args(self.tool.input_schema.text)

    def completed(self, unavailable: str | None, find_producers: FindProducers | None) -> ToolDoc:
        """Return the documentation with what only an Exec knows. Written out, since `replace` takes 2 µs more."""
        return ToolDoc(
            id=self.id,
            level=self.level,
            summary=self.summary,
            tool=self.tool,
            bindings=self.bindings,
            notes=self.notes,
            examples=self.examples,
            external_refs=self.external_refs,
            unavailable=unavailable,
            described=self.described,
            find_producers=find_producers,
        )

    def public(self) -> ToolDoc:
        """Give the documentation as models may read it: without the reason why the tool is unavailable, which is for
        operators."""
        return replace(self, unavailable=PUBLIC_REASON) if self.unavailable else self

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from toolexec.discovery.html import doc_html

        return doc_html(self)

    def to_dict(self) -> JSONDict:
        """Return the documentation as JSON-able data, without what is empty."""
        data: JSONDict = {"id": self.id, "summary": self.summary}
        if self.described is not None:
            meta = Metadata(self.described.meta)
            shown: JSONDict = {
                "inputModes": list(meta.input_modes),
                "outputModes": list(meta.output_modes),
                "securitySummary": meta.security_summary,
                "annotations": self.described.annotations.to_mcp(),
            }
            data |= {key: value for key, value in shown.items() if value}
        if self.tool is not None:
            data["tool"] = self.tool.to_dict()
            data["bindings"] = [binding.to_dict() for binding in self.bindings]
        rest: JSONDict = {
            "schemaInfo": self.schema_info.to_dict(),
            "notes": self.notes,
            "examples": [example.to_dict() for example in self.examples],
            "externalRefs": list(self.external_refs),
            "unavailable": self.unavailable,
        }
        data |= {key: value for key, value in rest.items() if value}
        producers = {name: [one.to_dict() for one in found] for name, found in self.producers.items() if found}
        if producers:
            data["producers"] = producers
        example_call = self.example_call
        if example_call is not None:
            data["exampleCall"] = {"tool": self.id, "args": example_call}
        return data


class DocStore(Protocol):
    """Describes tools. Safe to call from several threads at once."""

    def register_doc(self, tool_id: str, entry: DocEntry) -> None:
        """Keep *entry*, in place of an earlier one; examples registered on their own stay. Raises
        InvalidToolError, with the store unchanged."""
        ...

    def register_examples(self, tool_id: str, examples: Iterable[ToolExample]) -> None:
        """Keep *examples* in place of the earlier ones, beside what else is known. Raises InvalidToolError."""
        ...

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return the documentation at *level*.

        Raises ConfigurationError for an unknown level; InvalidToolIDError or ToolNotFoundError when nothing is known
        under this ID; DocNotFoundError when there is documentation, but the level needs the tool itself.
        """
        ...

    def list_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return the tool's examples, at most *limit*; raises as `describe` does."""
        ...


@checked("InMemoryDocStore")
class InMemoryDocStore:
    """A `DocStore` in this process's memory, on top of an index.

    *resolver* finds tools that the index does not have (it returns None for those it does not know either).
    *max_examples* caps what `describe` and `list_examples` show; None means all.
    """

    def __init__(
        self,
        index: Index | None = None,
        *,
        resolver: Callable[[str], Tool | None] | None = None,
        max_examples: int | None = None,
    ) -> None:
        self._index = index
        self._resolver = resolver
        check_ranges("InMemoryDocStore", least={"max_examples": max_examples} if max_examples is not None else None)
        self._max_examples = max_examples
        self._entries: dict[str, DocEntry] = {}
        self._lock = threading.Lock()

    def register_doc(self, tool_id: str, entry: DocEntry) -> None:
        """Keep *entry*, in place of an earlier one; see `DocStore.register_doc`."""
        checked = DocEntry(
            summary=cut(entry.summary, MAX_SUMMARY),
            notes=entry.notes[:MAX_NOTES],
            examples=tuple(example.checked(i) for i, example in enumerate(entry.examples)),
            external_refs=tuple(ref[:MAX_REF] for ref in entry.external_refs[:MAX_REFS]),
        )
        with self._lock:
            known = self._entries.get(tool_id)
            if known is not None and not checked.examples:
                checked = replace(checked, examples=known.examples)
            self._entries[tool_id] = checked

    def register_examples(self, tool_id: str, examples: Iterable[ToolExample]) -> None:
        """Keep *examples* in place of the earlier ones; see `DocStore.register_examples`."""
        checked = tuple(example.checked(i) for i, example in enumerate(examples))
        with self._lock:
            self._entries[tool_id] = replace(self._entries.get(tool_id, DocEntry()), examples=checked)

    def describe(self, tool_id: str, level: DetailLevel = "full") -> ToolDoc:
        """Return the documentation at *level*; see `DocStore.describe`."""
        if level not in get_args(DetailLevel):
            hint = did_you_mean(level, get_args(DetailLevel), otherwise="use summary, schema or full")
            raise ConfigurationError(f"unknown detail level {level!r}; {hint}", tool_id=tool_id, code="invalid_detail")
        entry = self._entry(tool_id)
        tool, bindings = self._tool(tool_id, needed=entry is None or level != "summary", documented=entry is not None)
        summary = entry.summary if entry is not None and entry.summary else _summary_of(tool)
        doc_id = tool.id if tool is not None else tool_id
        if level == "summary" or tool is None:
            return ToolDoc(id=doc_id, level=level, summary=summary, described=tool)
        if level == "schema":
            return ToolDoc(id=doc_id, level=level, summary=summary, described=tool, tool=tool, bindings=bindings)
        entry = entry or _NO_ENTRY
        return ToolDoc(
            id=doc_id,
            level=level,
            summary=summary,
            described=tool,
            tool=tool,
            bindings=bindings,
            notes=entry.notes,
            examples=tuple(example.copy() for example in entry.examples[: self._max_examples]),
            external_refs=entry.external_refs,
        )

    def list_examples(self, tool_id: str, limit: int | None = None) -> list[ToolExample]:
        """Return the tool's examples, at most *limit* (None or 0: all)."""
        entry = self._entry(tool_id)
        if entry is None:
            self._tool(tool_id, needed=True, documented=False)
            return []
        shown = entry.examples[: self._max_examples]
        return [example.copy() for example in (shown[:limit] if limit and limit > 0 else shown)]

    def _entry(self, tool_id: str) -> DocEntry | None:
        """Return what is documented under this ID, or under the version that it stands for."""
        if not isinstance(tool_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            return None
        entry = self._entries.get(tool_id)
        if entry is None and self._entries and self._index is not None:
            found = self._index.find(tool_id)
            entry = self._entries.get(found.tool.id) if found is not None else None
        return entry

    def _tool(self, tool_id: str, *, needed: bool, documented: bool) -> tuple[Tool | None, tuple[Binding, ...]]:
        found = self._index.find(tool_id) if self._index is not None else None
        if found is not None:
            return found.tool, found.bindings
        problem: Exception | None = None
        if self._resolver is not None:
            try:
                tool = self._resolver(tool_id)
            except Exception as error:
                problem = error
            else:
                if tool is not None:
                    return tool, ()
        if not needed:
            return None, ()
        raise self._missing(tool_id, documented, problem) from problem

    def _missing(self, tool_id: str, documented: bool, problem: Exception | None) -> ToolExecError:
        if problem is not None:
            return DocNotFoundError(f"the tool resolver failed on {tool_id}: {problem}", tool_id=tool_id)
        if documented:
            return DocNotFoundError(
                f"{tool_id} is documented, but no such tool is registered; only its summary can be shown",
                tool_id=tool_id,
            )
        if self._index is not None:
            try:
                get_tool(self._index, tool_id)
            except ToolExecError as error:
                return error
        return DocNotFoundError(f"nothing is known about {tool_id}", tool_id=tool_id)


_NO_ENTRY = DocEntry()


def _summary_of(tool: Tool | None) -> str:
    if tool is None:
        return ""
    summary = Metadata(tool.meta).summary if tool.has_meta else ""
    return cut(summary or tool.description, MAX_SUMMARY)


def schema_info(schema_text: str) -> SchemaInfo:
    """Return the top level of a schema (as JSON text) at a glance; empty when it has neither names nor requirements."""
    info = _cached_info(schema_text)
    return replace(info, types=dict(info.types), defaults={name: copy_json(v) for name, v in info.defaults.items()})


@lru_cache(maxsize=1024)
def _cached_info(schema_text: str) -> SchemaInfo:
    schema = json.loads(schema_text)
    if not isinstance(schema, dict):
        return SchemaInfo()
    properties, required = schema.get("properties"), schema.get("required")
    types: dict[str, tuple[str, ...]] = {}
    defaults: JSONDict = {}
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if not isinstance(part, dict):
            continue
        kinds = part.get("type")
        named = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        if named:
            types[name] = tuple(kind for kind in named if isinstance(kind, str))
        if "default" in part:
            defaults[name] = part["default"]
    names = tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()
    return SchemaInfo(required=names, types=types, defaults=defaults)
