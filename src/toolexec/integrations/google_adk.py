"""An `Exec` as a toolset of Google's Agent Development Kit: `LlmAgent(tools=[toolset(ex)])`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from toolexec.discovery.summary import Filters
from toolexec.errors import MissingExtraError
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Mode
from toolexec.model.origin import Origin

__all__ = ["toolset"]


def toolset(
    ex: Exec,
    *,
    mode: Mode = "direct",
    filters: Filters | None = None,
    origin: Origin | Callable[[Any], Origin] | None = None,
) -> Any:
    """Return the tools of *ex* as a toolset for agents of Google ADK.

    In the mode `direct` the agent has the tools that *ex* has at that step; `search` has `search_tools`,
    `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. Every call goes through the gate of
    *ex*, and is made for *origin*: one for all, or a function of the context that ADK passes, so that
    `lambda context: Origin(caller=Caller(id=context.user_id))` makes each call for the user of its session. A failure
    is a response with `error`, and a code in it; the value of a tool that gives no object is its `result`, and pictures
    are left out. A call that the gate would ask about requests ADK's confirmation, and that of a call is the gate's
    approval for that call, once. Closing the toolset leaves *ex* open.

    Raises MissingExtraError without the `google-adk` extra, and ConfigurationError for a mode that cannot be.
    """
    try:
        from toolexec.integrations.frameworks.google_adk import ExecToolset
    except ImportError:
        raise MissingExtraError("google-adk", needed_for="a toolset for Google ADK") from None
    return ExecToolset(ex, mode=mode, filters=filters, origin=origin)
