"""The object `tools` of a program."""

from __future__ import annotations

import sys
from typing import Any

from . import errors
from .channel import Channel
from .errors import CLASSES, tool_error
from .large import answered, large_result
from .lenient import records


class Record(dict):  # type: ignore[type-arg] # subscripting it would need typing at run time
    """A dict whose keys can be read as attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


_CALLS = ("call", "call_tool", "execute", "invoke", "execute_tool", "invoke_tool")
"""What models call `tools.run`; a tool of such a name takes no text."""


class _Tool:
    """A namespace or a tool, by the attributes that led to it; calling it calls the tool.

    Its own names begin with two underscores: tools may have any other name.
    """

    def __init__(self, tools: Tools, path: str, is_id: bool = False) -> None:
        self.__tools = tools
        self.__path = path
        self.__is_id = is_id

    def __getattr__(self, name: str) -> _Tool:
        if name.startswith("__"):
            raise AttributeError(name)
        tool = self.__dict__[name] = _Tool(
            self.__tools, self.__path + ":" + name, self.__is_id
        )  # found at once from now on
        return tool

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        first: Any = args[0] if args else None
        if isinstance(first, str) and self.__path in _CALLS:
            return self.__tools.run(*args, **kwargs)
        payload: dict[str, Any] = {"id": self.__path, "args": kwargs}
        if len(args) > 1 or (args and not isinstance(first, dict)):
            names = self.__tools.__toolexec_order__(self.__path)[: len(args)]
            if len(names) < len(args) or any(name in kwargs for name in names):
                raise TypeError(f"tools take keyword arguments: {self!r}(name=value)")
            payload["args"] = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - not in Python 3.9
            payload["bound"] = names
        elif args:
            payload["args"] = {**args[0], **kwargs}
        if not self.__is_id:
            payload["path"] = True
        return self.__tools.__call__(payload)

    def __getitem__(self, name: str) -> _Tool:
        return _Tool(self.__tools, self.__path + ":" + str(name), True)

    def __dir__(self) -> list[str]:
        return self.__tools.__toolexec_help__("names", self.__path)  # type: ignore[return-value]

    def __toolexec_help__(self) -> Any:
        return self.__tools.__toolexec_help__("text", self.__path)

    def __repr__(self) -> str:
        return "tools." + self.__path.replace(":", ".")


class Tools:
    """Find tools and call them: `tools.namespace.name(key=value)`, or `tools.run("namespace:name", {...})`.

    In a program without `await` a call blocks and gives the result. In one that uses `await`, await it; several calls
    given to `asyncio.gather` run at the same time. A tool that fails raises ToolError.
    """

    def __init__(self, channel: Channel, rules: dict[str, str] | None = None) -> None:
        """*rules* are those for the program."""
        self.__channel = channel
        self.__rules = rules or {}
        self.__reads_attributes = "dict." in self.__rules
        errors.large_value = lambda held: large_result(channel, held)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in CLASSES:  # `from tools import ToolError`
            return CLASSES[name]
        tool = self.__dict__[name] = _Tool(self, name)  # found at once from now on
        return tool

    def __getitem__(self, tool_id: str) -> Any:
        return _Tool(self, str(tool_id), True)

    def __dir__(self) -> list[str]:
        own = [name for name in type(self).__dict__ if name[0] != "_"]
        return own + self.__toolexec_help__("names")  # type: ignore[no-any-return]

    def __toolexec_help__(self, what: str = "text", path: str = "") -> Any:
        return self.__channel.ask("help", {"path": path, "page": what == "text"})[what]

    def __repr__(self) -> str:
        return "tools"

    def run(self, tool_id: str, args: Any = None, *, timeout: float | None = None, **more: Any) -> Any:
        """Return the result of one tool; raises ToolError when it failed. *timeout* is in seconds, and *more* are
        further arguments of the tool."""
        payload = {"id": tool_id, "args": {**(args or {}), **more} if more else args}
        if timeout is not None:
            payload["timeout"] = timeout
        return self(payload)

    def run_chain(self, steps: list[Any]) -> Any:
        """Return the last result of a chain of {"tool_id", "args", "use_previous", "name", "retries", "timeout",
        "stop_on_error"}; raises ToolError when a step failed. An argument may be {"$ref": "steps.0.items[0].id"}.
        """
        return self.__ask("run_chain", {"steps": list(steps)}, self.__last)

    def search(self, query: str, limit: int = 10) -> Any:
        """Return the best tools for a query."""
        return self.__ask("search_tools", {"query": query, "limit": limit}, lambda p: _records(p, "results"))

    def describe(self, tool_id: str, level: str = "full") -> Any:
        """Return what there is to know about a tool: `summary`, `schema` or `full`."""
        return self.__ask("describe_tool", {"id": tool_id, "level": level}, Record)

    def list_namespaces(self) -> Any:
        """Return the namespaces of all tools."""
        return self.__ask("list_namespaces", {}, lambda p: list(p.get("namespaces") or []))

    def examples(self, tool_id: str, limit: int = 10) -> Any:
        """Return example arguments of a tool."""
        return self.__ask("list_tool_examples", {"id": tool_id, "max": limit}, lambda p: _records(p, "examples"))

    def println(self, *values: Any) -> None:
        """Print values, as `print` does."""
        print(*values)  # noqa: T201 - that is what it is for

    def __call__(self, payload: dict[str, Any]) -> Any:
        """Call the tool that a `run_tool` request asks for."""
        return self.__ask("run_tool", payload, self.__value)

    def __ask(self, kind: str, payload: dict[str, Any], convert: Any) -> Any:
        """The host's answer, or where the program awaits, what gives it."""
        if _running_loop() is not None:
            from .deferred import Deferred  # asyncio is there already; other programs need not load it

            return Deferred(self.__channel, kind, payload, convert)
        return convert(self.__channel.ask(kind, payload))

    def __toolexec_order__(self, path: str) -> list[str]:
        """The arguments of a tool that values without a name stand for."""
        names = self.__rules.get(path + "(")
        return names.split(",") if names else []

    def __value(self, payload: dict[str, Any]) -> Any:
        if "structured" not in payload:
            return answered(self.__channel, payload)
        value = payload["structured"]
        return records(value) if self.__reads_attributes else value

    def __last(self, payload: dict[str, Any]) -> Any:
        failed = payload.get("failed")
        if failed is not None:
            raise tool_error(failed)
        return self.__value(payload)

    run_tool = run
    search_tools = search
    describe_tool = describe
    list_tool_examples = examples


def _records(payload: dict[str, Any], key: str) -> list[Record]:
    return [Record(item) for item in payload.get(key) or [] if isinstance(item, dict)]


def _running_loop() -> Any:
    """The event loop that runs; programs that do not use asyncio need not load it."""
    asyncio = sys.modules.get("asyncio")
    return asyncio._get_running_loop() if asyncio is not None else None  # noqa: SLF001 - the other way raises
