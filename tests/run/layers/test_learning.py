"""What tools answer is learned where they declare nothing, and used where it cannot do harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolexec import Exec, Gate, Tool
from toolexec.code.stubs import python_stubs
from toolexec.discovery.learned import LearnedOutputs
from toolexec.errors import HandlerError
from toolexec.run.layers import Learning
from toolexec.workflow.checker import check
from toolexec.workflow.parser import parse

USER = Tool(name="user", namespace="hub", input_schema={"type": "object"})


def answer(args: dict[str, Any]) -> Any:
    """Answer a user, or fail."""
    if args.get("fail"):
        raise ValueError("no")
    return args.get("value", {"id": 7, "name": "Ann"})


async def test_results_teach_stubs_descriptions_and_the_checker() -> None:
    """After one call, all three know the fields; before it, none does."""
    async with Exec(gate=Gate(learning=Learning())) as ex:
        ex.add(USER, handler=answer)
        workflow = parse('user := run("hub:user")\nreturn user.nam')
        assert check(workflow, ex.index, learned=ex.learned) == []
        await ex.run_tool("hub:user")
        learned = ex.learned
        assert learned is not None
        [finding] = check(workflow, ex.index, learned=learned)
        assert (finding.kind, finding.severity, finding.suggestion) == (
            "unknown-field",
            "warning",
            "did you mean name?",
        )
        assert "id: int" in python_stubs([learned.with_output(USER)])
        doc = await ex.get_tool_doc("hub:user")
        assert doc.tool is not None
        assert doc.tool.output_schema is not None
        assert doc.tool.output_schema.to_json()["x-inferred"] == 1


async def test_nothing_is_refused_for_what_was_learned() -> None:
    """Another answer passes, is learned, too, and a workflow that reads it runs."""
    async with Exec(gate=Gate(learning=Learning())) as ex:
        ex.add(USER, handler=answer)
        await ex.run_tool("hub:user")
        other = await ex.run_tool("hub:user", {"value": "just a text"})
        assert other.value == "just a text"
        assert not other.warnings
        result = await ex.run_workflow('return upper(run("hub:user", {value: "x"}))')
        assert result.value == "X"
        schema = ex.learned.schema(USER) if ex.learned is not None else None
        assert schema is not None
        assert schema["type"] == ["object", "string"]


async def test_certain_mistakes_stay_errors() -> None:
    """Mistakes without the learned schemas are errors with them."""
    async with Exec(gate=Gate(learning=Learning())) as ex:
        ex.add(USER, handler=answer)
        await ex.run_tool("hub:user")
        findings = check(parse('x := run("hub:usr")\nreturn x + y'), ex.index, learned=ex.learned)
        assert {(each.kind, each.severity) for each in findings} >= {
            ("unknown-tool", "error"),
            ("undefined-name", "error"),
        }


async def test_failures_teach_nothing() -> None:
    """Only answers count, of streams the last one."""
    async with Exec(gate=Gate(learning=Learning())) as ex:
        ex.add(USER, handler=answer)
        assert isinstance((await ex.run_tool("hub:user", {"fail": True})).error, HandlerError)
        assert ex.learned is not None
        assert ex.learned.schema(USER) is None
        assert [event.kind async for event in ex.stream_tool("hub:user")] == ["done"]
        assert ex.learned.schema(USER) is not None


async def test_without_the_part_there_is_nothing() -> None:
    """Neither without a gate, nor in one without the part."""
    assert Exec().learned is None
    assert Exec(gate=Gate()).learned is None


def test_a_file_is_taken(tmp_path: Path) -> None:
    """The part makes its outputs from the path."""
    outputs = LearnedOutputs()
    assert Learning(outputs).outputs is outputs
    Learning(tmp_path / "outputs.json").outputs.save()
