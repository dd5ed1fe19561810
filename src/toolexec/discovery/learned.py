"""Output schemas that are learned from results, for tools that declare none."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from toolexec.discovery.index import Registered
from toolexec.discovery.view import IndexView
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.settings import checked
from toolexec.model.tool import Tool
from toolexec.process.atomic import replace_files

logger: logging.Logger = logging.getLogger(__name__)

INFERRED: Final = "x-inferred"
"""The keyword of a schema that was learned: the number of results that it is from."""

_MAX_DEPTH: Final = 8
_MAX_MEMBERS: Final = 100
_MAX_ITEMS: Final = 50
_MAX_PLACES: Final = 5000
_MAX_VISITS: Final = 20_000
_ALL_OF: Final = 20
_THEN_EVERY: Final = 16
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}")
_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


@dataclass(slots=True)
class _Room:
    """What is left of one result's share: results are of any size, and come from anywhere."""

    visits: int
    places: int


@dataclass(slots=True)
class _Shape:
    """What values at one place had in common: their types, members and items."""

    types: set[str] = field(default_factory=set[str])
    objects: int = 0
    members: dict[str, tuple[_Shape, int]] = field(default_factory=dict[str, "tuple[_Shape, int]"])
    """Each with the number of objects that had it."""
    items: _Shape | None = None
    """What the items of lists, and the values of mappings, have in common."""
    is_mapping: bool = False
    """Whether keys are data, such as addresses of people: then none of them is kept."""

    def add(self, value: JSONValue, room: _Room, depth: int = 0) -> None:
        """Take in one value while there is room for it."""
        self.types.add(_TYPES.get(type(value), "object"))
        room.visits -= 1
        if depth >= _MAX_DEPTH or room.visits <= 0:
            return
        if isinstance(value, list):
            self._add_items(value, room, depth)
        elif isinstance(value, dict):
            self._add_members(value, room, depth)

    def count(self) -> int:
        """Return how many places there are in it."""
        inside = [shape for shape, _ in self.members.values()] + ([self.items] if self.items is not None else [])
        return 1 + sum(shape.count() for shape in inside)

    def _add_items(self, values: list[JSONValue], room: _Room, depth: int) -> None:
        self.items = self.items or _Shape()
        for value in values[:_MAX_ITEMS]:
            self.items.add(value, room, depth + 1)

    def _add_members(self, value: JSONDict, room: _Room, depth: int) -> None:
        self.objects += 1
        if not self.is_mapping and not (
            len(value) + len(self.members) <= 2 * _MAX_MEMBERS
            and len(value.keys() | self.members.keys()) <= _MAX_MEMBERS
            and len(value.keys() - self.members.keys()) <= room.places
            and all(map(_PLAIN_NAME.fullmatch, value))
        ):
            self._become_mapping()
        if self.is_mapping:
            self._add_items([*value.values()], room, depth)
            return
        room.places -= len(value.keys() - self.members.keys())
        for name, member in value.items():
            shape, count = self.members.get(name) or (_Shape(), 0)
            shape.add(member, room, depth + 1)
            self.members[name] = shape, count + 1

    def _become_mapping(self) -> None:
        """Forget the names of members; what their values had in common stays."""
        members, self.members, self.is_mapping = self.members, {}, True
        self.items = self.items or _Shape()
        for shape, _ in members.values():
            self.items.merge(shape)

    def merge(self, other: _Shape) -> None:
        """Take in what another shape knows."""
        self.types |= other.types
        self.objects += other.objects
        if other.is_mapping and not self.is_mapping:
            self._become_mapping()
        if other.items is not None:
            self.items = self.items or _Shape()
            self.items.merge(other.items)
        for name, (shape, count) in other.members.items():
            if self.is_mapping:
                self.items = self.items or _Shape()
                self.items.merge(shape)
                continue
            known, before = self.members.get(name) or (_Shape(), 0)
            known.merge(shape)
            self.members[name] = known, before + count
        if len(self.members) > _MAX_MEMBERS:
            self._become_mapping()

    def schema(self) -> JSONDict:
        """Return it as a JSON Schema; a place that had no value, such as the items of empty lists, may be anything."""
        types = self.types - {"integer"} if "number" in self.types else self.types
        if not types:
            return {}
        found: JSONDict = {"type": next(iter(types)) if len(types) == 1 else sorted(types)}
        if "object" in types and self.is_mapping:
            found["additionalProperties"] = self.items.schema() if self.items is not None else {}
        elif "object" in types and self.objects:
            found["properties"] = {name: shape.schema() for name, (shape, _) in self.members.items()}
            found["required"] = [name for name, (_, count) in self.members.items() if count == self.objects]
        if "array" in types and self.items is not None and not self.is_mapping:
            found["items"] = self.items.schema()
        return found

    def to_json(self) -> JSONDict:
        """Return it as data that `from_json` reads back."""
        data: JSONDict = {"types": sorted(self.types)}
        if self.objects:
            data |= {"objects": self.objects, "mapping": self.is_mapping}
        if self.members:
            data["members"] = {name: [count, shape.to_json()] for name, (shape, count) in self.members.items()}
        if self.items is not None:
            data["items"] = self.items.to_json()
        return data

    @classmethod
    def from_json(cls, data: JSONObject, depth: int = 0) -> _Shape:
        """Read what `to_json` gave; raises ValueError, KeyError or TypeError for anything else."""
        types = set(data["types"])
        if depth > _MAX_DEPTH or not types <= set(_TYPES.values()):
            raise ValueError("it is not one")
        members: dict[str, tuple[_Shape, int]] = {}
        for name, (count, shape) in data.get("members", {}).items():
            if not _PLAIN_NAME.fullmatch(name) or len(members) == _MAX_MEMBERS:
                raise ValueError("it has a member that is never kept")
            members[name] = cls.from_json(shape, depth + 1), int(count)
        items = cls.from_json(data["items"], depth + 1) if "items" in data else None
        return cls(types, int(data.get("objects", 0)), members, items, bool(data.get("mapping", False)))


