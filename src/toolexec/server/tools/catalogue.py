"""Which tools the server offers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.server.settings import Expose
from toolexec.server.tools.base import MetaTool
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.coding import EXECUTE, EXECUTE_CODE, RUN_WORKFLOW
from toolexec.server.tools.find import FIND
from toolexec.server.tools.finding import LIST_NAMESPACES, LIST_TOOLS, SEARCH_TOOLS
from toolexec.server.tools.places import LIST_BACKENDS
from toolexec.server.tools.reading import DESCRIBE_TOOL, LIST_TOOL_EXAMPLES, STUBS
from toolexec.server.tools.running import RUN_TOOL

__all__ = ["beside", "json_bytes", "meta_tools", "room_for_tools", "unlisted_tools"]

_BESIDE: Final = ("execute_code", "read_result")


def meta_tools(expose: Expose, *, code_enabled: bool) -> list[MetaTool]:
    """Return the server's own tools, in the order in which a model needs them.

    All of them for `meta` and `auto`, without those for code unless *code_enabled*; two for `code`; only what reads
    long results for `direct`. Raises ConfigurationError for `code` without code, and for an unknown *expose*.
    """
    from toolexec.server.tools.results import READ_RESULT

    match expose:
        case "meta" | "auto":
            finding = [SEARCH_TOOLS, DESCRIBE_TOOL, RUN_TOOL, RUN_CHAIN, RUN_WORKFLOW]
            coding = [EXECUTE_CODE, STUBS] if code_enabled else []
            return [*finding, *coding, READ_RESULT, LIST_TOOLS, LIST_NAMESPACES, LIST_TOOL_EXAMPLES, LIST_BACKENDS]
        case "code":
            if not code_enabled:
                raise ConfigurationError(
                    "expose = code offers execute_code, but code execution is switched off; enable it, or choose meta"
                )
            return [FIND, EXECUTE]
        case "direct":
            return [READ_RESULT]
        case _:
            raise ConfigurationError(f"unknown expose {expose!r}; use auto, meta, direct or code")


def unlisted_tools(expose: Expose) -> list[MetaTool]:
    """Return the server's own tools that clients can call and do not see: with `code`, those that `find` and `execute`
    stand for."""
    from toolexec.server.tools.results import READ_RESULT

    return [SEARCH_TOOLS, DESCRIBE_TOOL, EXECUTE_CODE, READ_RESULT] if expose == "code" else []


def beside(own: Sequence[MetaTool]) -> list[MetaTool]:
    """Return those of the server's *own* tools that are listed beside the tools of the catalogue: what runs programs
    that call them, and what reads long results."""
    return [tool for tool in own if tool.name in _BESIDE]


def room_for_tools(own: Sequence[MetaTool]) -> int:
    """Return how many bytes the definitions of all tools may have, so that they and those beside them are not longer
    than those of the server's *own* tools, which find and run them."""
    return sum(json_bytes(tool.to_mcp()) for tool in own) - sum(json_bytes(tool.to_mcp()) for tool in beside(own))


def json_bytes(definition: JSONDict) -> int:
    """Return how many bytes a definition takes as compact JSON."""
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass"))
