"""A tool whose result has a value that an argument needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolexec.model.json_value import JSONDict

LinkSource: TypeAlias = Literal["schema", "name", "openapi", "observed"]
"""How a link is known: from both schemas, from the producer's name alone, from OpenAPI, from calls that were made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A tool, and where in its result the value is.

    `path` is JMESPath: names and `[]` for any item of a list (`items[].id`), `@` for the whole result, None when the
    tool's result is not described. `score` is between 0 and 1. `read_only` is the tool's own hint.
    """

    tool_id: str
    path: str | None
    score: float
    reason: str
    source: LinkSource = "schema"
    read_only: bool = False
    kind: str = ""

    def reference(self, step: int, *, to: str = "", many: bool = False, item: int = 0) -> dict[str, str]:
        """Return the argument of a later step that takes the value out of the result of step number *step*; where there
        are several, that of the first one, or of the one at the place *item* of the list.

        *to* is the argument's JSON type: an integer becomes text where text is asked for. *many* gives all values for
        an argument that is a list. Raises ValueError when the path is unknown.
        """
        if self.path is None:
            raise ValueError(f"where {self.tool_id} has the value is not known")
        path = self.path if many else self.path.replace("[]", f"[{item}]", 1).replace("[]", "[0]")
        if self.path == "@":
            path = ""
        if self.kind == "integer" and to == "string" and not many:
            whole = path or "@"
            path = f"{whole} && to_string({whole})"
        return {"$ref": f"steps.{step}{'' if not path or path.startswith('[') else '.'}{path}"}

    def to_dict(self) -> JSONDict:
        """Return the producer as JSON-able data; without `path` where that is not known."""
        data: JSONDict = {"tool": self.tool_id}
        if self.path is not None:
            data["path"] = self.path
        return data | {"score": round(self.score, 3), "source": self.source, "reason": self.reason}
