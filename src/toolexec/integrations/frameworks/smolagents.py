"""The tools of a toolset as those of smolagents."""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Mapping
from typing import Any, Final

from smolagents import Tool  # pyright: ignore[reportMissingImports]
from smolagents.agent_types import AgentType  # pyright: ignore[reportMissingImports]

from toolexec.adapter.dialects import Dialect
from toolexec.adapter.features import SchemaFeature
from toolexec.adapter.fit import fit_schema
from toolexec.adapter.losses import Losses
from toolexec.integrations.blocking import Blocking, finish
from toolexec.integrations.toolset import Face, Toolset
from toolexec.model.json_value import JSONDict
from toolexec.model.schema import Schema

_ANY: Final = ("string", "number", "integer", "boolean", "array", "object", "null")
_DIALECT: Final = Dialect(
    name="smolagents",
    features=frozenset(SchemaFeature) - {SchemaFeature.REF, SchemaFeature.DEFS, SchemaFeature.NULLABLE},
    boolean_schemas=False,
    root_combinators=False,
)
_TAKEN: Final = "final_answer"  # a tool of this name would be the end of each run


def exec_tools(found: Toolset) -> list[ExecTool]:
    """Return the tools of *found*; see `toolexec.integrations.smolagents.tools`."""
    taken = {_TAKEN}
    made: list[ExecTool] = []
    for face in found.faces():
        name = _name(face, taken)
        taken.add(name)
        made.append(ExecTool(found, face, name))
    return made


class ExecTool(Tool):  # pyright: ignore[reportUntypedBaseClass]
    """One tool of an `Exec`; see `exec_tools`."""

    skip_forward_signature_validation = True

    def __init__(self, found: Toolset, face: Face, name: str) -> None:
        self.name = name
        self.description = face.description
        self.inputs = _inputs(face.schema)
        self.output_type = "any"
        self.output_schema = face.returns if (face.returns or {}).get("type") == "object" else None
        self._found = found
        self._face = face
        super().__init__()

    # A tool may have arguments of any name, `self` among them, so the two have no names of their own.

    def __call__(self, /, *given: Any, **arguments: Any) -> Any:
        """Call the tool, with arguments by name, by position, or as one mapping; raises RuntimeError for a failure."""
        # Agents that call tools add this one themselves.
        if "sanitize_inputs_outputs" not in self.inputs:
            arguments.pop("sanitize_inputs_outputs", None)
        if (
            len(given) == 1
            and not arguments
            and isinstance(given[0], Mapping)
            and given[0].keys() <= self.inputs.keys()
        ):
            return self.forward(**given[0])
        if len(given) > len(self.inputs):
            raise RuntimeError(f"{self.name} takes {len(self.inputs)} arguments, not {len(given)}")
        return self.forward(**dict(zip(self.inputs, given, strict=False)), **arguments)

    def forward(self, /, **arguments: Any) -> Any:
        """Call the tool with arguments by name."""
        args = {name: value.to_raw() if isinstance(value, AgentType) else value for name, value in arguments.items()}
        answer = finish(self._found.call(self._face, args, Blocking(self._found.ex)))
        if answer.error is not None:
            raise RuntimeError(answer.text)
        return answer.value


def _name(face: Face, taken: set[str]) -> str:
    name = "".join(char if char.isalnum() else "_" for char in face.name)
    if not name.isidentifier() or keyword.iskeyword(name):
        name = f"tool_{name}"
    if name in taken:
        name = f"{name}_{hashlib.sha256((face.tool_id or face.name).encode()).hexdigest()[:8]}"
    return name


def _inputs(schema: JSONDict) -> dict[str, JSONDict]:
    """Return the arguments in the form of smolagents: each with a type and a description, and without references."""
    fitted = fit_schema(Schema.of(schema), _DIALECT, Losses("toolexec", "smolagents"))
    old_names = fitted.renamed
    required = {old_names.get(name, name) for name in fitted.schema.get("required", ())}
    inputs: dict[str, JSONDict] = {}
    for shown, part in fitted.schema.get("properties", {}).items():
        name = str(old_names.get(shown, shown))
        kinds = _kinds(part)
        entry: JSONDict = {key: value for key, value in part.items() if key not in {"anyOf", "oneOf"}}
        entry |= {"type": kinds[0] if len(kinds) == 1 else kinds, "description": part.get("description", name)}
        if name not in required:
            entry["nullable"] = True
        inputs[name] = entry
    return inputs


def _kinds(part: JSONDict) -> list[str]:
    """Return the types that a value may have. A number may be an integer, which smolagents distinguishes in lists."""
    own = part.get("type")
    if isinstance(own, str):
        return [own]
    unions = [each for key in ("anyOf", "oneOf") for each in part.get(key, ())]
    found = {*own} if isinstance(own, list) else {kind for each in unions for kind in _kinds(each)}
    if not found:
        return [*_ANY]
    return sorted(found | ({"integer"} if "number" in found else set()))
