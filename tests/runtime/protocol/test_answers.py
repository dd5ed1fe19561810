"""What answers carry comes back as the types it came from; what is missing or ill-typed counts as absent."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from toolexec.discovery.docs import DetailLevel, DocEntry, InMemoryDocStore
from toolexec.discovery.examples import ToolExample
from toolexec.discovery.memory import InMemoryIndex
from toolexec.discovery.summary import Summary
from toolexec.errors import HandlerError, Violation
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool, ToolAnnotations, ToolReply
from toolexec.model.content import text
from toolexec.run import Result, StepResult
from toolexec.run.steps import Step
from toolexec.runtime.protocol import answers
from toolexec.runtime.protocol.wire import error_payload, result_fields, step_payload

STEP = Step(tool_id="a:b", args={"x": 1})
RICH = Tool(
    name="b",
    namespace="a",
    version="1.2.0",
    title="B",
    description="Does b.",
    input_schema={"type": "object", "properties": {"x": {"type": "integer", "default": 3}}, "required": ["x"]},
    output_schema={"type": "integer"},
    annotations=ToolAnnotations(title="Bee", read_only=True, destructive=False),
    tags=["one", "two"],
    meta={
        "summary": "b",
        "category": "letters",
        "inputModes": ["text"],
        "outputModes": ["json", "text"],
        "securitySchemes": {"oauth": {}, "key": {}},
    },
)


def over_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


class TestResults:
    """One call's result."""

    @pytest.mark.parametrize(
        "binding", [LocalBinding("h"), ProviderBinding("p", "t"), MCPBinding("s", "t"), None], ids=repr
    )
    def test_nothing_is_lost(self, binding: Any) -> None:
        """Value, ID, time, binding, reply and warnings."""
        warning = Violation(path="/a", keyword="type", message="no", expected="string", got=5)
        reply = ToolReply(content=[text("5")], meta={"m": 1})
        result = Result("a:b:1.0.0", {"n": 5}, None, 0.25, binding, reply, (warning,))
        payload = over_json({**result_fields(result, 1000), "structured": result.value})
        assert answers.read_result(payload, "a:b") == result

    @pytest.mark.parametrize("kind", ["local", "provider", "mcp"])
    def test_only_a_kind(self, kind: str) -> None:
        """A host that tells no more gets a binding of that kind."""
        binding = answers.read_result({"backendKind": kind, "structured": 1}, "a:b").binding
        assert binding is not None
        assert (binding.kind, binding.tool) == (kind, "a:b")

    @pytest.mark.parametrize(
        "payload",
        [
            {},
            {"tool": 5, "durationMs": "x", "backendKind": 5, "binding": [], "mcpResult": 5, "warnings": "x"},
            {"tool": "", "durationMs": -1, "backendKind": "else", "binding": {"kind": "mcp"}, "handle": {"id": 5}},
            {"durationMs": True, "binding": {"kind": ["local"]}, "warnings": [5], "handle": "h1"},
        ],
        ids=str,
    )
    def test_a_hostile_answer(self, payload: dict[str, Any]) -> None:
        """A hostile answer is an empty result."""
        assert answers.read_result(payload, "a:b") == Result("a:b")

    def test_a_value_that_stays_there(self) -> None:
        """Such a value is a dict that stands for it, with its known fields."""
        handle = {"id": "h1", "type": "array", "bytes": 9, "length": 2, "preview": "[1", "other": 1}
        assert answers.read_value({"handle": handle}) == {
            "$handle": "h1", "type": "array", "bytes": 9, "length": 2, "preview": "[1",
        }  # fmt: skip

    def test_a_failed_call(self) -> None:
        """The error is the result's; without a result it was no call at all."""
        failed = Result("a:b", None, HandlerError("no", tool_id="a:b"), 0.5, LocalBinding("a:b"))
        assert failed.error is not None
        payload = over_json(error_payload(failed.error) | {"result": result_fields(failed, 1000)})
        read = answers.read_failure(payload, "a:b")
        assert read is not None
        assert isinstance(read.error, HandlerError)
        assert (read.tool_id, read.value, read.duration, read.binding) == ("a:b", None, 0.5, LocalBinding("a:b"))
        assert answers.read_failure({"error": "no"}, "a:b") is None
        assert answers.read_failure({"error": "no", "result": 5}, "a:b") is None


