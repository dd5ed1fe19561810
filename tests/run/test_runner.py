"""The pipeline: resolve → check → dispatch → normalise → check, and what each stage's failure looks like."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from toolexec.backend import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.discovery import InMemoryIndex
from toolexec.errors import (
    BackendDisabledError,
    BackendNotFoundError,
    HandlerError,
    InputValidationError,
    InvalidResultError,
    InvalidToolIDError,
    OutputValidationError,
    RemoteToolError,
    ToolNotFoundError,
)
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool, ToolReply, declare
from toolexec.run import DefaultRunner, Timeout, ToolCall

ANY = {"type": "object"}
NUMBER = {"type": "integer"}


class TestDispatch:
    """Each kind of binding leads to its backend."""

    async def test_local_by_binding_name(self, workshop: Any) -> None:
        """A local handler is found by the name in the binding, not by the tool's."""
        workshop.add_tool(Tool(name="t", namespace="ns", input_schema=ANY), lambda args: args["x"], LocalBinding("h"))
        result = await workshop.run("ns:t", {"x": 1})
        assert (result.value, result.binding) == (1, LocalBinding("h"))

    async def test_mcp_by_server_and_bare_name(self, workshop: Any) -> None:
        """An MCP call gets the name that the server knows, not the namespaced ID."""
        calls: list[Any] = []

        async def execute(name: str, args: Mapping[str, Any]) -> ToolReply:
            calls.append((name, args))
            return ToolReply(structured={"n": [1, {"deep": True}]}, has_structured=True)

        workshop.add_tool(Tool(name="t", namespace="ns", input_schema=ANY), execute, MCPBinding("server", "t"))
        result = await workshop.run("ns:t", {"x": 1})
        assert calls == [("t", {"x": 1})]
        assert result.value == {"n": [1, {"deep": True}]}
        assert result.reply is not None
        assert result.binding == MCPBinding("server", "t")

    async def test_provider_by_binding_ids(self, workshop: Any) -> None:
        """A provider call gets the provider's own name for the tool."""

        def execute(name: str, args: Mapping[str, Any]) -> list[Any]:
            return [name, dict(args)]

        workshop.add_tool(Tool(name="t", input_schema=ANY), execute, ProviderBinding("acme", "tool-17"))
        result = await workshop.run("t")
        assert result.value == ["tool-17", {}]
        assert result.reply is None

    @pytest.mark.parametrize(
        ("binding", "text"),
        [
            (LocalBinding("h"), "no handler 'h'"),
            (ProviderBinding("acme", "t"), "no provider backend named 'acme'"),
            (MCPBinding("server", "t"), "no mcp backend named 'server'"),
        ],
    )
    async def test_nothing_hosts_it(self, workshop: Any, binding: Any, text: str) -> None:
        """A binding that leads nowhere raises, with the tool's ID, and says what is missing."""
        workshop.index.register(Tool(name="t", input_schema=ANY), binding)
        with pytest.raises(BackendNotFoundError, match=text) as caught:
            await workshop.run("t")
        assert caught.value.tool_id == "t"
        assert caught.value.op == "execute"

    async def test_a_backend_that_is_switched_off(self, workshop: Any) -> None:
        """Its tools cannot be called."""
        workshop.add(lambda: 1, "t")
        workshop.local.enabled = False
        with pytest.raises(BackendDisabledError) as caught:
            await workshop.run("t")
        assert (caught.value.tool_id, caught.value.backend) == ("t", "local")

    async def test_a_backend_that_raises_anything(self, workshop: Any) -> None:
        """An exception that a backend should not have let out is the failure of that one call."""
        workshop.add_tool(Tool(name="t", input_schema=ANY), print, ProviderBinding("acme", "t"))

        async def call(name: str, call: ToolCall) -> Any:
            raise OSError("broken pipe")

        workshop.backends.get("acme").call = call
        result = await workshop.run("t")
        assert isinstance(result.error, HandlerError)
        assert isinstance(result.error.__cause__, OSError)


