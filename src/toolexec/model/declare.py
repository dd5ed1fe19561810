"""`@tool`: a typed function becomes a `Tool` and its handler."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from toolexec.errors import InvalidToolError
from toolexec.model.handler import Handler, importable_source, kind_of, run_mode
from toolexec.model.ids import ToolID, clean_segment
from toolexec.model.settings import check_settings
from toolexec.model.signature import Signature, read_signature
from toolexec.model.tool import Icon, Tool, ToolAnnotations

_MORE = r"[ \t]*(.*(?:\n[ \t]+\S.*)*)$"
_PARAM = re.compile(rf"^[ \t]*:(?:param|parameter|arg|argument|key|keyword)[ \t][^:\n]*?(\w+):{_MORE}", re.MULTILINE)
_FIELD = re.compile(
    rf"^[ \t]*:(?:param|parameter|arg|argument|key|keyword|type|raises?|returns?|rtype)\b[^:\n]*:{_MORE}\n?",
    re.MULTILINE,
)

P = ParamSpec("P")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """What `@tool` gives: still the function when called, with its `tool` definition and `handler` beside it."""

    def __init__(self, function: Callable[P, R], tool: Tool, handler: Handler) -> None:
        self.tool = tool
        self.handler = handler
        self.__wrapped__ = function
        self.__doc__ = function.__doc__
        self.__name__: object | str = getattr(function, "__name__", tool.name)
        self.__qualname__ = getattr(function, "__qualname__", tool.name)
        self.__module__ = getattr(function, "__module__", __name__)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without any check."""
        return self.__wrapped__(*args, **kwargs)

    def __repr__(self) -> str:
        return f"FunctionTool({self.tool.id!r})"


class ToolSettings(TypedDict, total=False):
    """What `tool` takes beside the name and how the function runs."""

    namespace: str
    version: str
    title: str
    description: str | None
    tags: Iterable[str]
    read_only: bool
    idempotent: bool
    destructive: bool | None
    open_world: bool | None
    icons: Iterable[Icon]
    meta: Mapping[str, object]


class _AllSettings(ToolSettings, total=False):
    inline: bool
    killable: bool


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    name: str | None = None,
    /,
    *,
    namespace: str = "",
    version: str = "",
    title: str = "",
    description: str | None = None,
    tags: Iterable[str] = (),
    read_only: bool = False,
    idempotent: bool = False,
    destructive: bool | None = None,
    open_world: bool | None = None,
    icons: Iterable[Icon] = (),
    meta: Mapping[str, object] = ...,
    inline: bool = False,
    killable: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(name: object = None, /, *, inline: bool = False, killable: bool = False, **parts: Unpack[ToolSettings]) -> Any:
    """Declare a typed function as a tool.

    The input schema (2020-12) comes from the parameters: builtins, dataclasses, pydantic models, enums, `Literal`,
    `Annotated`, defaults, and descriptions from the docstring (Google, NumPy, Sphinx or Epydoc style). The output
    schema comes from the return annotation. A parameter annotated with `ToolContext` gets one and is not an argument.

    *name* may be a whole ID (`"math:add"`); the default is the function's name. A sync function runs in a worker
    thread, unless it is `inline` (on the event loop: only for code that never waits) or `killable` (in a worker
    process, which is killed when the call times out or is cancelled). Generators stream their values.

    >>> @tool(namespace="math")
    ... def add(a: int, b: int = 1) -> int:
    ...     "Adds two numbers."
    ...     return a + b
    >>> add.tool.id, add(2)
    ('math:add', 3)

    Raises InvalidToolError for what cannot be a tool, for unknown settings and invalid values; ConfigurationError for
    contradicting switches.
    """
    check_settings("tool", _AllSettings, {"inline": inline, "killable": killable, **parts}, error=InvalidToolError)
    if name is not None and not isinstance(name, str) and not callable(name):
        raise InvalidToolError(f"tool: the name must be a string, not {type(name).__name__}")
    frame = inspect.currentframe()
    around = frame.f_back if frame is not None else None
    local_names = around.f_locals if around is not None else {}  # annotations may name types of the function around
    if callable(name):
        return declare(name, local_names=local_names)

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        return declare(function, name, inline=inline, killable=killable, local_names=local_names, **parts)

    return decorate


def declare(
    function: Callable[..., Any],
    name: str | None = None,
    *,
    inline: bool = False,
    killable: bool = False,
    local_names: Mapping[str, object] | None = None,
    **parts: Unpack[ToolSettings],
) -> FunctionTool[..., Any]:
    """Return the same as `tool(...)` applied to *function*."""
    check_settings("tool", _AllSettings, {"inline": inline, "killable": killable, **parts}, error=InvalidToolError)
    if isinstance(function, FunctionTool):
        raise InvalidToolError(f"{function.tool.id} is declared as a tool already")
    mode = run_mode(function, inline=inline, killable=killable)
    kind = kind_of(function)
    summary, descriptions = _docstring(function)
    signature = read_signature(function, kind, descriptions=descriptions, local_names=local_names or {})
    source = importable_source(function, typed=True) if mode == "process" else None
    if mode == "process" and signature.context_parameter:
        raise InvalidToolError(f"{_name_of(function)} is killable and cannot take a ToolContext: it is out of reach")
    handler = Handler(
        call=_caller(function, signature.context_parameter),
        kind=kind,
        mode=mode,
        wants_context=signature.context_parameter is not None,
        convert=signature.convert,
        finish=signature.finish,
        source=source,
    )
    return FunctionTool(function, _definition(name or _name_of(function), signature, summary, dict(parts)), handler)


def _definition(name: str, signature: Signature, summary: str, parts: dict[str, Any]) -> Tool:
    if ":" in name:
        parsed = ToolID.parse(name)
        name = parsed.name
        parts = {**parts, "namespace": parsed.namespace, "version": parsed.version or parts.get("version", "")}
    hints = {key: parts.pop(key) for key in ("read_only", "idempotent", "destructive", "open_world") if key in parts}
    description = parts.pop("description", None)
    return Tool(
        name=name,
        description=summary if description is None else description,
        input_schema=signature.input_schema,
        output_schema=signature.output_schema,
        annotations=ToolAnnotations(**hints),
        **parts,
    )


def _caller(function: Callable[..., Any], context: str | None) -> Callable[..., Any]:
    if context is None:
        return lambda args: function(**args)
    return lambda args, ctx: function(**{**args, context: ctx})


def _name_of(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "") or type(function).__name__
    return clean_segment(name)


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description and the parameters' descriptions."""
    text = inspect.getdoc(function) if inspect.isroutine(function) else None
    if not text:
        return "", {}
    if not {*":@\n"} & {*text}:  # one line without sections, whose parser takes 30 ms to load
        return text, {}
    import docstring_parser

    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text, {}
    summary = "\n\n".join(part for part in (parsed.short_description, parsed.long_description) if part)
    described = {p.arg_name: p.description for p in parsed.params if p.description}
    summary, fields = _without_fields(summary or ("" if described else text))
    return summary, fields | described


def _without_fields(text: str) -> tuple[str, dict[str, str]]:
    """Return a description without the Sphinx fields that another style around them has left in it, and what they say
    of the parameters."""
    found = {each[1]: " ".join(each[2].split()) for each in _PARAM.finditer(text)}
    return _FIELD.sub("", text).strip(), found
