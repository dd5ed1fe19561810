"""An `Exec` as tools of smolagents: `ToolCallingAgent(tools(ex), model)`."""

from __future__ import annotations

from typing import Any

from toolexec.discovery.summary import Filters
from toolexec.errors import MissingExtraError
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Mode, Toolset
from toolexec.model.origin import Origin

__all__ = ["tools"]


def tools(
    ex: Exec, *, mode: Mode = "direct", filters: Filters | None = None, origin: Origin | None = None
) -> list[Any]:
    """Return the tools of *ex* for an agent of smolagents, a `ToolCallingAgent` or a `CodeAgent`.

    In the mode `direct` they are the tools that *ex* has just now, so start it first; `search` has `search_tools`,
    `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. They block, by `ex.sync`, so they
    are used inside `with ex.sync:`. Every call goes through the gate of *ex*, which also asks for approvals, as
    smolagents does not; it is made for *origin*. A call gives the value, without its pictures. A failure raises
    RuntimeError, with the error as JSON, which the model reads, and the run goes on. Names are Python's: what cannot be
    part of one becomes `_`.

    Raises MissingExtraError without the `smolagents` extra, and ConfigurationError for a mode that cannot be.
    """
    try:
        from toolexec.integrations.frameworks.smolagents import exec_tools
    except ImportError:
        raise MissingExtraError("smolagents", needed_for="tools for smolagents") from None
    return exec_tools(Toolset(ex, mode, filters, origin))