class TestInput:
    """Arguments are checked before anything runs."""

    async def test_every_violation_is_listed(self, workshop: Any) -> None:
        """All breaches at once, each with path, keyword, expected and got."""
        calls: list[Any] = []

        async def tool(a: int, b: list[str]) -> None:
            calls.append(a)

        workshop.add(tool, "t")
        with pytest.raises(InputValidationError) as caught:
            await workshop.run("t", {"b": ["x", 1, 2], "c": 1})
        assert sorted((v.path, v.keyword) for v in caught.value.violations) == [
            ("", "additionalProperties"),
            ("", "required"),
            ("/b/1", "type"),
            ("/b/2", "type"),
        ]
        assert caught.value.op == "validate_input"
        assert calls == []

    async def test_it_comes_before_dispatch(self, workshop: Any) -> None:
        """Wrong arguments are reported even when no backend hosts the tool."""
        workshop.index.register(
            Tool(name="t", input_schema={"type": "object", "required": ["x"]}), ProviderBinding("acme", "t")
        )
        with pytest.raises(InputValidationError):
            await workshop.run("t", {})

    async def test_switched_off(self, workshop: Any) -> None:
        """Without the check the handler gets whatever comes."""
        workshop.add_tool(Tool(name="t", input_schema={"type": "object", "required": ["x"]}), len)
        assert (await workshop.run("t", {}, validate_input=False)).value == 0

    @pytest.mark.parametrize("args", [[1], "text", 5, {1, 2}])
    async def test_arguments_must_be_a_mapping(self, workshop: Any, args: Any) -> None:
        """Anything else is refused with one violation at the root."""
        workshop.add_tool(Tool(name="t", input_schema=ANY), len)
        with pytest.raises(InputValidationError) as caught:
            await workshop.run("t", args)
        assert [(v.path, v.keyword) for v in caught.value.violations] == [("", "type")]

    async def test_any_mapping_will_do(self, workshop: Any) -> None:
        """A mapping that is no dict is as good."""
        workshop.add(lambda a: a, "t")
        assert (await workshop.run("t", MappingProxyType({"a": 1}))).value == 1

    @pytest.mark.parametrize(
        ("value", "path"),
        [
            (math.nan, "/x"),
            (math.inf, "/x"),
            ([1, {"y": math.nan}], "/x/1/y"),
            (object(), "/x"),
            (b"\xff", "/x"),
            ({(1,): 2}, "/x"),
            ("\ud800", "/x"),
        ],
    )
    async def test_arguments_must_be_json(self, workshop: Any, value: Any, path: str) -> None:
        """NaN, bytes that are not text, objects, keys that have no text and broken text are refused, with their path."""
        workshop.add_tool(Tool(name="t", input_schema=ANY), len)
        with pytest.raises(InputValidationError) as caught:
            await workshop.run("t", {"x": value})
        assert caught.value.violations[0].path == path

    async def test_arguments_that_contain_themselves(self, workshop: Any) -> None:
        """A cycle is refused, not followed."""
        args: dict[str, Any] = {}
        args["self"] = args
        workshop.add_tool(Tool(name="t", input_schema=ANY), len)
        with pytest.raises(InputValidationError):
            await workshop.run("t", args)

    async def test_huge_integers_stay_exact(self, workshop: Any) -> None:
        """Integers of any size go in and come out unchanged."""
        workshop.add(_identity, "t")
        for number in (9007199254740993, -(2**63) - 1, 10**300):
            result = await workshop.run("t", {"value": number})
            assert result.value == number
            assert type(result.value) is int

    async def test_ten_megabytes(self, workshop: Any) -> None:
        """Large arguments pass, in one piece or in many."""
        workshop.add(_size, "t")
        assert (await workshop.run("t", {"value": "x" * 10_000_000})).value == 10_000_000
        assert (await workshop.run("t", {"value": ["x" * 10] * 1_000_000})).value == 1_000_000


async def _identity(value: int) -> int:
    return value


