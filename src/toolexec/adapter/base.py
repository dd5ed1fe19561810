"""What an adapter promises, and what every one of them does alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from toolexec.adapter.features import SchemaFeature
from toolexec.adapter.losses import Losses, LossWarning
from toolexec.adapter.names import NameMap
from toolexec.errors import ConversionError, ToolExecError, ToolNotFoundError
from toolexec.model.ids import ToolID, clean_segment
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.settings import checked
from toolexec.model.tool import Tool

META_KEY: Final = "dev.toolexec/adapter"
"""The key in a tool's meta that has what forms hold beyond a tool: by the name of the adapter, its fields."""

Direction: TypeAlias = Literal["to_tool", "from_tool", "to_provider", "from_provider"]
T = TypeVar("T")

_MAX_FORM_BYTES: Final = 4 << 20


@checked("FormOptions")
@dataclass(frozen=True, slots=True, kw_only=True)
class FormOptions:
    """How a tool is to be written.

    `name` takes the place of the name that the vendor would see otherwise. `strict` asks for a schema that the vendor
    holds the model to, where that can be. With `describe`, rules that the form cannot hold are said in descriptions.
    `source` is the form that the tool came from, as warnings name it.
    """

    name: str = ""
    strict: bool = False
    describe: bool = True
    source: str = "toolexec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """A tool in a provider format, as JSON-able data that is yours, and what got lost on the way.

    `name` is what the vendor's model calls the tool. `strict` says whether the schema is one that the vendor holds the
    model to. `renamed` has the arguments that had to get another name: the new one and the tool's own.
    """

    form: JSONDict
    name: str
    tool_id: str
    strict: bool = False
    warnings: tuple[LossWarning, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])


class Adapter(Protocol):
    """Converts tools to and from one provider format. It holds no state, and changes nothing that it is given."""

    @property
    def name(self) -> str:
        """What the form is called."""
        ...

    def to_tool(self, form: object, *, names: NameMap | None = None) -> Tool:
        """Return the tool that *form* describes: JSON data, or an object of the vendor's package. *names* gives a name
        its ID back. Raises ConversionError for anything else."""
        ...

    def from_tool(self, tool: Tool, options: FormOptions | None = None) -> Converted:
        """Return *tool* in the provider format. Raises ConversionError when the form cannot hold it."""
        ...

    def supports(self, feature: SchemaFeature) -> bool:
        """Return whether the form's schemas can hold the keyword."""
        ...


def converting(adapter: str, direction: Direction, work: Callable[[], T], *, tool_id: str | None = None) -> T:
    """Return what *work* gives; whatever goes wrong in it is one ConversionError, whose cause is the first one."""
    try:
        return work()
    except ConversionError:
        raise
    except ToolExecError as error:
        raise ConversionError(adapter, direction, error, tool_id=tool_id or error.tool_id) from error
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise ConversionError(adapter, direction, f"the form is malformed: {error}", tool_id=tool_id) from error


def plain(form: JSONValue) -> JSONDict:
    """Return a form as JSON data of its own: a mapping, or an object of a vendor's package (pydantic's, or a protobuf
    message). Raises TypeError and ValueError for anything else."""
    data = form
    if not isinstance(form, Mapping):
        if hasattr(form, "model_dump"):
            data = form.model_dump(by_alias=True, exclude_none=True, mode="json")
        elif hasattr(form, "DESCRIPTOR"):
            from google.protobuf import json_format

            data = json_format.MessageToDict(form)
        else:
            raise TypeError(f"a mapping is wanted, not {type(form).__name__}")
    text = json.dumps(dict(data), allow_nan=False)
    if len(text) > _MAX_FORM_BYTES:
        raise ValueError(f"it has {len(text)} bytes; {_MAX_FORM_BYTES} is the most")
    return json.loads(text)


def identity(name: object, names: NameMap | None) -> JSONDict:
    """Name, namespace and version for a vendor's name: those of the ID that *names* has for it, else of the name itself
    read as an ID, else just the name. Raises ValueError when there is none."""
    if not isinstance(name, str) or not name:
        raise ValueError("it has no name")
    try:
        found = ToolID.parse(names.to_id(name) if names is not None else name)
    except ToolNotFoundError:
        found = ToolID(name)
    except ToolExecError:
        found = ToolID(clean_segment(name) or name)
    return {"name": found.name, "namespace": found.namespace, "version": found.version}


def kept(tool: Tool, adapter: str) -> JSONDict:
    """Return what the form *adapter* had beyond the tool when this was read from it."""
    stored = tool.meta.get(META_KEY)
    mine = stored.get(adapter) if isinstance(stored, dict) else None
    return mine if isinstance(mine, dict) else {}


def keep(meta: Mapping[str, object], adapter: str, extra: Mapping[str, object]) -> JSONDict:
    """*meta* with *extra* kept for *adapter*, unless that is empty."""
    if not extra:
        return dict(meta)
    stored = meta.get(META_KEY)
    return {**meta, META_KEY: {**(stored if isinstance(stored, dict) else {}), adapter: dict(extra)}}


def bare_meta(tool: Tool) -> JSONDict:
    """Return a tool's meta without what is kept for adapters."""
    return {key: value for key, value in tool.meta.items() if key != META_KEY}


def lose_fields(tool: Tool, held: Collection[str], name: str, adapter: str, losses: Losses) -> None:
    """Add to *losses* every field of the tool that is set and not among the *held* ones.

    Namespace and version are said to be in *name* if that is made from the tool's ID.
    """
    in_name = name != tool.name
    fields: tuple[tuple[str, object], ...] = (
        ("namespace", tool.namespace),
        ("version", tool.version),
        ("title", tool.title),
        ("annotations", tool.annotations.to_mcp()),
        ("outputSchema", tool.output_schema is not None),
        ("icons", tool.icons),
        ("tags", tool.tags),
    )
    for key, value in fields:
        if not value or key in held:
            continue
        if key in ("namespace", "version") and in_name:
            losses.add(key, f"/{key}", "rewritten", f"in the name {name}")
        elif key == "title" and not tool.description:
            losses.add(key, f"/{key}", "rewritten", "as the description")
        else:
            losses.add(key, f"/{key}")
    for key in sorted(bare_meta(tool)):
        if key not in held and "meta" not in held:
            losses.add(key, f"/_meta/{_step(key)}")
    stored = tool.meta.get(META_KEY)
    for other in sorted(stored) if isinstance(stored, dict) and "meta" not in held else ():
        if other != adapter:
            for key in sorted(kept(tool, other)):
                losses.add(key, f"/{_step(other)}/{_step(key)}")


def described_as(tool: Tool, limit: int, losses: Losses) -> str:
    """Return the description, else the summary in the meta, else the title; at most *limit* characters (0: any
    number)."""
    summary = tool.meta.get("summary")
    text = tool.description or (summary if isinstance(summary, str) else "")
    text = text or (tool.display_name if tool.display_name != tool.name else "")
    if limit and len(text) > limit:
        losses.add("description", "/description", "loosened", f"cut at {limit} of {len(text)} characters")
        text = f"{text[: limit - 1]}…"
    return text


def strings(value: object) -> list[str]:
    """Return the strings in a list; empty for anything else."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _step(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
