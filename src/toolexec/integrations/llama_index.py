"""An `Exec` as tools of LlamaIndex: `FunctionAgent(tools=tools(ex), llm=llm)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolexec.discovery.summary import Filters
from toolexec.errors import MissingExtraError
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Mode, Toolset
from toolexec.model.origin import Origin

if TYPE_CHECKING:
    from toolexec.integrations.frameworks.llama_index import ApprovalRequested

__all__ = ["approval_request", "tools"]


def tools(
    ex: Exec, *, mode: Mode = "direct", filters: Filters | None = None, origin: Origin | None = None
) -> list[Any]:
    """Return the tools of *ex* for an agent of LlamaIndex, with `call` and `acall`.

    In the mode `direct` they are the tools that *ex* has just now, so start it first; `search` has `search_tools`,
    `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. Every call goes through the gate of
    *ex*, and is made for *origin*. A failure is a `ToolOutput` with `is_error`, and a code in its text. A call that the
    gate would ask about waits in the workflow of the agent: its stream has an event that `approval_request` finds, and
    the reply to it is the gate's approval of that call, once. Outside of a workflow the gate asks. `call` uses
    `ex.sync`: use either that or `acall`.

    Raises MissingExtraError without the `llama-index` extra, and ConfigurationError for a mode that cannot be.
    """
    try:
        from toolexec.integrations.frameworks.llama_index import exec_tools
    except ImportError:
        raise MissingExtraError("llama-index", needed_for="tools for LlamaIndex") from None
    return exec_tools(Toolset(ex, mode, filters, origin))


def approval_request(event: object) -> ApprovalRequested | None:
    """Return an event of an agent's stream if it asks for the approval of a call, which has `tool` and `args`; None for
    any other. `handler.ctx.send_event(request.reply(True))` approves the call, and no other one.

    Raises MissingExtraError without the `llama-index` extra.
    """
    try:
        from toolexec.integrations.frameworks.llama_index import ApprovalRequested
    except ImportError:
        raise MissingExtraError("llama-index", needed_for="tools for LlamaIndex") from None
    return event if isinstance(event, ApprovalRequested) else None
