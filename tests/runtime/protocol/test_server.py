"""Requests in, answers out: nothing that a guest sends is believed unchecked."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.code.tools import AdmittedCall, Tools
from toolexec.discovery.examples import ToolExample
from toolexec.errors import ToolExecError
from toolexec.model import LocalBinding, ToolReply
from toolexec.model.content import text
from toolexec.run import Result
from toolexec.runtime.protocol.messages import JSONCodec, Message
from toolexec.runtime.protocol.server import RequestServer
from toolexec.testing.gateway_testbed import GatewayTestbed

CODEC = JSONCodec()


def tools_of(testbed: GatewayTestbed, **parts: Any) -> Tools:
    return Tools(testbed.index, testbed.docs, testbed.runner, **parts)


async def ask(gateway: Any, kind: str, payload: Any) -> Message:
    """The answer to one request, read back."""
    server = gateway if isinstance(gateway, RequestServer) else RequestServer(gateway)
    (answer,) = CODEC.decode(await server.answer(Message(kind, "7", payload)))
    assert answer.id == "7"
    return answer


class Foreign:
    """A gateway that is no Tools: it passes calls on to one, and can do no more than a gateway must."""

    def __init__(self, tools: Tools) -> None:
        self.search_tools = tools.search_tools
        self.list_namespaces = tools.list_namespaces
        self.describe_tool = tools.describe_tool
        self.list_tool_examples = tools.list_tool_examples
        self.run_chain = tools.run_chain
        self._tools = tools

    async def run_tool(self, tool_id: str, args: Any = None) -> Result:
        return await self._tools.run_tool(tool_id, args)


class Reader(Foreign):
    """One whose results stay elsewhere."""

    async def read_result(self, handle_id: str, *, path: str = "", offset: int = 0, limit: int | None = None) -> Any:
        return [handle_id, path, offset, limit]


class TestAnswers:
    """The payload of each kind of answer."""

    async def test_run_tool(self, testbed: GatewayTestbed) -> None:
        """The value, the canonical ID, where it ran and for how long."""
        for gateway in (tools_of(testbed), Foreign(tools_of(testbed))):
            answer = await ask(gateway, "run_tool", {"id": "suite:add", "args": {"a": 1}})
            assert answer.type == "response"
            duration = answer.payload["durationMs"]
            assert duration >= 0
            assert answer.payload == {
                "structured": 2,
                "tool": "suite:add",
                "backendKind": "local",
                "binding": {"kind": "local", "local": {"name": "suite:add"}},
                "durationMs": duration,
            }

    async def test_a_raw_reply(self, testbed: GatewayTestbed) -> None:
        """A tool that answers in parts has them beside its value; an ill one has warnings."""

        async def reply() -> ToolReply:
            """Answer in parts."""
            return ToolReply(content=[text("hi")], meta={"m": 1})

        testbed.register(reply, "suite")
        answer = await ask(tools_of(testbed), "run_tool", {"id": "suite:reply"})
        assert answer.payload["structured"] == "hi"
        assert answer.payload["mcpResult"] == {"content": [text("hi")], "_meta": {"m": 1}}

    async def test_a_failed_tool(self, testbed: GatewayTestbed) -> None:
        """The error, with what is known about the call beside it."""
        answer = await ask(tools_of(testbed), "run_tool", {"id": "suite:fail", "args": {}})
        assert answer.type == "error"
        assert (answer.payload["code"], answer.payload["toolId"]) == ("handler_failed", "suite:fail")
        assert answer.payload["result"]["backendKind"] == "local"
        assert "structured" not in answer.payload["result"]

    async def test_a_call_that_cannot_be_made(self, testbed: GatewayTestbed) -> None:
        """An error without a result."""
        answer = await ask(tools_of(testbed), "run_tool", {"id": "suite:nothing"})
        assert (answer.type, answer.payload["code"]) == ("error", "tool_not_found")
        assert "result" not in answer.payload

    async def test_run_chain(self, testbed: GatewayTestbed) -> None:
        """The last value and each step's."""
        steps = [{"toolId": "suite:add", "args": {"a": 1}}, {"toolId": "suite:echo", "usePrevious": True}]
        answer = await ask(tools_of(testbed), "run_chain", {"steps": steps})
        assert answer.payload["structured"] == 2
        assert [step["structured"] for step in answer.payload["stepResults"]] == [2, 2]
        assert {step["backendKind"] for step in answer.payload["stepResults"]} == {"local"}
        assert "failed" not in answer.payload

    async def test_a_failed_chain(self, testbed: GatewayTestbed) -> None:
        """A failed chain is an answer with the steps that were run; `failed` is the error of the last of them."""
        steps = [{"toolId": "suite:add", "args": {"a": 1}}, {"toolId": "suite:fail"}, {"toolId": "suite:add"}]
        answer = await ask(tools_of(testbed), "run_chain", {"steps": steps})
        assert answer.type == "response"
        assert answer.payload["structured"] is None
        assert answer.payload["failed"] == answer.payload["stepResults"][1]["error"]
        assert answer.payload["failed"]["code"] == "handler_failed"
        assert len(answer.payload["stepResults"]) == 2

    async def test_an_empty_chain(self, testbed: GatewayTestbed) -> None:
        """Nothing comes of nothing."""
        answer = await ask(tools_of(testbed), "run_chain", {"steps": []})
        assert answer.payload == {"structured": None, "stepResults": []}

    async def test_finding(self, testbed: GatewayTestbed) -> None:
        """Summaries and documentation with every field they have."""
        tools = tools_of(testbed)
        found = (await ask(tools, "search_tools", {"query": "add", "limit": 1})).payload["results"]
        assert found == [testbed.index.search("add", 1)[0].to_dict()]
        assert (await ask(tools, "list_namespaces", {})).payload == {"namespaces": ["suite", "vault"]}
        full = (await ask(tools, "describe_tool", {"id": "suite:add"})).payload
        assert full == testbed.docs.describe("suite:add").to_dict()
        summary = (await ask(tools, "describe_tool", {"id": "suite:add", "level": "summary"})).payload
        assert summary == testbed.docs.describe("suite:add", "summary").to_dict()
        examples = (await ask(tools, "list_tool_examples", {"id": "suite:add", "max": 0})).payload["examples"]
        assert examples == [example.to_dict() for example in testbed.docs.list_examples("suite:add")]

    async def test_limits_of_lists(self, testbed: GatewayTestbed) -> None:
        """10 where nothing is said, 1,000 at the most."""
        for number in range(1200):
            testbed.index.register(
                testbed.index.get("suite:add").tool.replace(name=f"add{number}"), LocalBinding("suite:add")
            )
        testbed.docs.register_examples("suite:add", [ToolExample(title=str(number)) for number in range(30)])
        tools = tools_of(testbed)
        for limit, count in ((None, 10), (0, 0), (12, 12), (10**9, 1000)):
            found = (await ask(tools, "search_tools", {"query": "", "limit": limit})).payload["results"]
            assert len(found) == count

    async def test_a_path_of_python_names(self, testbed: GatewayTestbed) -> None:
        """`tools.suite.list_it` finds `suite:list-it`; the hint of one that is not there keeps secrets."""
        tool = testbed.index.get("suite:add").tool
        testbed.index.register(tool.replace(name="list-it"), LocalBinding("suite:add"))
        answer = await ask(tools_of(testbed), "run_tool", {"id": "suite:list_it", "args": {"a": 1}, "path": True})
        assert answer.payload["structured"] == 2
        plain = await ask(tools_of(testbed), "run_tool", {"id": "suite:list_it", "args": {"a": 1}})
        assert plain.payload["code"] == "tool_not_found"
        hidden = await ask(tools_of(testbed, allowed=["suite:add"]), "run_tool", {"id": "suite:list_i", "path": True})
        assert hidden.type == "error"
        assert "list-it" not in json.dumps(hidden.payload)


