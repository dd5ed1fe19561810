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
from toolexec.server.tools.languages import worded_for
from toolexec.server.tools.places import LIST_BACKENDS
from toolexec.server.tools.reading import DESCRIBE_TOOL, LIST_TOOL_EXAMPLES, STUBS
from toolexec.server.tools.running import RUN_TOOL

_BESIDE: Final = ("execute_code", "read_result")
_ROOM: Final = {True: 11_000, False: 17_000}


def meta_tools(
    expose: Expose, *, code_enabled: bool, list_all: bool = False, language: str = "python"
) -> list[MetaTool]:
    """Return those of the server's own tools that it lists, in the order in which a model needs them.

    Five for `meta`; two for `code`; for `auto`, where it does not list the tools themselves, those of `code`, or of
    `meta` unless *code_enabled*; only what reads long results for `direct`. With *list_all* those of `unlisted_tools`
    follow. *language* is that of programs that name none. Raises ConfigurationError for `code` without code, and for an
    unknown *expose*.
    """
    from toolexec.server.tools.results import READ_RESULT

    match expose:
        case "auto" | "code" if code_enabled:
            listed = [FIND, EXECUTE]
        case "auto" | "meta":
            listed = [SEARCH_TOOLS, DESCRIBE_TOOL, RUN_TOOL, EXECUTE_CODE if code_enabled else RUN_CHAIN, READ_RESULT]
        case "code":
            raise ConfigurationError(
                "expose = code offers execute_code, but code execution is switched off; enable it, or choose meta"
            )
        case "direct":
            listed = [READ_RESULT]
        case _:
            raise ConfigurationError(f"unknown expose {expose!r}; use auto, meta, direct or code")
    shown = worded_for(language, listed)
    return [*shown, *unlisted_tools(expose, code_enabled=code_enabled, language=language)] if list_all else shown


def unlisted_tools(expose: Expose, *, code_enabled: bool, language: str = "python") -> list[MetaTool]:
    """Return the server's own tools that clients can call and do not see: all that `meta_tools` leaves out, without
    those for code unless *code_enabled*; none with `direct`. `find` and `execute`, which stand for others, are there
    only where they are listed."""
    from toolexec.server.tools.results import READ_RESULT

    if expose == "direct":
        return []
    coding = [EXECUTE_CODE, STUBS] if code_enabled else []
    listing = [LIST_TOOLS, LIST_NAMESPACES, LIST_TOOL_EXAMPLES, LIST_BACKENDS]
    running = [RUN_TOOL, RUN_CHAIN, RUN_WORKFLOW]
    listed = meta_tools(expose, code_enabled=code_enabled)
    every = [SEARCH_TOOLS, DESCRIBE_TOOL, *running, *coding, READ_RESULT, *listing]
    return worded_for(language, [tool for tool in every if tool not in listed])


def beside(own: Sequence[MetaTool]) -> list[MetaTool]:
    """Return those of the server's *own* tools that are listed beside the tools of the catalogue: what runs programs
    that call them, and what reads long results."""
    return [tool for tool in own if tool.name in _BESIDE]


def room_for_tools(*, code_enabled: bool) -> int:
    """Return how many bytes the definitions of all tools may have, output schemas too, so that a task costs a model no
    more with them than with the server's own tools.

    It is what the replay of `benchmarks.context` says, where a task is 4.2 calls. A token that is read again costs a
    tenth, and so does the list, which every conversation begins with. So a task costs 400 tokens and 0.52 of each one
    in the list with the tools themselves, 1,360 with those for `code` and 1,720 with those of `meta`. The first is as
    much as the others at lists of 1,840 and 2,530 tokens, with 270 and 100 of them for what is beside the tools. A
    token of a list comes with 7 bytes of a definition: that makes 11 and 17 KB.
    """
    return _ROOM[code_enabled]


def json_bytes(definition: JSONDict) -> int:
    """Return how many bytes a definition takes as compact JSON."""
    text = json.dumps(definition, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "surrogatepass"))