async def _size(value: Any) -> int:
    return len(value)


class TestResult:
    """Answers are made plain and are JSON."""

    async def test_the_sdks_own_result(self, workshop: Any) -> None:
        """A handler may return the MCP SDK's result; it counts like an MCP server's."""
        reply = CallToolResult(content=[TextContent(type="text", text='{"a": 9007199254740993}')])
        workshop.add_tool(Tool(name="t", input_schema=ANY), lambda args: reply)
        result = await workshop.run("t")
        assert result.value == {"a": 9007199254740993}
        assert result.content[0]["type"] == "text"

    async def test_a_reported_error(self, workshop: Any) -> None:
        """`isError` is a failure whose message is the text, whatever the kind of backend."""
        reply = ToolReply(content=[{"type": "text", "text": "disk full"}], is_error=True)
        workshop.add_tool(Tool(name="t", input_schema=ANY), lambda args: reply)
        result = await workshop.run("t")
        assert isinstance(result.error, RemoteToolError)
        assert "disk full" in str(result.error)
        assert result.reply == reply
        assert result.value is None

    @pytest.mark.parametrize("value", [object(), {"a": {1, 2, object()}}, [math.nan], {(1,): "x"}, "\ud800"])
    async def test_a_value_that_is_not_json(self, workshop: Any, value: Any) -> None:
        """Such a value is the call's failure, with the location and the type."""
        workshop.add_tool(Tool(name="t", input_schema=ANY), lambda args: value)
        result = await workshop.run("t")
        assert isinstance(result.error, InvalidResultError)
        assert "not JSON at" in str(result.error)
        assert result.error.op == "normalize"

    async def test_a_value_that_contains_itself(self, workshop: Any) -> None:
        """A cycle is a failure, not a hang."""
        loop: list[Any] = []
        loop.append(loop)
        workshop.add_tool(Tool(name="t", input_schema=ANY), lambda args: loop)
        assert isinstance((await workshop.run("t")).error, InvalidResultError)

    async def test_the_duration_is_measured(self, workshop: Any) -> None:
        """The duration covers the handler's time."""
        workshop.add(_short_sleep, "t")
        assert (await workshop.run("t")).duration >= 0.01

    async def test_no_index_at_all(self) -> None:
        """A runner without index and tools is legal and finds nothing."""
        with pytest.raises(ToolNotFoundError):
            await DefaultRunner(None, BackendRegistry()).run(ToolCall("t"))

    async def test_an_empty_id(self, workshop: Any) -> None:
        """An empty ID is malformed, not unknown."""
        with pytest.raises(InvalidToolIDError):
            await workshop.run("")


async def _short_sleep() -> None:
    await asyncio.sleep(0.011)


