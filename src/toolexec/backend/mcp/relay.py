"""What a server asks while it works, and what it says meanwhile: for the client whose call it works on, and no other.

In the era of handshakes a request of a server does not say which call it belongs to. Where calls of several callers are
under way on one connection it cannot be known whose client is meant, so none is asked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias, TypeVar

import pydantic
from mcp import MCPError
from mcp.client.session import ClientRequestContext
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    ListRootsResult,
    LoggingMessageNotificationParams,
)

from toolexec.backend.mcp.secret_forms import asks_for_secret
from toolexec.errors import ToolExecError
from toolexec.model.bound import Bound
from toolexec.model.call import ToolCall
from toolexec.model.json_value import JSONDict
from toolexec.model.questions import QUESTIONS, ClientQuestion, QuestionKind

logger: logging.Logger = logging.getLogger(__name__)
_MOST_QUESTIONS: Final = 50
_MOST_CHARACTERS: Final = 1 << 20
_MOST_IN_FORM: Final = 1 << 16
_TOO_MUCH: Final = "too many questions, or too long a question, for one call"
_current: ContextVar[ToolCall | None] = ContextVar("toolexec_mcp_call", default=None)
_Owner: TypeAlias = tuple[str, str, str, str]
T = TypeVar("T", bound=pydantic.BaseModel)


class Relay:
    """Knows the calls that are under way at the server *name*, and puts its questions to their client.

    While it is not `active`, the server does not learn that it may ask. Questions that are not of one of these *kinds*
    are refused, and the server does not learn of those either.
    """

    def __init__(self, name: str, kinds: Collection[QuestionKind] = QUESTIONS) -> None:
        self.active: bool = False
        self._name = name
        self._kinds = frozenset(kinds)
        self._calls: dict[int, ToolCall] = {}
        self._asked: dict[int, int] = {}
        self._roots_of: _Owner | None = None

    def takes(self, kind: QuestionKind) -> bool:
        """Return whether the server learns that it may ask this."""
        return self.active and kind in self._kinds

    @contextmanager
    def during(self, call: ToolCall) -> Generator[None, None, None]:
        """Count *call* as under way in the block."""
        self._calls[id(call)] = call
        try:
            with Bound(_current, call):
                yield
        finally:
            self._calls.pop(id(call), None)
            self._asked.pop(id(call), None)

    def _whose(self) -> ToolCall | None:
        """Return the call that the server works on; None where that cannot be known."""
        known = _current.get()
        if known is not None and id(known) in self._calls:
            return known
        calls = list(self._calls.values())
        owners = set(map(_owner, calls))
        return calls[-1] if len(owners) == 1 else None

    # -- callbacks of the SDK -----------------------------------------------------------------------------------

    async def sampling(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools | ErrorData:
        """Have the client's model answer."""
        data = _data(params)
        data.pop("includeContext", None)  # the client would take it for all servers behind this one
        kind = CreateMessageResultWithTools if params.tools else CreateMessageResult
        return await self._ask("sampling", data, kind)

    async def elicitation(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
        """Have the person at the client answer; a form that asks for a secret is refused."""
        if "elicitation" not in self._kinds:
            return _not_allowed("elicitation")
        data = _data(params)
        if _is_too_long(data, _MOST_IN_FORM):  # it is not looked through: that would hold up all other calls
            return ErrorData(code=INVALID_REQUEST, message=_TOO_MUCH)
        if (what := asks_for_secret(data)) is not None:
            logger.warning("MCP server %s asks for a secret (%s); its question was refused", self._name, what)
            return ErrorData(code=INVALID_REQUEST, message=f"a form must not ask for a secret ({what}); give a URL")
        return await self._ask("elicitation", data, ElicitResult)

    async def roots(self, context: ClientRequestContext) -> ListRootsResult | ErrorData:
        """Have the client list its roots; while the server works on no call it cannot know of any."""
        answer = await self._ask("roots", {}, ListRootsResult)
        if isinstance(answer, ListRootsResult) and (call := self._whose()) is not None:
            self._roots_of = _owner(call)
        return answer

    def has_roots_of_another(self, call: ToolCall) -> bool:
        """Return whether the server may remember the roots of another caller; it is notified then, and asks again."""
        if self._roots_of is None or self._roots_of == _owner(call):
            return False
        self._roots_of = None
        return True

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        """Pass a message on to the caller; what is said while it works on no call of one is lost."""
        call = self._whose()
        listener = call.origin.hear if call is not None else None
        if listener is not None:
            said = params.data if isinstance(params.data, str) else json.dumps(params.data, ensure_ascii=False)
            listener(params.level, f"{params.logger}: {said}" if params.logger else said)

    async def _ask(self, kind: QuestionKind, params: JSONDict, result: type[T]) -> T | ErrorData:
        if kind not in self._kinds:
            return _not_allowed(kind)
        call = self._whose()
        if call is None or call.origin.answer is None:
            why = "its caller cannot be asked" if call is not None else "it is not known for whom"
            return ErrorData(code=INVALID_REQUEST, message=f"{kind} is not possible: {why}")
        asked = self._asked[id(call)] = self._asked.get(id(call), 0) + 1
        if asked > _MOST_QUESTIONS or _is_too_long(params):
            return ErrorData(code=INVALID_REQUEST, message=_TOO_MUCH)
        question = ClientQuestion(kind=kind, backend=self._name, tool_id=call.tool_id, params=params)
        try:
            answer = await call.origin.answer(question)
            if answer is None:
                return ErrorData(code=INVALID_REQUEST, message=f"the client does not support {kind}")
            return result.model_validate(answer, by_name=False)
        except MCPError as error:
            return error.error
        except (TimeoutError, ToolExecError, pydantic.ValidationError) as error:
            logger.info("a question of MCP server %s was not answered: %s", self._name, type(error).__name__)
            return ErrorData(code=INTERNAL_ERROR, message=f"{kind}: there is no answer")


def _not_allowed(kind: QuestionKind) -> ErrorData:
    return ErrorData(code=INVALID_REQUEST, message=f"{kind} is not possible: this server may not ask for it")


def _is_too_long(params: JSONDict, most: int = _MOST_CHARACTERS) -> bool:
    return len(json.dumps(params)) > most


def _owner(call: ToolCall) -> _Owner:
    origin = call.origin
    # Callers who cannot be distinguished from others share a session: only the way back to each is its own.
    session = f"{id(origin.answer)}" if origin.approvals == "once" else origin.session
    return (origin.caller.method, origin.caller.realm, origin.caller.id, session)


def _data(params: pydantic.BaseModel) -> JSONDict:
    data = params.model_dump(by_alias=True, mode="json", exclude_none=True)
    data.pop("_meta", None)
    data.pop("task", None)
    return data