async def test_a_lean_answer(testbed: GatewayTestbed) -> None:
    """For a guest that reads the value alone there is nothing else."""
    server = RequestServer(tools_of(testbed), lean=True)
    answer = await ask(server, "run_tool", {"id": "suite:add", "args": {"a": 1}})
    assert answer.payload == {"structured": 2}


class TestBadRequests:
    """Each is answered with an error, and nothing is run."""

    @pytest.mark.parametrize(
        ("kind", "payload", "reason"),
        [
            ("run_tool", {}, "id must be a text"),
            ("run_tool", {"id": 5}, "id must be a text"),
            ("run_tool", {"id": "suite:add", "args": [1]}, "args of a call are an object"),
            ("run_tool", {"id": "suite:add", "args": "x"}, "args of a call are an object"),
            ("run_tool", {"id": "suite:add", "timeout": "5"}, "number of seconds"),
            ("run_tool", {"id": "suite:add", "timeout": True}, "number of seconds"),
            ("run_tool", {"id": "suite:add", "timeout": 0}, "above 0"),
            ("run_tool", {"id": "suite:add", "timeout": 1e999}, "above 0"),
            ("run_chain", {}, "list of steps"),
            ("search_tools", {}, "query must be a text"),
            ("search_tools", {"query": "x", "limit": -1}, "integer"),
            ("search_tools", {"query": "x", "limit": 1.5}, "integer"),
            ("search_tools", {"query": "x", "limit": True}, "integer"),
            ("describe_tool", {"id": None}, "id must be a text"),
            ("list_tool_examples", {"id": "suite:add", "max": "1"}, "integer"),
            ("read_result", {}, "handle must be a text"),
            ("read_result", {"handle": "h1", "offset": "1"}, "integers"),
            ("read_result", {"handle": "h1", "limit": -1}, "integers"),
            ("read_result", {"handle": "h1", "limit": True}, "integers"),
            ("read_result", {"handle": "h1", "path": 5}, "path is a text"),
            ("format_disk", {}, "unknown message type"),
            ("x" * 1000, {}, "unknown message type"),
        ],
        ids=lambda part: str(part)[:40],
    )
    async def test_wrong_fields(self, testbed: GatewayTestbed, kind: str, payload: Any, reason: str) -> None:
        """The error is one of the protocol and says what is wrong."""
        for gateway in (tools_of(testbed), Foreign(tools_of(testbed))):
            answer = await ask(gateway, kind, payload)
            assert (answer.type, answer.payload["code"]) == ("error", "protocol")
            assert reason in answer.payload["error"]
            assert len(answer.payload["error"]) < 200
        assert testbed.calls == []

    async def test_a_wrong_step(self, testbed: GatewayTestbed) -> None:
        """The error is that of the chain, before any step is run."""
        for gateway in (tools_of(testbed), Foreign(tools_of(testbed))):
            steps = [{"toolId": "suite:add", "args": {"a": 1}}, {"toolId": "suite:add", "retrys": 2}]
            answer = await ask(gateway, "run_chain", {"steps": steps})
            assert (answer.type, answer.payload["code"]) == ("error", "invalid_chain")
            assert "step 1" in answer.payload["error"]
            assert "did you mean retries?" in answer.payload["error"]
        assert testbed.calls == []

    @pytest.mark.parametrize("level", ["everything", 5, ["full"], {"a": 1}], ids=str)
    async def test_an_unknown_level(self, testbed: GatewayTestbed, level: Any) -> None:
        """The store refuses it."""
        answer = await ask(tools_of(testbed), "describe_tool", {"id": "suite:add", "level": level})
        assert answer.payload["code"] == "invalid_detail"

    async def test_an_exception_of_the_host(self, testbed: GatewayTestbed) -> None:
        """The guest learns its class and nothing of its text."""

        async def explode(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("password=hunter2 in /etc/host")

        foreign = Foreign(tools_of(testbed))
        for name in ("search_tools", "list_namespaces", "describe_tool", "list_tool_examples", "run_tool", "run_chain"):
            setattr(foreign, name, explode)
        payload = {"id": "suite:add", "query": "", "steps": []}
        for kind in ("search_tools", "list_namespaces", "describe_tool", "list_tool_examples", "run_tool", "run_chain"):
            answer = await ask(foreign, kind, payload)
            assert answer.payload == {"error": "the host failed: RuntimeError", "code": "internal", "retryable": False}

    async def test_a_huge_id(self, testbed: GatewayTestbed) -> None:
        """Its echo is cut: a request cannot make an answer that does not fit."""
        text_ = await RequestServer(tools_of(testbed)).answer(Message("run_tool", "1", {"id": "x" * (8 << 20)}))
        assert len(text_) < 200_000

    async def test_huge_details(self, testbed: GatewayTestbed) -> None:
        """An error with more data than fits goes without them."""
        foreign = Foreign(tools_of(testbed))

        async def fail(tool_id: str, args: Any = None) -> Result:
            return Result(tool_id, error=ToolExecError("no", details={"x": "y" * (20 << 20)}))

        foreign.run_tool = fail  # type: ignore[method-assign]
        answer = await ask(foreign, "run_tool", {"id": "a"})
        assert answer.payload == {
            "error": "no",
            "code": "internal",
            "retryable": False,
            "result": {"tool": "a", "durationMs": 0.0},
        }

    async def test_an_answer_that_does_not_fit(self, testbed: GatewayTestbed) -> None:
        """Refuses such an answer with the advice to ask for less."""
        answer = await ask(Foreign(tools_of(testbed)), "run_tool", {"id": "suite:grow", "args": {"size": 17 << 20}})
        assert (answer.type, answer.payload["code"]) == ("error", "protocol")
        assert "ask for less" in answer.payload["error"]

    async def test_a_cancellation_is_no_answer(self, testbed: GatewayTestbed) -> None:
        """Cancelling a request cancels its call, and gives no answer."""
        task = asyncio.ensure_future(ask(tools_of(testbed), "run_tool", {"id": "suite:wait"}))
        await testbed.until(lambda: testbed.calls == ["wait"])
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert testbed.stopped == ["wait"]


class TestTimeouts:
    """A limit for one call."""

    async def test_a_gateway_that_knows_none(self, testbed: GatewayTestbed) -> None:
        """The call is stopped here."""
        answer = await ask(Foreign(tools_of(testbed)), "run_tool", {"id": "suite:wait", "timeout": 0.01})
        assert (answer.payload["code"], answer.payload["toolId"]) == ("timeout", "suite:wait")
        assert testbed.stopped == ["wait"]

    async def test_another_timeout_error(self, testbed: GatewayTestbed) -> None:
        """One that is not of this limit is not taken for it."""

        async def fail(tool_id: str, args: Any = None) -> Result:
            raise TimeoutError("of something else")

        foreign = Foreign(tools_of(testbed))
        foreign.run_tool = fail  # type: ignore[method-assign]
        answer = await ask(foreign, "run_tool", {"id": "a", "timeout": 30})
        assert answer.payload["error"] == "the host failed: TimeoutError"


class TestLargeValues:
    """What is over the byte budget stays on the host."""

    async def test_a_handle_and_its_parts(self, testbed: GatewayTestbed) -> None:
        """The guest gets a handle, reads parts of the value, and hands it to another tool."""
        server = RequestServer(tools_of(testbed, result_bytes=100))
        answer = await ask(server, "run_tool", {"id": "suite:grow", "args": {"size": 1000}})
        assert "structured" not in answer.payload
        handle_id = answer.payload["handle"]["id"]
        assert answer.payload["handle"] == {
            "id": handle_id, "type": "string", "bytes": 1002, "length": 1000, "preview": '"' + "x" * 499,
        }  # fmt: skip
        part = await ask(server, "read_result", {"handle": handle_id, "offset": 990, "limit": 50})
        assert part.payload == {"structured": "x" * 10}
        again = await ask(server, "read_result", {"handle": handle_id, "limit": 500})
        assert again.payload["handle"]["id"] != handle_id
        page = await ask(server, "read_result", {"handle": handle_id, "page": {"offset": 995}})
        assert page.payload == {"text": "xxxxx"}
        measured = await ask(server, "run_tool", {"id": "suite:measure", "args": {"text": {"$handle": handle_id}}})
        assert measured.payload["structured"] == 1000
        server.release(Message("release", "0", {"handles": [handle_id]}))
        gone = await ask(server, "read_result", {"handle": handle_id})
        assert gone.payload["code"] == "invalid_request"

    async def test_a_chain(self, testbed: GatewayTestbed) -> None:
        """Its values are kept, too, each once; the last one is the chain's."""
        server = RequestServer(tools_of(testbed, result_bytes=100))
        steps = [
            {"toolId": "suite:grow", "args": {"size": 1000}},
            {"toolId": "suite:echo", "usePrevious": True},
        ]
        answer = await ask(server, "run_chain", {"steps": steps})
        assert answer.payload["handle"] == answer.payload["stepResults"][-1]["handle"]
        assert all("structured" not in step for step in answer.payload["stepResults"])
        assert "structured" not in answer.payload
        small = await ask(server, "run_chain", {"steps": [steps[0], {"toolId": "suite:add", "args": {"a": 1}}]})
        assert small.payload["structured"] == 2
        failed = await ask(server, "run_chain", {"steps": [steps[0], {"toolId": "suite:fail"}]})
        assert (failed.payload["structured"], "handle" in failed.payload) == (None, False)

    async def test_a_raw_reply(self, testbed: GatewayTestbed) -> None:
        """One that is too large does not get in beside the handle."""

        async def reply() -> ToolReply:
            """Answer in parts."""
            return ToolReply(content=[text("x" * 1000)])

        testbed.register(reply, "suite")
        answer = await ask(tools_of(testbed, result_bytes=100), "run_tool", {"id": "suite:reply"})
        assert "handle" in answer.payload
        assert "mcpResult" not in answer.payload

    async def test_an_unknown_handle(self, testbed: GatewayTestbed) -> None:
        """An unknown handle is an error with a code."""
        answer = await ask(tools_of(testbed), "read_result", {"handle": "h1"})
        assert answer.payload["code"] == "invalid_request"

    async def test_a_gateway_without_results(self, testbed: GatewayTestbed) -> None:
        """Such a gateway raises; one that keeps results elsewhere is asked."""
        answer = await ask(Foreign(tools_of(testbed)), "read_result", {"handle": "h1"})
        assert "keeps no results" in answer.payload["error"]
        answer = await ask(Reader(tools_of(testbed)), "read_result", {"handle": "h1", "path": "a", "limit": 2})
        assert answer.payload["structured"] == ["h1", "a", 0, 2]


class TestHere:
    """Requests that can be answered in the guest's own thread."""

    def _answer(self, gateway: Any, kind: str, payload: Any) -> Any:
        answer = RequestServer(gateway).answer_here(Message(kind, "7", payload), _cannot_wait, 1.0)
        return CODEC.decode(answer)[0] if isinstance(answer, str) else answer

    def _tools(self, testbed: GatewayTestbed, **parts: Any) -> Tools:
        def double(n: int) -> int:
            """Double a number."""
            return 2 * n

        testbed.register(double, "suite")
        return tools_of(testbed, **parts)

    async def test_a_sync_tool(self, testbed: GatewayTestbed) -> None:
        """A sync tool is answered at once."""
        answer = self._answer(self._tools(testbed), "run_tool", {"id": "suite:double", "args": {"n": 2}})
        assert (answer.type, answer.payload["structured"]) == ("response", 4)

    async def test_what_is_refused(self, testbed: GatewayTestbed) -> None:
        """Wrong fields, wrong arguments and the cap are answers, too."""
        tools = self._tools(testbed, limits=Limits(max_tool_calls=1))
        assert self._answer(tools, "run_tool", {"id": 5}).payload["code"] == "protocol"
        assert self._answer(tools, "run_tool", {"id": "suite:double"}).payload["code"] == "validation_input"
        assert self._answer(tools, "run_tool", {"id": "suite:double"}).payload["code"] == "tool_call_limit"

    async def test_an_async_tool(self, testbed: GatewayTestbed) -> None:
        """An async tool is admitted, and answered on the loop, whether it fails or not."""
        tools = self._tools(testbed)
        server = RequestServer(tools)
        for payload, kind in (({"id": "suite:add", "args": {"a": 1}}, "response"), ({"id": "suite:fail"}, "error")):
            message = Message("run_tool", "7", payload)
            admitted = server.answer_here(message, _cannot_wait, 1.0)
            assert isinstance(admitted, AdmittedCall)
            (answer,) = CODEC.decode(await server.finish(message, admitted))
            assert answer.type == kind
        assert tools.calls_made == 2

    async def test_in_two_steps(self, testbed: GatewayTestbed) -> None:
        """First it is admitted, and said whether it can run here; then it is made."""
        tools = self._tools(testbed)
        server = RequestServer(tools)
        message = Message("run_tool", "7", {"id": "suite:double", "args": {"n": 2}})
        admitted = server.admit_here(message, 1.0)
        assert isinstance(admitted, tuple)
        assert admitted[1]
        answer = server.finish_here(message, admitted[0], _cannot_wait, 1.0)
        assert answer is not None
        assert CODEC.decode(answer)[0].payload["structured"] == 4

    async def test_in_two_steps_on_the_loop(self, testbed: GatewayTestbed) -> None:
        """A call that needs the loop is admitted, and not made here."""
        server = RequestServer(self._tools(testbed))
        message = Message("run_tool", "7", {"id": "suite:add", "args": {"a": 1}})
        admitted = server.admit_here(message, 1.0)
        assert isinstance(admitted, tuple)
        assert not admitted[1]
        assert server.finish_here(message, admitted[0], _cannot_wait, 1.0) is None
        assert CODEC.decode(await server.finish(message, admitted[0]))[0].payload["structured"] == 2

    async def test_in_two_steps_refused(self, testbed: GatewayTestbed) -> None:
        """Each step may end in a refusal; other requests and gateways have no first step."""
        tools = self._tools(testbed, limits=Limits(max_tool_calls=1))
        server = RequestServer(tools)
        message = Message("run_tool", "7", {"id": "suite:double", "args": {"n": "x"}})
        admitted = server.admit_here(message, 1.0)
        assert isinstance(admitted, tuple)
        answer = server.finish_here(message, admitted[0], _cannot_wait, 1.0)
        assert answer is not None
        assert CODEC.decode(answer)[0].payload["code"] == "validation_input"
        refused = server.admit_here(message, 1.0)
        assert isinstance(refused, str)
        assert CODEC.decode(refused)[0].payload["code"] == "tool_call_limit"
        assert server.admit_here(Message("search_tools", "1", {}), 1.0) is None
        assert RequestServer(Foreign(tools)).admit_here(message, 1.0) is None

    async def test_what_is_not_for_here(self, testbed: GatewayTestbed) -> None:
        """Other requests, and other gateways."""
        assert self._answer(self._tools(testbed), "search_tools", {"query": ""}) is None
        assert self._answer(Foreign(tools_of(testbed)), "run_tool", {"id": "suite:add"}) is None


def _cannot_wait(awaitable: Any) -> Any:
    raise AssertionError("nothing here waits")
