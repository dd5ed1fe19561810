"""Which tools the server offers."""

from __future__ import annotations

from toolexec.errors import ConfigurationError
from toolexec.server.settings import Expose
from toolexec.server.tools.base import MetaTool
from toolexec.server.tools.chaining import RUN_CHAIN
from toolexec.server.tools.coding import EXECUTE_CODE
from toolexec.server.tools.finding import LIST_NAMESPACES, LIST_TOOLS, SEARCH_TOOLS
from toolexec.server.tools.places import LIST_BACKENDS
from toolexec.server.tools.reading import DESCRIBE_TOOL, LIST_TOOL_EXAMPLES, STUBS
from toolexec.server.tools.running import RUN_TOOL

__all__ = ["meta_tools"]


def meta_tools(expose: Expose, *, code_enabled: bool) -> list[MetaTool]:
    """Return the server's own tools, in the order in which a model needs them.

    All of them for `meta` and `auto`, without those for code unless *code_enabled*; four for `code`; only what reads
    long results for `direct`. Raises ConfigurationError for `code` without code, and for an unknown *expose*.
    """
    from toolexec.server.tools.results import READ_RESULT

    match expose:
        case "meta" | "auto":
            finding = [SEARCH_TOOLS, DESCRIBE_TOOL, RUN_TOOL, RUN_CHAIN]
            coding = [EXECUTE_CODE, STUBS] if code_enabled else []
            return [*finding, *coding, READ_RESULT, LIST_TOOLS, LIST_NAMESPACES, LIST_TOOL_EXAMPLES, LIST_BACKENDS]
        case "code":
            if not code_enabled:
                raise ConfigurationError(
                    "expose = code offers execute_code, but code execution is switched off; enable it, or choose meta"
                )
            return [SEARCH_TOOLS, DESCRIBE_TOOL, EXECUTE_CODE, READ_RESULT]
        case "direct":
            return [READ_RESULT]
        case _:
            raise ConfigurationError(f"unknown expose {expose!r}; use auto, meta, direct or code")
