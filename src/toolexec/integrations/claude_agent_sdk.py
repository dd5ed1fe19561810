"""An `Exec` as tools of the Claude Agent SDK: `ClaudeSDKClient(options(ex))`."""

from __future__ import annotations

from typing import Any

from toolexec.discovery.summary import Filters
from toolexec.errors import MissingExtraError
from toolexec.exec.facade import Exec
from toolexec.integrations.toolset import Mode, Toolset
from toolexec.model.origin import Origin

__all__ = ["options"]


def options(
    ex: Exec,
    base: Any = None,
    *,
    name: str = "toolexec",
    mode: Mode = "direct",
    filters: Filters | None = None,
    origin: Origin | None = None,
) -> Any:
    """Return *base*, the `ClaudeAgentOptions` of an agent, with the tools of *ex* as its MCP server *name*.

    In the mode `direct` they are the tools that *ex* has when the agent starts, so start it first; `search` has
    `search_tools`, `describe_tool` and `run_tool`, `code` has `execute_code` in place of the last. They run in this
    process. Every call goes through the gate of *ex*, and is made for *origin*; the agent's own permissions allow what
    the gate does not ask about. What it would ask about is put to `can_use_tool` of *base*, if that has one, whose yes
    is the gate's approval for that call, with the arguments that it returns, once; without one the gate asks. A failure
    is a result with `isError`, and a code in its text.

    Raises ConfigurationError for a mode that cannot be, and where *base* names its MCP servers in a file, or one of
    this name; MissingExtraError without the `claude-agent-sdk` extra.
    """
    try:
        from toolexec.integrations.frameworks.claude_agent_sdk import with_tools
    except ImportError:
        raise MissingExtraError("claude-agent-sdk", needed_for="tools for the Claude Agent SDK") from None
    return with_tools(Toolset(ex, mode, filters, origin), base, name)