class TestChains:
    """A chain's outcome."""

    def test_nothing_is_lost(self) -> None:
        """Each step with its value, time, place and the arguments that went in."""
        steps = [STEP, Step(tool_id="c", args={"y": 0}, use_previous=True)]
        results = [
            Result("a:b", 5, None, 0.5, LocalBinding("a:b")),
            Result("c", 6, None, 0.25, MCPBinding("s", "c"), ToolReply(content=[text("6")])),
        ]
        outcomes = [
            StepResult(0, "a:b", "", {"x": 1}, 5, None, 0.5, False, 1, results[0]),
            StepResult(1, "c", "", {"previous": 5, "y": 0}, 6, None, 0.25, False, 3, results[1]),
        ]
        payload = over_json({"structured": 6, "stepResults": [step_payload(each) for each in outcomes]})
        assert answers.read_chain(payload, steps) == (results[1], outcomes)

    def test_a_failure(self) -> None:
        """There is no result; the step that could not be run has none either."""
        error = error_payload(HandlerError("no", tool_id="a:b"))
        payload = {"structured": None, "stepResults": [{"toolId": "a:b", "error": error}], "failed": error}
        result, (step,) = answers.read_chain(payload, [STEP, STEP])
        assert result is None
        assert isinstance(step.error, HandlerError)
        assert (step.value, step.result, step.attempts, step.ok) == (None, None, 1, False)
        assert answers.read_chain({"stepResults": [{"error": error}]}, [STEP])[0] is None

    def test_a_failed_call_of_a_step(self) -> None:
        """Where it ran is known."""
        error = error_payload(HandlerError("no", tool_id="a:b"))
        _, (step,) = answers.read_chain({"stepResults": [{"backendKind": "mcp", "error": error}]}, [STEP])
        assert step.result is not None
        assert step.result.error is step.error
        assert step.result.binding is not None

    def test_a_skipped_step(self) -> None:
        """A skipped step has no value and no attempts, and passes nothing on."""
        items = [{"structured": 1}, {"skipped": True}, {"structured": 2}]
        steps = [STEP, STEP, Step(tool_id="c", use_previous=True)]
        _, outcomes = answers.read_chain({"stepResults": items, "structured": 2}, steps)
        assert [(each.skipped, each.attempts) for each in outcomes] == [(False, 1), (True, 0), (False, 1)]
        assert outcomes[2].args == {"previous": 1}

    @pytest.mark.parametrize("items", [None, 5, {}, ["x", None, 5]], ids=str)
    def test_no_steps_told(self, items: Any) -> None:
        """The value is the chain's; elements that are no objects are skipped."""
        result, outcomes = answers.read_chain({"structured": 7, "stepResults": items}, [STEP])
        assert result == Result("a:b", 7)
        assert outcomes == []

    def test_more_outcomes_than_steps(self) -> None:
        """The surplus is left out."""
        _, outcomes = answers.read_chain({"stepResults": [{}, {}, {}]}, [STEP])
        assert len(outcomes) == 1

    def test_attempts_of_the_wrong_type(self) -> None:
        """Such attempts count as one."""
        _, (step,) = answers.read_chain({"stepResults": [{"attempts": "9"}]}, [STEP])
        assert step.attempts == 1

    def test_the_last_value_may_stay_there(self) -> None:
        """As a dict that stands for it, in the result and in the step."""
        handle = {"id": "h1", "type": "array"}
        result, (step,) = answers.read_chain({"handle": handle, "stepResults": [{"handle": handle}]}, [STEP])
        assert result is not None
        assert result.value == step.value == {"$handle": "h1", "type": "array"}


