"""Workflows made of the calls of a run, and of chains."""

from typing import Any

import pytest

from toolexec import Step
from toolexec.code.types import CodeResult, ToolCallRecord
from toolexec.errors import CodeError, InvalidChainError, InvalidRequestError, ToolExecError
from toolexec.workflow.checker import check
from toolexec.workflow.from_chain import from_chain
from toolexec.workflow.parser import parse
from toolexec.workflow.recording import record


def result_of(*calls: tuple[str, dict[str, Any] | None, Any], value: Any = None) -> CodeResult:
    records = [ToolCallRecord(tool, args, value=value) for tool, args, value in calls]
    return CodeResult(value=value, tool_calls=records)


def accepted(text: str) -> str:
    """Return the text, if it is a workflow without errors."""
    assert [str(found) for found in check(parse(text)) if found.severity == "error"] == []
    return text


# -- recordings -------------------------------------------------------------------------------------------------


def test_values_that_flow_become_references() -> None:
    """An argument that equals a part of an earlier result refers to it; the run's value is returned."""
    text = record(
        result_of(
            ("github:list", {"repo": "a/b"}, [{"number": 7, "user": {"login": "alice"}, "a key": "value"}]),
            ("github:get", {"number": 7, "who": "alice", "other": "value"}, {"title": "A title"}),
            (
                "slack:send",
                {"text": "A title", "all": [{"number": 7, "user": {"login": "alice"}, "a key": "value"}]},
                1,
            ),
            value="A title",
        )
    )
    assert accepted(text) == (
        'list := run("github:list", {repo: "a/b"})\n'
        'get_result := run("github:get", {number: list[0].number, who: list[0].user.login, other: list[0]["a key"]})\n'
        'run("slack:send", {text: get_result.title, all: list})\n'
        "return get_result.title\n"
    )


def test_small_numbers_flow_only_by_name() -> None:
    """Values that are equal by chance stay literals: true, null, small numbers, short strings."""
    text = record(
        result_of(
            ("a:b", {}, {"count": 3, "ok": True, "id": 5, "s": "x", "large": 123456}),
            ("c:d", {"limit": 3, "flag": True, "issue_id": 5, "t": "x", "n": 123456, "none": None}, None),
        )
    )
    assert '{limit: 3, flag: true, issue_id: b.id, t: "x", n: b.large, none: null}' in accepted(text)


def test_the_latest_result_is_referred_to() -> None:
    """Of several equal values the one of the last call is taken."""
    text = record(result_of(("a:b", {}, "the text"), ("a:b", {}, "the text"), ("c:d", {"x": "the text"}, None)))
    assert accepted(text) == 'run("a:b")\nb_2 := run("a:b")\nrun("c:d", {x: b_2})\n'


def test_names_and_strings_of_a_recording_are_safe() -> None:
    """Tool names that are keywords or functions get another name; strings cannot be read as code."""
    text = record(
        result_of(
            ("x:for", {"a": '${fail "x"}', "b": 'q"\n', "no-word": "\u202e"}, "a long value"),
            ("x:len", {"v": "a long value"}, "another value"),
            ("x:1-2", {"v": "another value"}, None),
        )
    )
    assert accepted(text).splitlines()[0] == (
        'for_result := run("x:for", {a: "\\${fail \\"x\\"}", b: "q\\"\\n", "no-word": "\\u202e"})'
    )
    assert "len_result := run" in text


def test_failed_calls_are_left_out_and_failed_runs_refused() -> None:
    """A recording has what worked; a run that failed or called nothing is not recorded."""
    failed = ToolCallRecord("a:b", {}, error=ToolExecError("no"))
    result = CodeResult(tool_calls=[failed, ToolCallRecord("c:d", None, value=1)])
    assert accepted(record(result)).startswith("# 1 call that failed is left out\n")
    with pytest.raises(InvalidRequestError, match="successful"):
        record(CodeResult())
    with pytest.raises(InvalidRequestError, match="successful"):
        record(CodeResult(tool_calls=[ToolCallRecord("a:b")], error=CodeError("no")))


# -- chains -----------------------------------------------------------------------------------------------------


def test_a_chain_with_references() -> None:
    """References become names with safe members, other paths `jmespath`."""
    text = from_chain(
        [
            Step("github:list", {"repo": "a/b"}, name="found-issues"),
            Step("github:get", {"number": {"$ref": "found-issues.items[0].number"}}, timeout=2.5),
            Step(
                "x:y",
                {"all": {"$ref": "steps.0"}, "n": {"$ref": "steps[0].items[*].n"}, "s": {"$literal": {"$ref": "x"}}},
            ),
        ]
    )
    assert accepted(text) == (
        'found_issues := run("github:list", {repo: "a/b"})\n'
        'run("github:get", {number: found_issues?.items?[0]?.number}) timeout 2500ms\n'
        'return run("x:y", {all: found_issues, n: jmespath(found_issues, "items[*].n"), s: {"$ref": "x"}})\n'
    )


def test_a_chain_that_uses_the_previous_value() -> None:
    """Without arguments the value is the arguments if it is an object, with arguments it is added."""
    text = from_chain(
        [
            Step("a:one", use_previous=True),
            Step("a:two", use_previous=True),
            Step("a:three", {"x": 1}, use_previous=True),
            Step("a:four", {"previous": 2}, use_previous=True),
        ]
    )
    assert accepted(text) == (
        'one := run("a:one", {previous: null})\n'
        'two := run("a:two", type(one) == "object" ? one : {previous: one})\n'
        'run("a:three", {previous: two, x: 1})\n'
        'return run("a:four", {previous: 2})\n'
    )


def test_a_chain_with_retries_that_goes_on() -> None:
    """Retries become `retry`, going on `try`; the last value that there was is kept for the next step."""
    text = from_chain(
        [
            Step("a:one", {}, retries=2, retry_pause=0.25, stop_on_error=False),
            Step("a:two", {"x": 1}, use_previous=True),
        ]
    )
    assert accepted(text) == (
        "previous := null\n"
        "try {\n"
        '  previous = retry 3 delay 250ms { run("a:one") }\n'
        "  previous\n"
        "} catch {\n"
        "  null\n"
        "}\n"
        'return run("a:two", {previous: previous, x: 1})\n'
    )


def test_a_reference_to_no_earlier_step_is_refused() -> None:
    """A chain with such a reference cannot run either."""
    with pytest.raises(InvalidChainError, match=r"step 0: 'steps\.0' refers to no earlier step"):
        from_chain([Step("a:b", {"x": {"$ref": "steps.0"}})])
