"""The provider of Python modules: what it lists, and how it calls them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypedDict

from toolexec.backend.local import LocalBackend
from toolexec.backend.providers.python.finding import FoundTools, find_tools, is_exec, load_target
from toolexec.backend.providers.source import Definition, MakeCall, MakeStream, ProvidedTool
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.model.call import ToolCall
from toolexec.model.declare import FunctionTool
from toolexec.model.events import StreamEvent
from toolexec.model.ids import check_segment, clean_segment
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import check_settings
from toolexec.model.tool import Tool


class PythonSettings(TypedDict, total=False):
    """The settings of a provider of Python tools, beside its name and target.

    The target is `package.module` for all tools of a module, or `package.module:name` for what it holds under that
    name: a function, a tool, an `Exec`, or an object or list with tools; several are a list. `include` names the tools
    to offer, default all. `namespace` is that of the tools' IDs; the default is the name.
    """

    include: Sequence[str]
    namespace: str


class _AllSettings(PythonSettings, total=False):
    target: str | Sequence[str]


class PythonSource:
    """Provides the tools of Python modules, which are imported at the first `load`. Functions run as in LocalBackend.

    An `Exec` keeps its own gate: calls of its tools go through it. It is closed with this.
    """

    kind = "python"

    def __init__(self, name: str, targets: Sequence[str], *, namespace: str = "", include: Sequence[str] = ()) -> None:
        self._where = f"provider {name}"
        self._targets = tuple(targets)
        self._namespace = namespace or name
        self._include = frozenset(include)
        self._local = LocalBackend(name)
        self._execs: dict[int, Any] = {}

    async def load(self) -> Definition:
        """Return the tools. Raises ConfigurationError for what cannot be imported or has no tools."""
        offered: list[tuple[Tool, MakeCall, MakeStream | None]] = []
        skipped: dict[str, str] = {}
        for target in self._targets:
            value = await asyncio.to_thread(load_target, target, self._where)
            if is_exec(value):
                offered += await self._of_exec(value)
            else:
                found: FoundTools = find_tools(value, self._where)
                skipped |= found.skipped
                offered += [self._of_function(tool) for tool in found.tools]
        return self._definition(offered, skipped)

    async def aclose(self) -> None:
        """End threads and processes, and close each `Exec`."""
        await self._local.aclose()
        execs, self._execs = [*self._execs.values()], {}
        for ex in execs:
            await ex.aclose()

    def info(self) -> JSONObject:
        """Return the targets."""
        return {"target": ", ".join(self._targets)}

    def _definition(
        self, offered: Sequence[tuple[Tool, MakeCall, MakeStream | None]], skipped: dict[str, str]
    ) -> Definition:
        names = Counter(tool.name for tool, _, _ in offered)
        tools: dict[str, ProvidedTool] = {}
        for tool, call, stream in offered:
            name = tool.name
            if names[name] > 1 and tool.namespace:
                name = clean_segment(f"{tool.namespace}.{name}")
            if self._include and name not in self._include:
                continue
            if name in tools:
                skipped[tool.id] = "another tool has the same name"
                continue
            try:
                own = tool.replace(name=name, namespace=self._namespace).check_schemas()
            except ToolExecError as error:
                skipped[tool.id] = error.message
            else:
                tools[name] = ProvidedTool(own, call, stream, ", ".join(self._targets))
        missing = sorted(self._include - tools.keys() - skipped.keys())
        if missing:
            raise ConfigurationError(
                f"{self._where}: there is no tool {missing[0]!r} to include; {did_you_mean(missing[0], sorted(names))}"
            )
        return Definition(tools=[*tools.values()], skipped=skipped)

    def _of_function(self, function: FunctionTool[..., Any]) -> tuple[Tool, MakeCall, MakeStream | None]:
        tool, handler = function.tool, function.handler
        self._local.register(tool.id, handler)
        streams = handler.kind in ("generator", "async_generator") or handler.wants_context
        return tool, partial(self._local.call, tool.id), partial(self._local.stream, tool.id) if streams else None

    async def _of_exec(self, ex: Any) -> list[tuple[Tool, MakeCall, MakeStream | None]]:
        self._execs[id(ex)] = ex
        await ex.start()
        return [
            (entry.tool, partial(_call, ex, entry.tool.id), partial(_stream, ex, entry.tool.id))
            for entry in ex.index.tools()
        ]


def python_source(name: str, settings: JSONObject, *, secrets: SecretResolver | None = None) -> PythonSource:
    """Return the source of the Python tools that *settings* describe; see `PythonSettings` and `MakeSource`.

    Nothing is imported yet.
    """
    where = f"provider {name}"
    check_settings(where, _AllSettings, settings)
    given: str | Sequence[str] = settings.get("target", ())
    targets = [given] if isinstance(given, str) else list(given)
    if not targets:
        raise ConfigurationError(f"{where}: it needs a target: module or module:name")
    for target in targets:
        module, colon, path = target.partition(":")
        names = [*module.split("."), *(path.split(".") if colon else ())]
        if not all(part.isidentifier() for part in names):
            raise ConfigurationError(f"{where}: {target[:200]!r} is not package.module or package.module:name")
    namespace: str = settings.get("namespace", "")
    for label, segment in (("name", name), ("namespace", namespace or name)):
        if problem := check_segment(segment):
            raise ConfigurationError(f"provider {name!r}: its {label} {problem}")
    return PythonSource(name, targets, namespace=namespace, include=settings.get("include", ()))


async def _call(ex: Any, tool_id: str, call: ToolCall) -> Any:
    result = await ex.run_tool(tool_id, call.args, timeout=call.timeout, on_progress=call.on_progress)
    result.raise_for_error()
    return result.reply if result.reply is not None else result.value


async def _stream(ex: Any, tool_id: str, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
    async with aclosing(ex.stream_tool(tool_id, call.args, timeout=call.timeout)) as events:
        async for event in events:
            if event.kind == "error":
                raise event.error
            yield StreamEvent(kind=event.kind, data=event.data)
