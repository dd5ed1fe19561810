"""Tools of other frameworks, known by their public methods: none of them is imported here.

LangChain: `name`, `description`, `tool_call_schema`, `invoke`, `ainvoke`. Pydantic AI: `tool_def`, `function_schema`.
LlamaIndex: `metadata`, `call`, `acall`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from toolexec.errors import InvalidToolError, RemoteToolError
from toolexec.model.declare import FunctionTool
from toolexec.model.handler import Handler
from toolexec.model.ids import clean_segment
from toolexec.model.json_value import JSONObject, to_json_lossy
from toolexec.model.tool import Tool

_MOST_DESCRIPTION: Final = 20_000


def foreign_tool(value: Any) -> FunctionTool[..., Any] | None:
    """Return the tool of another framework as one of ours; None for what is not such a tool.

    Raises InvalidToolError for one that cannot be called without the framework's agent, or whose schema or name cannot
    be used.
    """
    if isinstance(value, type):
        return None
    for members, make in _FRAMEWORKS:
        if all(_has(value, member) for member in members):
            return make(value)
    return None


def _has(value: Any, member: str) -> bool:
    return inspect.getattr_static(value, member, None) is not None or member in getattr(value, "__dict__", {})


def _langchain(value: Any) -> FunctionTool[..., Any]:
    checked = bool(getattr(value, "handle_tool_error", False) or getattr(value, "handle_validation_error", False))

    def asked(args: JSONObject) -> Any:
        # As a call of a model, what the tool handles itself comes back with its status.
        call = {"name": value.name, "args": dict(args), "id": "toolexec", "type": "tool_call"}
        return call if checked else dict(args)

    def answer(reply: Any) -> Any:
        if not checked:
            return reply
        if getattr(reply, "status", "") == "error":
            raise RemoteToolError(f"{value.name} failed: {str(reply.content)[:2000]}")
        return getattr(reply, "content", reply)

    def call(args: JSONObject) -> Any:
        return answer(value.invoke(asked(args)))

    async def acall(args: JSONObject) -> Any:
        return answer(await value.ainvoke(asked(args)))

    schema = _json_schema(getattr(value, "tool_call_schema", None) or value.args_schema)
    handler = Handler(call=acall, kind="async") if _langchain_is_async(value) else Handler(call=call, kind="sync")
    return _tool(value.name, value.description, schema, handler)


def _langchain_is_async(value: Any) -> bool:
    """Return whether a tool has a coroutine of its own, and not just its function in a thread of LangChain's."""
    if hasattr(value, "coroutine"):
        return value.coroutine is not None
    for cls in type(value).__mro__:
        if cls.__name__ == "BaseTool":
            return False
        if "_arun" in vars(cls):
            return True
    return True


def _pydantic_ai(value: Any) -> FunctionTool[..., Any]:
    definition, function = value.tool_def, value.function_schema
    if value.takes_ctx:
        raise InvalidToolError(f"{value.name} takes the context of an agent's run, which only Pydantic AI has")
    positional = function.positional_fields or function.var_positional_field or function.single_arg_name

    def call(args: JSONObject) -> Any:
        return function.function(**function.validator.validate_python(dict(args)))

    async def acall(args: JSONObject) -> Any:
        return await function.call(function.validator.validate_python(dict(args)), None)

    simple = not positional and not function.is_async
    handler = Handler(call=call, kind="sync") if simple else Handler(call=acall, kind="async")
    return _tool(value.name, definition.description, definition.parameters_json_schema, handler)


def _llamaindex(value: Any) -> FunctionTool[..., Any]:
    metadata = value.metadata
    if getattr(value, "requires_context", False):
        raise InvalidToolError(f"{metadata.name} takes the context of a workflow, which only LlamaIndex has")

    def answer(reply: Any) -> Any:
        if reply.is_error:
            raise RemoteToolError(f"{metadata.name} failed: {str(getattr(reply, 'content', ''))[:2000]}")
        return reply.raw_output

    def call(args: JSONObject) -> Any:
        return answer(value.call(**args))

    async def acall(args: JSONObject) -> Any:
        return answer(await value.acall(**args))

    is_async = inspect.iscoroutinefunction(getattr(value, "real_fn", None))
    handler = Handler(call=acall, kind="async") if is_async else Handler(call=call, kind="sync")
    return _tool(metadata.name, metadata.description, metadata.get_parameters_dict(), handler)


_FRAMEWORKS: Final = (
    (("invoke", "ainvoke", "args_schema", "description", "name"), _langchain),
    (("tool_def", "function_schema", "takes_ctx"), _pydantic_ai),
    (("metadata", "call", "acall"), _llamaindex),
)
"""What the tools of each framework have, and what makes one of ours of them."""


def _tool(name: Any, description: Any, schema: Any, handler: Handler) -> FunctionTool[..., Any]:
    tool = Tool(
        name=clean_segment(str(name or "")),
        description=str(description or "")[:_MOST_DESCRIPTION],
        input_schema=to_json_lossy(schema),
    )
    return FunctionTool(handler.call, tool, handler)


def _json_schema(schema: Any) -> Any:
    """Return the JSON Schema that a framework gives as a mapping or as a class of pydantic's."""
    if schema is None:
        return {"type": "object"}
    if isinstance(schema, Mapping):
        return dict(schema)
    make = getattr(schema, "model_json_schema", None) or getattr(schema, "schema", None)
    if make is None:
        raise InvalidToolError(f"its arguments are described by {type(schema).__name__}, which has no JSON Schema")
    return make()
