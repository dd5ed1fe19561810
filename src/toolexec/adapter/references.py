"""The references of one schema: what they point at, and the definitions that a written schema needs."""

from __future__ import annotations

import re
from typing import Final

from toolexec.errors import ExternalRefError
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.schema_graph import SchemaGraph

ROOT: Final = "#"
_PLAIN_VALUES: Final = frozenset({"enum", "const", "default", "examples"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)


class References:
    """References within *root*, a schema that `guard_schema` has let through.

    `pending` has the definitions that were asked for with `use` and are not written yet, by name.
    """

    def __init__(self, root: JSONDict) -> None:
        self._root = root
        self._graph: SchemaGraph | None = None
        self._names: dict[int, str] = {}
        self.pending: JSONDict = {}
        defined = root.get("$defs")
        self._taken = set(defined) if isinstance(defined, dict) else set()
        self._defined = defined if isinstance(defined, dict) else {}

    def target(self, node: JSONDict, ref: object) -> JSONValue:
        """Return the schema that *ref* in *node* stands for; None when it leads nowhere."""
        if not isinstance(ref, str):
            return None
        graph = self._graph = self._graph or SchemaGraph(self._root)
        try:
            found = graph.targets(node, ref)
        except ExternalRefError:  # the copy of a node does not know its own base any more
            return None
        return next((target for target in found if isinstance(target, dict | bool)), None)

    def use(self, target: object, ref: str) -> str:
        """Return the reference to write for *target*, which *ref* stands for; its definition is put into `pending`."""
        if target is self._root:
            return ROOT
        known = self._names.get(id(target))
        if known is None:
            name = ref.removeprefix("#/$defs/")
            if self._defined.get(name) is not target:
                name = self._free(_FOREIGN.sub("_", ref.rpartition("/")[2].rpartition("#")[2]) or "definition")
            known = self._names[id(target)] = name
            self.pending[name] = target
        return f"#/$defs/{known.replace('~', '~0').replace('/', '~1')}"

    def _free(self, name: str) -> str:
        found, number = name, 2
        while found in self._taken:
            found, number = f"{name}_{number}", number + 1
        self._taken.add(found)
        return found


def modern(node: object, role: str = "schema") -> JSONValue:
    """Return a draft-07 schema in the words of 2020-12: `items` that is a list, `additionalItems`, `dependencies`.

    `$schema` goes, and nothing of *node* is changed.
    """
    if isinstance(node, list):
        return [modern(child, role) for child in node] if role == "schema" else node
    if not isinstance(node, dict) or role == "plain":
        return node
    if role == "named":
        return {name: modern(child) for name, child in node.items()}
    result: JSONDict = {}
    for key, value in node.items():
        if key == "items" and isinstance(value, list):
            result["prefixItems"] = modern(value)
            if "additionalItems" in node:
                result["items"] = modern(node["additionalItems"])
        elif key == "dependencies" and isinstance(value, dict):
            names = {name: needs for name, needs in value.items() if isinstance(needs, list)}
            rest = {name: modern(needs) for name, needs in value.items() if not isinstance(needs, list)}
            result |= {"dependentRequired": names} if names else {}
            result |= {"dependentSchemas": rest} if rest else {}
        elif key not in ("additionalItems", "$schema"):
            below = "plain" if key in _PLAIN_VALUES else "named" if key in _NAMED else "schema"
            result[key] = modern(value, below)
    return result
