"""The object `tools` of a program."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolexec.runtime.guest.python.channel import HostCalls
from toolexec.runtime.guest.python.errors import CLASSES, ToolError, tool_error
from toolexec.runtime.guest.python.tools import Record, Tools

HANDLE = {"id": "h1", "type": "array", "bytes": 5000, "length": 4, "preview": "[10, 11,"}


class Host:
    """Answers the requests of `tools` from a list, and keeps them."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]
        self.asked: list[tuple[str, Any]] = []

    def exchange(self, frame: str) -> str:
        """The next answer; one with `code` is an error."""
        replies: list[Any] = []
        for message in json.loads(frame):
            self.asked.append((message["type"], message["payload"]))
            answer = self.answers.pop(0)
            kind = "error" if isinstance(answer, dict) and "code" in answer else "response"
            replies.append({"type": kind, "id": message["id"], "payload": answer})
        return json.dumps(replies)


def tools_of(host: Host) -> Tools:
    """The object for a program of that host."""
    return Tools(HostCalls(host.exchange, print))


class TestCalls:
    """Calling tools."""

    def test_every_road_is_one_request(self) -> None:
        """By attribute (a path of names, which the host looks up), by ID, by item."""
        host = Host(*[{"structured": n} for n in range(5)])
        tools = tools_of(host)
        assert tools.git.issues.create(title="x") == 0
        assert tools.git.issues.create({"title": "x"}, body="y") == 1
        assert tools.run("git:create", {"title": "x"}, timeout=2) == 2
        assert tools.run_tool("git:create") == 3
        assert tools["git:create"](title="x") == 4
        path = {"id": "git:issues:create", "path": True}
        assert [payload for _, payload in host.asked] == [
            {**path, "args": {"title": "x"}},
            {**path, "args": {"title": "x", "body": "y"}},
            {"id": "git:create", "args": {"title": "x"}, "timeout": 2},
            {"id": "git:create", "args": None},
            {"id": "git:create", "args": {"title": "x"}},
        ]
        assert {kind for kind, _ in host.asked} == {"run_tool"}

    def test_arguments_have_names(self) -> None:
        """The error says how to write it; nothing is asked."""
        host = Host()
        with pytest.raises(TypeError, match=r"tools\.git\.create\(name=value\)"):
            tools_of(host).git.create("x")
        with pytest.raises(TypeError, match="keyword arguments"):
            tools_of(host).git.create({}, {})
        assert host.asked == []

    def test_names_of_python_are_no_tools(self) -> None:
        """Copying or inspecting the object does not give one."""
        tools = tools_of(Host())
        for thing in (tools, tools.git):
            with pytest.raises(AttributeError):
                _ = thing.__wrapped__
        assert repr(tools.git.create) == "tools.git.create"

    def test_an_argument_that_is_no_json(self) -> None:
        """Is refused before anything is asked."""
        host = Host()
        with pytest.raises(ToolError, match="an argument at /args/x is of type object") as caught:
            tools_of(host).git.create(x=object())
        assert (caught.value.code, host.asked) == ("validation_input", [])

    def test_a_request_that_is_too_large(self) -> None:
        """Says how much fits."""
        with pytest.raises(ToolError, match="at most 16 MiB fit"):
            tools_of(Host()).git.create(x="x" * (17 << 20))

    def test_a_chain(self) -> None:
        """Its steps go to the host as they were written; a failed one raises."""
        failed = {"stepResults": [], "failed": {"error": "no", "code": "handler_failed", "toolId": "a:c"}}
        host = Host({"structured": 5}, failed)
        tools = tools_of(host)
        steps = [{"tool_id": "a:b", "args": {"x": 1}, "retries": 2}, {"toolId": "a:c", "usePrevious": True}]
        assert tools.run_chain(steps) == 5
        assert host.asked[0] == ("run_chain", {"steps": steps})
        with pytest.raises(CLASSES["HandlerError"]) as caught:
            tools.run_chain([{"tool": "a:c"}])
        assert caught.value.tool_id == "a:c"

    def test_printing(self, capsys: pytest.CaptureFixture[str]) -> None:
        """As `print` does it."""
        tools_of(Host()).println("a", 1)
        assert capsys.readouterr().out == "a 1\n"


class TestDiscovery:
    """Finding tools."""

    def test_records(self) -> None:
        """A record is a dict whose keys are attributes."""
        host = Host(
            {"results": [{"id": "a:b", "score": 1.5}, "?"]},
            {"id": "a:b", "summary": "sums"},
            {"namespaces": ["a"]},
            {"examples": [{"title": "one"}]},
        )
        tools = tools_of(host)
        (found,) = tools.search("b", 3)
        assert (found.id, found["score"]) == ("a:b", 1.5)
        assert tools.describe("a:b", "summary").summary == "sums"
        assert tools.list_namespaces() == ["a"]
        assert tools.examples("a:b")[0].title == "one"
        assert [kind for kind, _ in host.asked] == [
            "search_tools",
            "describe_tool",
            "list_namespaces",
            "list_tool_examples",
        ]
        assert host.asked[0][1] == {"query": "b", "limit": 3}

    def test_what_a_record_has_not(self) -> None:
        """Is an AttributeError, as of any object."""
        with pytest.raises(AttributeError, match="nothing"):
            _ = Record(a=1).nothing

    def test_other_names(self) -> None:
        """Those of the host's own methods work too."""
        assert (Tools.search_tools, Tools.describe_tool) == (Tools.search, Tools.describe)
        assert Tools.list_tool_examples is Tools.examples


