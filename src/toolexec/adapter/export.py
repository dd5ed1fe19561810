"""Tools as a vendor's API takes them: the list for a request, the names in it, and what got lost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, TypeAlias, get_args

from toolexec.adapter.base import Converted, FormOptions, keep, kept
from toolexec.adapter.losses import LossWarning
from toolexec.adapter.names import NameMap, vendor_name
from toolexec.adapter.registry import default_adapters
from toolexec.adapter.strict import strict_cost
from toolexec.errors import ConfigurationError, ConversionError
from toolexec.model.binding import Binding
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.tool import Tool
from toolexec.model.visible import visible_line

VendorFormat: TypeAlias = Literal["openai", "openai-responses", "anthropic", "gemini", "mcp", "a2a"]
"""The forms that tools can be exported in."""

ToolSearch: TypeAlias = Literal["client", "server", "regex"]
"""Who finds tools that the model does not see at first: this program, the vendor by words, or Anthropic by regex."""

SEARCH_TOOL: Final = "search_tools"
READ_TOOL: Final = "read_result"
_RESERVED: Final = frozenset({SEARCH_TOOL, READ_TOOL})
_OWN: Final[Mapping[str, str]] = {"anthropic": "anthropic", "openai-responses": "openai"}
_SERVER_SEARCH: Final = {"server": "tool_search_tool_bm25", "regex": "tool_search_tool_regex"}
_SEARCH_VERSION: Final = "20251119"
_MAX_NAMESPACE: Final = 64
_MAX_NAMESPACE_TEXT: Final = 400
_MOST_TOOLS: Final = {"openai": 128, "openai-responses": 128}
_STRICT_TOOLS, _STRICT_OPTIONAL, _STRICT_UNIONS = 20, 24, 16  # of Anthropic, for all tools of a request together

SEARCH_ARGUMENTS: Final[JSONObject] = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "maxLength": 2000, "description": "Words for what you want to do."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 20,
            "description": "At most so many tools; 5 by default.",
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}
"""What the tool that finds tools takes."""

_SEARCH_TEXT: Final = (
    "Finds tools by what they do and makes them callable. Call it before you say that something cannot be done."
)


class ToolFilter(Protocol):
    """A rule for which tools count, such as `Filters`."""

    def accept(self, tool: Tool, bindings: Sequence[Binding]) -> bool:
        """Return whether the tool passes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorTools:
    """Tools for a vendor's API. `tools` goes into the request as it is.

    Give the whole object to the method that handles the model's calls: it knows the `names`, which arguments were
    renamed, and which tools count. `converted` has each tool's form by ID; `skipped` the tools that the form cannot
    hold, with the reason. `search` says how the model finds tools that it does not see at first.
    """

    format: VendorFormat
    tools: list[JSONDict]
    names: NameMap
    warnings: tuple[LossWarning, ...] = ()
    converted: Mapping[str, Converted] = field(default_factory=dict[str, Converted])
    skipped: Mapping[str, ConversionError] = field(default_factory=dict[str, ConversionError])
    search: ToolSearch | None = None
    filters: ToolFilter | None = None

    def at_first(self) -> list[JSONDict]:
        """Return what of the tools a model reads before it has searched: no deferred ones, of namespaces the names and
        descriptions."""
        seen = [form for form in self.tools if not form.get("defer_loading")]
        return [
            {key: form[key] for key in form if key != "tools"} if form.get("type") == "namespace" else form
            for form in seen
        ]


def name_map(ids: Iterable[str], format: str = "") -> NameMap:
    """Return the names of these tools in a form; no tool gets the name of one that an `Exec` adds itself."""
    return NameMap(ids, reserved=_RESERVED, letter_first=format == "gemini")


def tool_search_tool(format: VendorFormat = "anthropic", how: ToolSearch = "client") -> JSONDict:
    """Return the entry that lets a model find tools: `client` is answered by the handlers of an `Exec`, the others by
    the vendor. Raises ConfigurationError where there is no such thing."""
    if format == "anthropic" and how in _SERVER_SEARCH:
        name = _SERVER_SEARCH[how]
        return {"type": f"{name}_{_SEARCH_VERSION}", "name": name}
    if format == "anthropic" and how == "client":
        return {"name": SEARCH_TOOL, "description": _SEARCH_TEXT, "input_schema": _search_schema()}
    if format == "openai-responses" and how == "server":
        return {"type": "tool_search"}
    if format == "openai-responses" and how == "client":
        text, schema = _SEARCH_TEXT, _search_schema()
        return {"type": "tool_search", "execution": "client", "description": text, "parameters": schema}
    raise ConfigurationError(
        f"there is no {how!r:.50} tool search in the form {format!r:.50}; use anthropic (client, server, regex) or "
        "openai-responses (client, server)"
    )


