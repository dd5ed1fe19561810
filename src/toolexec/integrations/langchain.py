"""An `Exec` as tools of LangChain: `model.bind_tools(tools(ex))`."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, cast

from pydantic import PrivateAttr

from toolexec.discovery.summary import Filters
from toolexec.errors import ApprovalDeniedError, MissingExtraError
from toolexec.exec.facade import Exec
from toolexec.integrations.blocking import Blocking, finish
from toolexec.integrations.toolset import Answer, Face, Mode, Toolset, failed_answer
from toolexec.model.bound import Bound
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Origin
from toolexec.run.types import Result

try:
    from langchain_core.runnables import RunnableConfig
    from langchain_core.tools import BaseTool, ToolException

    from toolexec.integrations.tool_progress import CALL_ID, Reports
except ImportError:
    raise MissingExtraError("langchain", needed_for="tools for LangChain") from None

__all__ = ["ExecTool", "tools"]


def tools(
    ex: Exec, *, mode: Mode = "direct", filters: Filters | None = None, origin: Origin | None = None
) -> list[BaseTool]:
    """Return the tools of *ex* for LangChain and LangGraph, with `invoke` and `ainvoke`.

    In the mode `direct` they are the tools that *ex* has just now, so start it first; `search` has `search_tools`,
    `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. Every call goes through the gate of
    *ex*, and is made for *origin*. A ToolMessage has text for the model, and as its artifact the answer as JSON; a
    failure has the status `error` and a code in its text. What a tool reports goes to the custom stream of a graph and
    to `astream_events`, as the event `tool_progress`. `invoke` uses `ex.sync`: use either that or `ainvoke`. Copies of
    a tool, deep ones too, share its Exec.

    Raises ConfigurationError for a mode that cannot be; importing the module raises MissingExtraError without the
    `langchain` extra.
    """
    found = Toolset(ex, mode, filters, origin)
    return [ExecTool(found, face) for face in found.faces()]


class ExecTool(BaseTool):
    """One tool of an `Exec`; see `tools`."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _tools: Toolset = PrivateAttr()
    _face: Face = PrivateAttr()

    def __init__(self, found: Toolset, face: Face) -> None:
        metadata = {"tool_id": face.tool_id} if face.tool_id else None
        super().__init__(name=face.name, description=face.description, args_schema=face.schema, metadata=metadata)
        self._tools = found
        self._face = face

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Run the tool, and return a ToolMessage if *input* is the call of a model, else what its content would be."""
        with _calling(input):
            return super().invoke(input, config, **kwargs)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Await what `invoke` does."""
        with _calling(input):
            return await super().ainvoke(input, config, **kwargs)

    # A tool may have arguments of any name, `self` and `config` among them, so these two have no names of their own.

    def _run(self, /, **arguments: Any) -> tuple[Any, Any]:
        approved = self._is_approved(arguments)
        work = Blocking(self._tools.ex, Reports(self.name))
        return _output(finish(self._tools.call(self._face, arguments, work, approved=approved)))

    async def _arun(self, /, **arguments: Any) -> tuple[Any, Any]:
        approved = self._is_approved(arguments)
        reports = Reports(self.name)
        async with reports.awaited():
            answer = await self._tools.call(self._face, arguments, _Awaited(self._tools.ex, reports), approved=approved)
        return _output(answer)

    def _is_approved(self, arguments: JSONObject, /) -> bool:
        """Return whether the graph's user has approved this call; raises what interrupts the graph to ask. Outside of a
        graph the gate asks."""
        if not self._tools.needs_approval(self._face, arguments):
            return False
        try:
            return _interrupt_for(self.name, arguments, self.description)
        except ApprovalDeniedError as error:
            raise ToolException(failed_answer(error).text) from None


@contextmanager
def _calling(input: Any) -> Generator[None]:
    """Keep the ID of a model's call for what its tool reports."""
    call_id: Any = cast("Mapping[str, Any]", input).get("id") if isinstance(input, Mapping) else None
    with Bound(CALL_ID, call_id if isinstance(call_id, str) else ""):
        yield


class _Awaited:
    """An Exec whose tools report to *reports*."""

    def __init__(self, ex: Exec, reports: Reports) -> None:
        self.search_tools = ex.search_tools
        self.get_tool_doc = ex.get_tool_doc
        self.execute_code = ex.execute_code
        self._ex = ex
        self._reports = reports

    async def run_tool(self, tool_id: str, args: JSONObject | None = None) -> Result:
        return await self._ex.run_tool(tool_id, args, on_progress=self._reports)


def _output(answer: Answer) -> tuple[Any, Any]:
    """Content and artifact."""
    if answer.error is not None:
        raise ToolException(answer.text)
    if not answer.images:
        return answer.text, answer.value
    pictures = [{"type": "image", "base64": data, "mime_type": kind} for kind, data in answer.images]
    return [{"type": "text", "text": answer.text}, *pictures], answer.value


def _interrupt_for(name: str, args: JSONObject, description: str) -> bool:
    """Interrupt the graph in which a tool is called, in the form of LangChain's human in the loop, and return whether
    its user approved the call once the graph is resumed: with `{"decisions": [{"type": "approve"}]}` or True.

    False where there is no graph, or none that can be resumed. Raises ApprovalDeniedError for any other answer.
    """
    try:  # it comes with LangGraph, and not with this extra
        from langgraph.config import get_config
        from langgraph.types import interrupt
    except ImportError:
        return False
    try:
        settings: Any = get_config().get("configurable", {})
    except RuntimeError:
        return False
    if settings.get("__pregel_checkpointer") is None:
        return False
    request = {"name": name, "args": dict(args), "description": description}
    review = {"action_name": name, "allowed_decisions": ["approve", "reject"]}
    answer: Any = interrupt({"action_requests": [request], "review_configs": [review]})
    if _is_yes(answer):
        return True
    raise ApprovalDeniedError(f"{name} was not approved; call it again only if the user wants it", op="approval")


def _is_yes(answer: object) -> bool:
    if answer is True:
        return True
    decisions: Any = cast("Mapping[str, Any]", answer).get("decisions") if isinstance(answer, Mapping) else None
    only: Any = decisions[0] if isinstance(decisions, list) and len(cast("list[Any]", decisions)) == 1 else None
    return isinstance(only, Mapping) and cast("Mapping[str, Any]", only).get("type") == "approve"
