"""The checker finds each planted mistake at its place, and nothing in what is right."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from tests.depth import examples
from tests.workflow.corpus import Case, corpus_index, read_corpus
from tests.workflow.trees import workflows

from toolexec import InMemoryIndex, LocalBinding, Tool
from toolexec.workflow import nodes as n
from toolexec.workflow.checker import Finding, check
from toolexec.workflow.formatter import format_tree
from toolexec.workflow.parser import parse
from toolexec.workflow.report import finding_text

WRONG = read_corpus("wrong.txt")
RIGHT = read_corpus("right.txt")


def found(source: str, **how: object) -> list[Finding]:
    return check(parse(source), corpus_index(), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("case", WRONG, ids=[case.name for case in WRONG])
def test_a_planted_mistake_is_found(case: Case) -> None:
    """The mistake is found where it is, and nothing else is."""
    index = corpus_index()
    findings = check(parse(case.source), index, allowed=lambda tool_id: not tool_id.startswith("secret:"))
    assert [(each.kind, each.at.line, each.at.column) for each in findings] == [(case.kind, case.line, case.column)]


@pytest.mark.parametrize("case", RIGHT, ids=[case.name for case in RIGHT])
def test_nothing_is_found_in_what_is_right(case: Case) -> None:
    """A right workflow has no finding, not even a warning."""
    assert [str(each) for each in found(case.source)] == []


def test_the_corpus_is_large_enough() -> None:
    """There are at least 60 wrong and 20 right workflows."""
    assert len(WRONG) >= 60
    assert len(RIGHT) >= 20


# -- inputs of a run --------------------------------------------------------------------------------------------

_WITH_INPUTS = "input repo: string\ninput most: integer = 3\nprint(repo, most)\n"


@pytest.mark.parametrize(
    ("inputs", "kinds"),
    [
        ({"repo": "a/b"}, []),
        ({"repo": "a/b", "most": 5}, []),
        ({}, ["missing-input"]),
        ({"repo": 3}, ["wrong-type"]),
        ({"repo": "a/b", "moost": 5}, ["unknown-input"]),
        (None, []),
    ],
    ids=["enough", "all", "none", "wrong", "unknown", "open"],
)
def test_inputs_are_checked_when_they_are_given(inputs: dict[str, object] | None, kinds: list[str]) -> None:
    """Required inputs must be there, all must fit, and no other may be."""
    assert [each.kind for each in found(_WITH_INPUTS, inputs=inputs)] == kinds


# -- all at once ------------------------------------------------------------------------------------------------


def test_all_findings_come_at_once_in_source_order() -> None:
    """A workflow with several mistakes gets all findings, the first line first."""
    findings = found('x := run("github:get_isue", {})\nprint(y)\nwhile true { run("time:now") }\n')
    assert [(each.kind, each.at.line) for each in findings] == [
        ("unused-name", 1),
        ("unknown-tool", 1),
        ("undefined-name", 2),
        ("unbounded-loop", 3),
    ]


def test_without_an_index_tools_are_not_checked() -> None:
    """The rest of the workflow is checked."""
    assert [each.kind for each in check(parse('run("no:such", {a: b})'))] == ["undefined-name"]


def test_a_finding_shows_its_line() -> None:
    """As text it has the place, the line with a mark, and what to write; as data the same."""
    source = 'title := "x"\nrun("github:create_isue", {title})\n'
    (finding,) = found(source)
    assert finding_text(finding, source, "a.workflow").splitlines() == [
        "a.workflow:2:5: error: there is no tool github:create_isue [unknown-tool]",
        '   2 | run("github:create_isue", {title})',
        "     |     ^^^^^^^^^^^^^^^^^^^^",
        "  = did you mean github:create_issue?",
    ]
    data = finding.to_dict()
    assert (data["kind"], data["line"], data["column"]) == ("unknown-tool", 2, 5)


def test_hints_name_only_tools_that_the_run_may_call() -> None:
    """A tool that is not allowed is not named to the author of the workflow."""
    (finding,) = found('run("github:delete_isue", {})', allowed=lambda tool_id: "delete" not in tool_id)
    assert "delete_issue" not in finding.suggestion


# -- hostile tools and workflows ----------------------------------------------------------------------------------


def _check_with(source: str, **schemas: object) -> list[Finding]:
    index = InMemoryIndex()
    tool = Tool(name="tool", namespace="bad", **{"input_schema": {"type": "object"}, **schemas})  # type: ignore[arg-type]
    index.register(tool, LocalBinding(tool.id))
    return check(parse(source), index)


def test_alternatives_that_multiply_are_left_alone() -> None:
    """A schema whose alternatives double at each link is not followed to its end."""
    defs: dict[str, object] = {
        f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}, {"$ref": f"#/$defs/n{i + 1}"}]} for i in range(10)
    }
    schema = {"$ref": "#/$defs/n0", "$defs": {**defs, "n10": {"type": "object", "properties": {"a": True}}}}
    assert _check_with('x := run("bad:tool", {a: 1})\nx.a.b', input_schema=schema, output_schema=schema) == []


def test_a_schema_that_contains_itself_is_read_level_by_level() -> None:
    """Members of a recursive schema have shapes at any depth."""
    schema = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    path = ".next" * 60
    assert _check_with(f'run("bad:tool", {{}}){path}', output_schema=schema) == []
    assert [each.kind for each in _check_with(f'run("bad:tool", {{}}){path}.nxt', output_schema=schema)] == [
        "unknown-field"
    ]


def test_names_of_a_schema_cannot_flood_a_finding() -> None:
    """Long names and control characters of a server are cut and cleaned."""
    names = {f"{'a' * 500}{number}\x1b[31m": {"type": "string"} for number in range(800)}
    schema = {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}
    findings = _check_with('run("bad:tool", {b: 1})', input_schema=schema)
    assert findings
    assert max(len(str(each)) for each in findings) < 1200
    assert not any("\x1b" in str(each) for each in findings)


def test_a_schema_that_cannot_be_compiled_is_no_finding() -> None:
    """The checker leaves such a tool alone; a call of it fails."""
    assert _check_with('run("bad:tool", {a: 1})', input_schema={"type": "objekt"}) == []


def test_deep_and_long_workflows_are_checked() -> None:
    """Blocks, brackets and calls that are nested deep end in findings and not in a crash."""
    deep = "if len([1]) > 0 {\n" * 60 + "print(unknown)\n" + "}\n" * 60
    assert [each.kind for each in found(deep)] == ["undefined-name"]
    brackets = "x := 1\ny := " + "[" * 90 + "x" + "]" * 90 + "\nprint(y)\n"
    assert found(brackets) == []
    nested = 'run("github:search", {query: ' * 40 + '"x"' + "})" * 40
    assert found(nested) == []


def test_numbers_beyond_floats_are_checked() -> None:
    """A limit that no float can hold is checked as any other."""
    assert [each.kind for each in found(f"while len([]) > 0 limit {10**400} {{ 1 }}")] == []


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(workflows())
def test_the_checker_takes_any_tree(tree: n.Workflow) -> None:
    """Whatever can be parsed gives findings, each with its place, and nothing else."""
    for found in check(parse(format_tree(tree))):
        assert found.at.line >= 1
        assert json.loads(json.dumps(found.to_dict()))["kind"] == found.kind