def collect(
    tools: Sequence[Tool],
    format: VendorFormat,
    *,
    strict: bool,
    describe: bool,
    search: ToolSearch | None,
    always: Collection[str],
    allowed_callers: Sequence[str],
    reader: Tool | None,
    filters: ToolFilter | None,
) -> VendorTools:
    """Return the tools in a form, and the *reader* of large results beside them.

    Raises ConfigurationError for a form or a combination that does not exist.
    """
    if format not in get_args(VendorFormat):
        raise ConfigurationError(f"unknown form {format!r:.50}; use {', '.join(get_args(VendorFormat))}")
    if (search or allowed_callers) and format not in _OWN:
        raise ConfigurationError(f"{format} has neither tool search nor callers; use {' or '.join(_OWN)}")
    finder = tool_search_tool(format, search) if search else None
    names = name_map((tool.id for tool in tools), format)
    work = _Collecting(format, FormOptions(strict=strict, describe=describe), names)
    shown: list[JSONDict] = [finder] if finder else []
    spaces: dict[str, list[JSONDict]] = {}
    for tool in tools:
        deferred = search is not None and tool.id not in always
        done = work.convert(_marked(tool, format, deferred=deferred, callers=allowed_callers))
        if done is None or (deferred and search == "client" and format == "openai-responses"):
            continue
        if deferred and format == "openai-responses" and tool.namespace:
            spaces.setdefault(tool.namespace, []).append(done.form)
        else:
            shown.append(done.form)
    count = len(shown) + sum(map(len, spaces.values()))
    called = NameMap(spaces)
    shown += [_namespace(space, called.to_vendor(space), forms) for space, forms in sorted(spaces.items())]
    if reader is not None and format not in ("mcp", "a2a"):
        shown.append(default_adapters().get(format).from_tool(reader).form)
        count += 1
    if format == "gemini" and shown:
        shown = [{"functionDeclarations": [one for form in shown for one in form["functionDeclarations"]]}]
    work.count(count)
    return VendorTools(
        format=format,
        tools=shown,
        names=names,
        warnings=tuple(work.warnings),
        converted=work.converted,
        skipped=work.skipped,
        search=search,
        filters=filters,
    )


class _Collecting:
    """Converts tools one by one, and counts what a vendor bounds for all of them together."""

    def __init__(self, format: VendorFormat, options: FormOptions, names: NameMap) -> None:
        self._format = format
        self._adapter = default_adapters().get(format)
        self._options = options
        self._names = names
        self._strict = self._optional = self._unions = 0
        self.warnings: list[LossWarning] = []
        self.converted: dict[str, Converted] = {}
        self.skipped: dict[str, ConversionError] = {}

    def convert(self, tool: Tool) -> Converted | None:
        """Return the tool's form; None, with the reason in `skipped`, if it cannot be held."""
        name = tool.id if self._format == "a2a" else self._names.to_vendor(tool.id)
        options = replace(self._options, name=name)
        try:
            done = self._adapter.from_tool(tool, options)
            if done.strict and not self._affords(done):
                done = self._adapter.from_tool(tool, replace(options, strict=False))
                self._warn("strict", "tool:/strict", "the strict tools of a request may not be more", tool.id)
        except ConversionError as error:
            self.skipped[tool.id] = error
            return None
        self.warnings += done.warnings
        self.converted[tool.id] = done
        return done

    def _affords(self, done: Converted) -> bool:
        if self._format != "anthropic":
            return True
        cost = strict_cost(done.form["input_schema"])
        optional, unions = self._optional + cost.optional, self._unions + cost.unions
        if self._strict == _STRICT_TOOLS or optional > _STRICT_OPTIONAL or unions > _STRICT_UNIONS:
            return False
        self._strict, self._optional, self._unions = self._strict + 1, optional, unions
        return True

    def count(self, tools: int) -> None:
        """Warn of more tools than a request may have."""
        most = _MOST_TOOLS.get(self._format)
        if most is not None and tools > most:
            self._warn("tools", "tool:", f"{tools} of them; a request takes {most} at most, so filter or let it search")

    def _warn(self, feature: str, path: str, note: str, tool_id: str = "") -> None:
        self.warnings.append(
            LossWarning(
                feature=feature,
                path=path,
                action="dropped",
                from_adapter=self._options.source,
                to_adapter=self._format,
                note=note,
                tool_id=tool_id,
            )
        )


def _marked(tool: Tool, format: str, *, deferred: bool, callers: Sequence[str]) -> Tool:
    """Return the tool with what the vendor is to know about it beyond what it is."""
    marks: JSONDict = {"defer_loading": True} if deferred else {}
    marks |= {"allowed_callers": list(callers)} if callers else {}
    if not marks:
        return tool
    own = _OWN[format]
    return tool.replace(meta=keep(tool.meta, own, {**kept(tool, own), **marks}))


def _namespace(space: str, name: str, forms: list[JSONDict]) -> JSONDict:
    """Return OpenAI's entry for the deferred functions of a namespace. Until it has searched, a model sees its name and
    description alone, so that says what is in it."""
    prefix = f"{vendor_name(space)}__"
    words = [form["name"].removeprefix(prefix).replace("_", " ") for form in forms]
    shown: list[str] = []
    room = _MAX_NAMESPACE_TEXT
    for word in words:
        room -= len(word) + 2
        if room < 0:
            shown.append(f"and {len(words) - len(shown)} more")
            break
        shown.append(word)
    text = f"Tools of {visible_line(space, _MAX_NAMESPACE)}: {', '.join(shown)}."
    return {"type": "namespace", "name": name, "description": text, "tools": forms}


def _search_schema() -> JSONDict:
    properties = {name: dict(part) for name, part in SEARCH_ARGUMENTS["properties"].items()}
    return {**SEARCH_ARGUMENTS, "properties": properties, "required": list(SEARCH_ARGUMENTS["required"])}
