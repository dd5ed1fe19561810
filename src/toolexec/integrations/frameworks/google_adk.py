"""An `Exec` as a toolset of Google's Agent Development Kit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.adk.tools.base_tool import BaseTool  # pyright: ignore[reportMissingImports]
from google.adk.tools.base_toolset import BaseToolset  # pyright: ignore[reportMissingImports]
from google.genai.types import FunctionDeclaration  # pyright: ignore[reportMissingImports]

from toolexec.discovery.summary import Filters
from toolexec.errors import ApprovalDeniedError, ApprovalRequiredError
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Answer, Face, Mode, Toolset, failed_answer
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Origin


class ExecToolset(BaseToolset):  # pyright: ignore[reportUntypedBaseClass]
    """The tools of an `Exec`, as `toolexec.integrations.google_adk.toolset` describes them."""

    def __init__(
        self,
        ex: Exec,
        *,
        mode: Mode = "direct",
        filters: Filters | None = None,
        origin: Origin | Callable[[Any], Origin] | None = None,
    ) -> None:
        super().__init__()
        self._use_invocation_cache = False  # it would not see what is added during a run
        self._ex = ex
        self._mode: Mode = mode
        self._filters = filters
        self._origin = origin
        Toolset(ex, mode, filters)  # what cannot be is to fail here

    async def get_tools(self, readonly_context: Any = None) -> list[Any]:
        """Return the tools at this step of a run; starts the backends of *ex* that are not started. There are none
        where each call is for the user of its session, and there is no session."""
        origin = self._origin
        if callable(origin):
            if readonly_context is None:
                return []
            origin = origin(readonly_context)
        await self._ex.start()
        found = Toolset(self._ex, self._mode, self._filters, origin)
        return [ExecTool(found, face) for face in found.faces()]


class ExecTool(BaseTool):  # pyright: ignore[reportUntypedBaseClass]
    """One tool of an `Exec`; see `ExecToolset`."""

    def __init__(self, found: Toolset, face: Face) -> None:
        super().__init__(name=face.name, description=face.description)
        self._found = found
        self._face = face

    def _get_declaration(self) -> Any:
        schema = {key: value for key, value in self._face.schema.items() if key != "$schema"}
        return FunctionDeclaration(name=self.name, description=self.description, parameters_json_schema=schema)

    async def run_async(self, *, args: JSONDict, tool_context: Any) -> JSONDict:
        """Call the tool, or ask ADK's user to confirm the call."""
        approved = False
        if self._found.needs_approval(self._face, args):
            confirmation = tool_context.tool_confirmation
            if confirmation is None:
                tool_context.request_confirmation(hint=f"Approve this call of {self._face.tool_id or self.name}?")
                tool_context.actions.skip_summarization = True
                message = f"{self.name} waits for the approval of its user"
                return _response(failed_answer(ApprovalRequiredError(message, op="approval")))
            approved = confirmation.confirmed is True
            if not approved:
                message = f"{self.name} was not approved; call it again only if the user wants it"
                return _response(failed_answer(ApprovalDeniedError(message, op="approval")))
        return _response(await self._found.call(self._face, args, approved=approved))


def _response(answer: Answer) -> JSONDict:
    return answer.value if isinstance(answer.value, dict) else {"result": answer.value}