class TestOutput:
    """The result is checked against the output schema: strict, warn or off."""

    def _add(self, workshop: Any, kind: str, value: Any, schema: Any = NUMBER) -> None:
        tool = Tool(name="t", input_schema=ANY, output_schema=schema)
        if kind == "local":
            workshop.add_tool(tool, lambda args: value)
        else:
            binding = MCPBinding("s", "t") if kind == "mcp" else ProviderBinding("p", "t")
            workshop.add_tool(tool, lambda name, args: value, binding)

    @pytest.mark.parametrize("kind", ["local", "provider", "mcp"])
    @pytest.mark.parametrize("mode", ["strict", "warn", "off", None])
    async def test_a_fitting_result(self, workshop: Any, kind: str, mode: Any) -> None:
        """A fitting result passes in every mode, without warnings."""
        self._add(workshop, kind, 5)
        result = await workshop.run("t", validate_output=mode)
        assert (result.value, result.error, list(result.warnings)) == (5, None, [])

    @pytest.mark.parametrize("kind", ["local", "provider", "mcp"])
    async def test_strict(self, workshop: Any, kind: str) -> None:
        """A breach is the call's error; the value is not lost."""
        self._add(workshop, kind, "five")
        result = await workshop.run("t", validate_output="strict")
        assert isinstance(result.error, OutputValidationError)
        assert [v.keyword for v in result.error.violations] == ["type"]
        assert result.value == "five"
        assert (result.error.op, result.error.tool_id) == ("validate_output", "t")

    @pytest.mark.parametrize("kind", ["local", "provider", "mcp"])
    async def test_warn(self, workshop: Any, kind: str) -> None:
        """A breach is a warning in the result, which counts as a success."""
        self._add(workshop, kind, "five")
        result = await workshop.run("t", validate_output="warn")
        assert (result.ok, result.value) == (True, "five")
        assert [v.keyword for v in result.warnings] == ["type"]

    @pytest.mark.parametrize("kind", ["local", "provider", "mcp"])
    async def test_off(self, workshop: Any, kind: str) -> None:
        """A breach goes unnoticed."""
        self._add(workshop, kind, "five")
        result = await workshop.run("t", validate_output="off")
        assert (result.ok, list(result.warnings)) == (True, [])

    @pytest.mark.parametrize(("kind", "ok"), [("local", False), ("provider", True), ("mcp", True)])
    async def test_the_default(self, workshop: Any, kind: str, ok: bool) -> None:
        """The default is strict for local tools, whose author is at hand, and warns for remote ones."""
        self._add(workshop, kind, "five")
        result = await workshop.run("t")
        assert result.ok is ok
        assert bool(result.warnings) is ok

    async def test_without_a_schema(self, workshop: Any) -> None:
        """A tool that promises nothing cannot break a promise."""
        self._add(workshop, "local", "five", None)
        assert (await workshop.run("t", validate_output="strict")).ok

    @pytest.mark.parametrize(("mode", "ok"), [("strict", False), ("warn", True)])
    async def test_a_schema_that_cannot_be_used(self, workshop: Any, mode: Any, ok: bool) -> None:
        """A schema that only proves unusable when it is compiled counts as a breach; the reply is not lost."""
        self._add(workshop, "local", "five", {"type": "string", "pattern": "("})
        result = await workshop.run("t", validate_output=mode)
        assert (result.ok, result.value) == (ok, "five")
        violations = result.warnings if ok else result.error.violations
        assert "unusable" in violations[0].message

    async def test_a_failed_call_is_not_checked(self, workshop: Any) -> None:
        """The handler's failure stays the error."""

        async def fail() -> int:
            raise ValueError("no")

        workshop.add(fail, "t")
        assert isinstance((await workshop.run("t")).error, HandlerError)


def test_without_waiting_there_is_no_task_no_timer_and_no_callback() -> None:
    """A call of a tool that does not wait leaves the event loop alone, with and without a limit."""
    loops: list[_CountingLoop] = []

    def make_loop() -> _CountingLoop:
        loops.append(_CountingLoop())
        return loops[-1]

    async def main() -> None:
        index, backends = InMemoryIndex(), BackendRegistry()
        declared = declare(_identity, "t")
        index.register(declared.tool, LocalBinding("t"))
        backends.register(local := LocalBackend())
        local.add(declared)
        plain = DefaultRunner(index, backends)
        for runner in (plain, Timeout(plain, None), Timeout(plain, 30)):
            await runner.run(ToolCall("t", {"value": 1}))
            loops[0].made.clear()
            assert (await runner.run(ToolCall("t", {"value": 1}))).value == 1
            assert loops[0].made == []

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())


class _CountingLoop(asyncio.SelectorEventLoop):
    """Notes what is made on it."""

    def __init__(self) -> None:
        self.made: list[str] = []
        super().__init__()

    def call_at(self, *args: Any, **kwargs: Any) -> Any:
        self.made.append("timer")
        return super().call_at(*args, **kwargs)

    def create_task(self, *args: Any, **kwargs: Any) -> Any:
        self.made.append("task")
        return super().create_task(*args, **kwargs)

    def call_soon(self, *args: Any, **kwargs: Any) -> Any:
        self.made.append("callback")
        return super().call_soon(*args, **kwargs)