@dataclass(slots=True)
class _Learned:
    definition: str
    shape: _Shape = field(default_factory=_Shape)
    results: int = 0
    taken: int = 0


@checked("LearnedOutputs")
class LearnedOutputs:
    """What tools without an output schema have answered until now: names and types, never values.

    The first 20 results of a tool are taken in, then every sixteenth; of each list the first 50 items, down to 8
    levels. Objects with a key that is not a plain name, with more than 100 keys, or beyond 5,000 names for a tool,
    count as mappings: no key is kept. What was learned of a tool is forgotten when its definition changes; so is that
    of the tool that was not called for the longest time, when there are more than *max_tools*.

    With *path* it is read from that JSON file, which only its owner may read, and written by `save`. A file that is
    damaged is begun again, which is logged. Raises ConfigurationError for one that cannot be read.

    >>> from toolexec import Tool
    >>> outputs, tool = LearnedOutputs(), Tool(name="user", input_schema={})
    >>> outputs.add(tool, {"id": 7, "name": "Ann"})
    >>> outputs.add(tool, {"id": 8})
    >>> outputs.schema(tool)["properties"], outputs.schema(tool)["required"]
    ({'id': {'type': 'integer'}, 'name': {'type': 'string'}}, ['id'])
    """

    def __init__(self, path: str | Path | None = None, *, max_tools: int = 10_000) -> None:
        if max_tools < 1:
            raise ConfigurationError("max_tools of learned outputs must be 1 or more")
        self._path = Path(path) if path is not None else None
        self._max_tools = max_tools
        self._tools: OrderedDict[str, _Learned] = OrderedDict()
        self._lock = threading.Lock()
        self._changed = False
        if self._path is not None:
            self._load(self._path)

    def add(self, tool: Tool, value: JSONValue) -> None:
        """Take in a result of a tool; one that declares an output schema is left alone."""
        if tool.output_schema is not None:
            return
        with self._lock:
            known = self._tools.get(tool.id)
            if known is None or known.definition != _definition(tool):
                known = self._tools[tool.id] = _Learned(_definition(tool))
                if len(self._tools) > self._max_tools:
                    self._tools.popitem(last=False)
            self._tools.move_to_end(tool.id)
            known.results += 1
            if known.results <= _ALL_OF or known.results % _THEN_EVERY == 0:
                known.shape.add(value, _Room(_MAX_VISITS, _MAX_PLACES - known.shape.count()))
                known.taken += 1
                self._changed = True

    def schema(self, tool: Tool) -> JSONDict | None:
        """Return the schema of what the tool has answered, with the keyword `x-inferred`; None where nothing is known.

        It is for readers, and for finding what is probably wrong. Another answer may differ: refuse nothing by it.
        """
        if tool.output_schema is not None:
            return None
        with self._lock:
            known = self._tools.get(tool.id)
            if known is None or not known.taken or known.definition != _definition(tool):
                return None
            results = "1 result" if known.taken == 1 else f"{known.taken} results"
            return {
                "description": f"Inferred from {results}; others may differ.",
                INFERRED: known.taken,
                **known.shape.schema(),
            }

    def with_output(self, tool: Tool) -> Tool:
        """Return the tool with its learned output schema, or as it is where there is none."""
        schema = self.schema(tool)
        if schema is None:
            return tool
        try:
            return tool.replace(output_schema=schema)
        except ToolExecError:  # one that would be too large to use
            return tool

    def save(self) -> None:
        """Write the file, if there is one and something was learned. Raises OSError."""
        if self._path is None or not self._changed:
            return
        with self._lock:
            tools = {
                name: {"definition": each.definition, "results": each.results, "taken": each.taken}
                | {"shape": each.shape.to_json()}
                for name, each in self._tools.items()
            }
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_files({self._path: json.dumps({"version": 1, "tools": tools})}, mode=0o600)
        self._changed = False

    def _load(self, path: Path) -> None:
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the learned outputs in {path} cannot be read: {error}") from error
        try:
            for name, each in json.loads(text)["tools"].items():
                shape = _Shape.from_json(each["shape"])
                self._tools[str(name)] = _Learned(
                    str(each["definition"]), shape, int(each["results"]), int(each["taken"])
                )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            self._tools.clear()
            logger.warning("%s does not hold learned outputs: it is begun again", path)
        while len(self._tools) > self._max_tools:
            self._tools.popitem(last=False)


class LearnedIndex(IndexView):
    """An index whose tools have their learned output schemas where they declare none."""

    def __init__(self, index: Any, outputs: LearnedOutputs) -> None:
        super().__init__(index, lambda _: True)
        self._outputs = outputs

    def find(self, tool_id: str) -> Registered | None:
        """Return the tool; see `Index.find`."""
        found = super().find(tool_id)
        if found is None or found.tool.output_schema is not None:
            return found
        return Registered(self._outputs.with_output(found.tool), tuple(found.bindings), found.binding)


def _definition(tool: Tool) -> str:
    """Return a digest of what a tool takes: another definition may answer something else."""
    return sha256(f"{tool.version}\0{tool.description}\0{tool.input_schema.text}".encode()).hexdigest()[:16]
