"""What an MCP server asks the client of a call while the call lasts: its model, a person, or its roots."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from toolexec.model.json_value import JSONDict, JSONObject

QuestionKind: TypeAlias = Literal["sampling", "elicitation", "roots"]
QUESTIONS: Final[tuple[QuestionKind, ...]] = get_args(QuestionKind)
"""All kinds of questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuestion:
    """A question of the server *backend*, on behalf of a call of *tool_id*; `params` are those of its MCP request."""

    kind: QuestionKind
    backend: str
    tool_id: str
    params: JSONObject = field(default_factory=JSONDict, hash=False)


ClientAnswerer: TypeAlias = Callable[[ClientQuestion], Awaitable[JSONDict | None]]
"""Puts a question to the client and returns the result in MCP's spelling; None where the client cannot be asked. What
it raises refuses the question."""