class TestHandles:
    """Results that are too large for a program."""

    def handle(self, *answers: Any) -> tuple[Any, Host]:
        """One, and the host that has it."""
        host = Host({"handle": HANDLE}, *answers)
        return tools_of(host).big.list(), host

    def test_what_it_says(self) -> None:
        """A handle is a list; type, sizes and its beginning are known without reading anything."""
        handle, host = self.handle()
        assert isinstance(handle, list)
        assert (handle.id, handle.type, handle.bytes, len(handle), handle.length, handle.preview) == (
            "h1",
            "array",
            5000,
            4,
            4,
            "[10, 11,",
        )
        assert len(host.asked) == 1

    def test_it_is_read_as_it_is_used(self) -> None:
        """Each item once, whatever is asked for; with all of it there it is an ordinary list."""
        handle, host = self.handle({"items": [11]}, {"items": [12, 13]}, {"items": [10]})
        assert handle[1] == 11
        assert handle[1:3] == [11, 12]
        assert handle[-1] == 13
        assert handle[::2] == [10, 12]
        assert handle == [10, 11, 12, 13]
        pages = [payload["page"] for _, payload in host.asked[1:]]
        assert [(page["offset"], page["limit"]) for page in pages] == [(1, 3), (2, 2), (0, 1)]

    def test_a_part_by_path(self) -> None:
        """The host selects it."""
        handle, host = self.handle({"structured": "p"})
        assert handle.read("a[0].b", 1, 2) == "p"
        assert host.asked[1][1] == {"handle": "h1", "path": "a[0].b", "offset": 1, "limit": 2}

    def test_as_an_argument_it_stands_for_the_whole(self) -> None:
        """The host puts the value in its place."""
        handle, host = self.handle({"structured": 1})
        tools_of(host).other.tool(data=[handle])
        assert host.asked[1][1]["args"] == {"data": [{"$handle": "h1"}]}

    def test_what_was_changed_travels(self) -> None:
        """A value that the program may have changed goes by value."""
        handle, host = self.handle({"items": [{"a": 1}, 11, 12, 13]}, {"structured": 1})
        handle[0]["a"] = 2
        tools_of(host).other.tool(data=[handle])
        assert host.asked[2][1]["args"] == {"data": [[{"a": 2}, 11, 12, 13]]}

    def test_a_part_may_be_too_large_again(self) -> None:
        """Then it is another one."""
        handle, _ = self.handle({"handle": {**HANDLE, "id": "h2"}})
        assert handle.read("a").id == "h2"

    def test_what_the_program_drops_the_host_may_forget(self) -> None:
        """The host gets the dropped handles with the next request, in the same frame."""
        handle, _host = self.handle()
        channel = handle._reader.remote.channel
        del handle
        frames: list[str] = []
        channel.connect(lambda frame: frames.append(frame) or '[{"type":"response","id":"2","payload":{}}]', print)
        channel.ask("list_namespaces", {})
        assert [message["type"] for message in json.loads(frames[0])] == ["release", "list_namespaces", "wait"]
        assert json.loads(frames[0])[0]["payload"] == {"handles": ["h1"]}

    def test_a_huge_text(self) -> None:
        """A huge string is read in parts as well, and whole when that is needed."""
        data = {"id": "h1", "type": "string", "bytes": 1 << 25, "length": 1 << 25, "preview": ""}
        whole = [{"text": "y" * (1 << 24)}] * 2
        host = Host({"handle": data}, {"text": "abc"}, {"text": "z"}, *whole)
        text = tools_of(host).big.text()
        assert isinstance(text, str)
        assert (len(text), text[5:8], text[-1]) == (1 << 25, "abc", "z")
        assert text.count("y") == 1 << 25
        assert ("y" in text, text == "y", len(text + "!")) == (True, False, (1 << 25) + 1)
        assert len(host.asked) == 5


class TestErrors:
    """Failures of tools."""

    def test_they_have_the_fields_of_the_host(self) -> None:
        """Errors have the fields of the host, and the class that their code names."""
        reply = {
            "error": "no luck",
            "code": "handler_failed",
            "toolId": "a:b",
            "op": "execute",
            "backend": "local",
            "retryable": True,
            "details": {"x": 1},
        }
        with pytest.raises(CLASSES["ExecutionError"]) as caught:
            tools_of(Host(reply)).a.b()
        error = caught.value
        assert type(error) is CLASSES["HandlerError"]
        assert (error.message, error.code, error.tool_id, error.op) == ("no luck", "handler_failed", "a:b", "execute")
        assert (error.backend, error.retryable, error.details) == ("local", True, {"x": 1})

    def test_time_is_over(self) -> None:
        """A timeout is a TimeoutError, too."""
        assert isinstance(tool_error({"error": "late", "code": "timeout"}), TimeoutError)

    @pytest.mark.parametrize("payload", [None, "x", {}, {"code": 5, "error": None}])
    def test_whatever_the_host_says(self, payload: Any) -> None:
        """There is an error to raise."""
        error = tool_error(payload)
        assert (str(error), error.code, error.retryable, error.details) == ("unknown error", "internal", False, {})

    def test_unknown_codes_stay(self) -> None:
        """A newer host may have more of them."""
        error = tool_error({"error": "x", "code": "brand_new"})
        assert (type(error), error.code) == (ToolError, "brand_new")