class TestFinding:
    """Summaries, namespaces, examples."""

    def test_a_summary(self) -> None:
        """Every field arrives."""
        index = InMemoryIndex()
        index.register(RICH, MCPBinding("s", "b"))
        (summary,) = index.search("letters")
        from dataclasses import replace

        summary = replace(summary, unavailable="down", score=1.5)
        (read,) = answers.read_summaries(over_json({"results": [summary.to_dict()]}))
        assert read == replace(summary, annotations=read.annotations)
        assert read.annotations == RICH.annotations

    @pytest.mark.parametrize("results", [None, "x", {}, 5, [1, "x", None, [], {}, {"id": 5}, {"id": ""}]], ids=str)
    def test_no_summaries(self, results: Any) -> None:
        """Invalid summaries are skipped."""
        assert answers.read_summaries({"results": results}) == []
        assert answers.read_summaries({}) == []

    def test_fields_of_the_wrong_type(self) -> None:
        """Fields of the wrong type are empty."""
        item = {"id": "a", "name": 5, "tags": "x", "inputModes": [1, "text"], "annotations": [], "score": True}
        (summary,) = answers.read_summaries({"results": [item]})
        assert summary == Summary(id="a", name="", input_modes=("text",))

    def test_namespaces(self) -> None:
        """Strings only."""
        assert answers.read_namespaces({"namespaces": ["a", 5, None, "", "b"]}) == ["a", "", "b"]
        assert answers.read_namespaces({"namespaces": "a"}) == []

    def test_examples(self) -> None:
        """With all they have; ill-typed parts are empty."""
        example = ToolExample(title="t", description="d", args={"a": [1]}, result_hint="r", id="e")
        assert answers.read_examples(over_json({"examples": [example.to_dict()]})) == [example]
        assert answers.read_examples({"examples": [{"title": 5, "args": "x"}, 5]}) == [ToolExample()]
        assert answers.read_examples({}) == []


class TestDocumentation:
    """A tool's documentation."""

    @pytest.mark.parametrize("level", get_args(DetailLevel))
    def test_nothing_is_lost(self, level: DetailLevel) -> None:
        """At each level the data are the same, and what is computed of them, too."""
        index = InMemoryIndex()
        index.register(RICH, MCPBinding("s", "b"))
        docs = InMemoryDocStore(index)
        example = ToolExample(title="t", args={"x": 1}, id="e")
        docs.register_doc(RICH.id, DocEntry(summary="s", notes="n", examples=(example,), external_refs=("https://x",)))
        doc = docs.describe(RICH.id, level)
        read = answers.read_doc(over_json(doc.to_dict()), "a:b", level)
        assert read.to_dict() == doc.to_dict()
        assert (read.id, read.level) == (RICH.id, level)
        assert read.schema_info == doc.schema_info
        assert read.example_call == doc.example_call
        assert read.bindings == doc.bindings
        if level != "summary":
            assert read.tool == RICH

    @pytest.mark.parametrize(
        "payload",
        [
            {},
            {"id": 5, "summary": [], "tool": "x", "bindings": "x", "notes": 5, "examples": {}, "externalRefs": 1},
            {"tool": {"name": "bad name", "inputSchema": {}}, "annotations": 5, "securitySummary": 5},
            {"tool": {"name": "a"}, "bindings": [{"kind": "else"}, 5]},
            {"tool": {"name": "a", "inputSchema": 5}},
            {"tool": {"name": "a", "inputSchema": {"$ref": "https://elsewhere"}}},
            {"tool": {"name": "a", "inputSchema": {}, "icons": 5}},
        ],
        ids=str,
    )
    def test_a_hostile_answer(self, payload: dict[str, Any]) -> None:
        """Unusable fields count as absent; the rest is there."""
        doc = answers.read_doc({"notes": "n", **payload}, "a:b", "full")
        assert (doc.id, doc.tool, doc.bindings, doc.examples) == ("a:b", None, (), ())
        assert doc.to_dict()["id"] == "a:b"
