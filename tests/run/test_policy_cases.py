"""Tests of a policy as data: what they say is read strictly, and compared with what the policy decides."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.run.policy import Policy
from toolexec.run.policy_cases import PolicyCase, read_cases, tool_at

POLICY = Policy.from_dict(
    {
        "default_runs": "deny",
        "rules": [
            {"effect": "allow", "tools": ["hub:push"], "when": {"branch": "dev"}, "name": "dev"},
            {"effect": "deny", "callers": ["guest-*"], "name": "guests", "reason": "they look"},
            {"effect": "allow", "runs": ["code"], "roles": ["engineer"], "languages": ["python"]},
        ],
    }
)
CALLERS = {"ann": {"id": "ann", "roles": ["engineer"]}}


def problems(*tests: Any, tools: Any = None, servers: Any = None) -> list[str]:
    """Return what is wrong with each test under POLICY."""
    data = {"tests": list(tests), "callers": CALLERS, "tools": tools or {}}
    cases: list[PolicyCase] = read_cases(data, servers or {"hub": "mcp:hub"})
    return [case.problem(case.verdict(POLICY)) for case in cases]


def test_calls_are_decided_as_they_would_be() -> None:
    """The caller, the arguments and the backend count; a tool of a configured server counts as one that says nothing of itself."""
    call = {"tool": "hub:push", "args": {"branch": "dev"}}
    assert problems(
        {**call, "expect": "allow", "rule": "dev"},
        {**call, "expect": "deny", "caller": "guest-3"},
        {"tool": "hub:push", "args": {"branch": "main"}, "expect": "ask"},
        {"tool": "hub:get", "expect": "allow"},
        tools={"hub:get": {"backend": "mcp:hub", "read_only": True}},
    ) == ["", "", "", ""]


def test_runs_are_decided_too() -> None:
    """The language of code and its caller count."""
    assert problems(
        {"run": "code", "caller": "ann", "expect": "allow"},
        {"run": "code", "language": "js", "caller": "ann", "expect": "deny"},
        {"run": "workflow", "caller": {"id": "ann", "roles": "engineer"}, "expect": "deny"},
    ) == ["", "", ""]


def test_a_problem_says_what_decided() -> None:
    """The message has the effect, the rule and its reason, or the rule where another one was expected."""
    call = {"tool": "hub:push", "caller": "guest-1", "args": {"branch": "dev"}}
    assert problems({**call, "expect": "allow"}, {**call, "expect": "deny", "rule": "dev"}) == [
        "expected allow, but it is deny by guests (they look)",
        "expected deny by dev, but it is by guests (they look)",
    ]


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ({"tool": "other:x", "expect": "deny"}, "where does other:x run"),
        ({"tool": "hub:x", "expct": "deny"}, "did you mean expect"),
        ({"tool": "hub:x", "expect": "refuse"}, "expect cannot be 'refuse'"),
        ({"tool": "hub:x", "run": "code", "expect": "deny"}, "for one of them"),
        ({"expect": "deny"}, "for a `tool` or for a `run`"),
        ({"tool": "hub:x", "args": [1], "expect": "deny"}, "args must be a mapping"),
        ({"tool": "hub:x", "language": "python", "expect": "deny"}, "has no language"),
        ({"tool": "a:b:c:d", "expect": "deny"}, "not a tool ID"),
        ({"run": "cod", "expect": "deny"}, "did you mean code"),
        ({"run": "chain", "language": "python", "expect": "deny"}, "only code"),
        ({"run": "code", "profile": "hard", "expect": "deny"}, "profile cannot be 'hard'"),
        ({"run": "code", "caller": {"role": "x"}, "expect": "deny"}, "did you mean roles"),
        ({"run": "code", "caller": {"roles": [1]}, "expect": "deny"}, "roles must be a list of strings"),
        ("hub:x", "must be a mapping"),
    ],
)
def test_what_makes_no_sense_is_refused(test: Any, words: str) -> None:
    """The error has the number of the test, and what to write instead."""
    with pytest.raises(ConfigurationError, match=words) as caught:
        problems({"tool": "hub:x", "expect": "ask"}, test)
    assert caught.value.message.startswith("test 2: ")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"tests": []}, "needs a list"),
        ({"tests": "all"}, "needs a list"),
        ({"test": []}, "did you mean tests"),
        ({"tools": [1], "tests": [{}]}, "tools must be a mapping"),
        ({"tools": {"a:b": {"backend": "mcp"}}, "tests": [{}]}, "cannot be 'mcp'"),
        ({"tools": {"a:b": {"backend": "http:x"}}, "tests": [{}]}, "cannot be 'http:x'"),
        ({"tools": {"a:b": {"backend": "local", "read_only": "yes"}}, "tests": [{}]}, "true or false"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(data: Any, words: str) -> None:
    """The file is checked before any test is looked at."""
    with pytest.raises(ConfigurationError, match=words):
        read_cases(data, {})


def test_a_tool_is_where_it_is_said_to_be() -> None:
    """Rules compare the kind and the name of its backend, and its tags."""
    entry = tool_at("a:b:1.0.0", "provider:api", tags=["billing"], hints={"destructive": False})
    assert (entry.tool.id, entry.binding.kind, entry.binding.backend) == ("a:b:1.0.0", "provider", "api")
    assert (entry.tool.tags, entry.tool.annotations.destructive) == (("billing",), False)


def test_resources_and_prompts_only_read() -> None:
    """A test of one says what the rules say of the real one, which is not asked about as a tool without hints is."""
    tests = [
        {"tool": "docs:x:+resource", "args": {"uri": "file:///x"}, "expect": "allow"},
        {"tool": "docs:x:+prompt", "expect": "deny", "rule": "rule 1"},
        {"tool": "docs:x", "expect": "ask"},
    ]
    policy = Policy.from_dict({"remote_destructive": "ask", "rules": [{"effect": "deny", "tools": ["*:+prompt"]}]})
    cases = read_cases({"tests": tests}, {"docs": "mcp:docs"})
    assert [
        (case.problem(case.verdict(policy)), case.name) for case in cases if case.problem(case.verdict(policy))
    ] == []
