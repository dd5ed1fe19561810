"""Skills: their front matter, their definition as tools, and their test blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.errors import ConfigurationError, InvalidToolError, WorkflowSyntaxError
from toolexec.model import ToolAnnotations
from toolexec.workflow.skill import RecordedCall, Skill

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "skills").glob("*.workflow"))
WHOLE = """+++
name = "triage"
description = "Labels an issue"
version = "1.2.0"
title = "Triage"
tags = ["issues"]
timeout = 20
max_tool_calls = 5
allowed_tools = ["github:*"]
output_schema = {type = "object"}
read_only = false
destructive = false
+++
input number: integer "The issue"
input label: string = "bug"

issue := run("github:get_issue", {number: number})
run("github:add_label", {number: issue.number, label: label})
return {label: label}

# test: an issue
#   inputs := {number: 7}
#   calls := [
#       {tool: "github:get_issue", args: {number: 7}, result: {number: 7}},
#       {tool: "github:add_label", error: "no such label"},
#   ]
#   error := "no such label"
# test:
#   returns := null
"""
HEAD = '+++\nname = "a"\ndescription = "b"\n+++\n'


def test_a_skill_is_a_tool() -> None:
    """The front matter describes the tool, the declared inputs are its schema."""
    skill = Skill.parse(WHOLE)
    tool = skill.tool()
    assert skill.id == tool.id == "skill:triage:1.2.0"
    assert (tool.title, tool.description, tool.tags) == ("Triage", "Labels an issue", ("skill", "issues"))
    assert tool.input_schema.to_json() == {
        "type": "object",
        "properties": {
            "number": {"type": "integer", "description": "The issue"},
            "label": {"type": "string", "default": "bug"},
        },
        "additionalProperties": False,
        "required": ["number"],
    }
    assert tool.output_schema is not None
    assert skill.header.timeout == 20
    assert skill.tools() == ["github:get_issue", "github:add_label"]
    assert skill.allowed_tools == ("github:*",)


def test_the_front_matter_wins_over_what_follows_from_the_tools() -> None:
    """A hint that is not given is that of the tools; one that is given holds."""
    tool = Skill.parse(WHOLE).tool(ToolAnnotations(read_only=True, idempotent=True, destructive=True))
    hints = tool.annotations
    assert (hints.read_only, hints.idempotent, hints.destructive) == (False, True, False)


def test_without_a_list_a_skill_may_call_what_it_names() -> None:
    """A computed ID is not among them."""
    skill = Skill.parse(HEAD + 'run("a:b")\nrun("a:" + "c")\nrun("a:b")')
    assert skill.allowed_tools == ("a:b",)
    assert skill.calls_others
    assert not Skill.parse(HEAD + "return 1").calls_others


def test_test_blocks_are_read() -> None:
    """Each has its inputs, its recorded calls and what is expected; one without a name is called by its line."""
    first, second = Skill.parse(WHOLE).tests
    assert (first.name, first.line, first.inputs, first.error) == ("an issue", 21, {"number": 7}, "no such label")
    assert first.calls == (
        RecordedCall(tool="github:get_issue", args={"number": 7}, result={"number": 7}),
        RecordedCall(tool="github:add_label", error="no such label"),
    )
    assert (second.name, second.line, second.returns) == ("line 28", 28, None)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("return 1", "a skill begins with its front matter"),
        ('+++\nname = "x"\n+++\n', "the front matter of a skill needs description"),
        ("+++\n+++\n", "needs name and description"),
        ('+++\nname = "x"\n\nversion = \n+++\n', "line 4: the front matter is not TOML: Invalid value"),
        ('+++\nname = "a"\ndescription = "b"\ntimout = 3\n+++\n', "did you mean timeout?"),
        ('+++\nname = "a"\ndescription = "b"\ntags = "x"\n+++\n', "tags"),
        ('+++\nname = "a"\ndescription = "b"\ntimeout = -1\n+++\n', "timeout of a skill must be 0 or more"),
        (HEAD + "# test: x\n# inputs := {a: b}", "line 5: the test 'x' cannot be read: only literals can stand here"),
        (HEAD + "# test: x\n# inpts := {a: 1}", "line 6: a test has only inputs := ..., calls := ..."),
        (HEAD + "# test: x\n# inputs := [1]", "inputs"),
        (HEAD + "# test: x\n# inputs := {a: 1", "line 6, column 12"),
        (HEAD + '# test: x\n# calls := [{tol: "x"}]', "did you mean tool?"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(source: str, message: str) -> None:
    """Nothing half read: an error that says where and what to write."""
    with pytest.raises(ConfigurationError) as caught:
        Skill.parse(source)
    assert message in str(caught.value)


def test_a_wrong_workflow_or_name_is_refused() -> None:
    """As a workflow and a tool would be anywhere."""
    with pytest.raises(WorkflowSyntaxError):
        Skill.parse(HEAD + "return (")
    with pytest.raises(InvalidToolError, match="contains ' '"):
        Skill.parse(HEAD.replace('"a"', '"a b"')).tool()


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_example_skills_are_read(path: Path) -> None:
    """Each has the name of its file, and at least one test."""
    skill = Skill.parse(path.read_text())
    assert skill.header.name == path.stem
    assert skill.tests
    assert skill.tool().description
