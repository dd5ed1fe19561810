"""Rules that are suggested allow what was done, and nothing beside it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from toolexec.model.call import ToolCall
from toolexec.model.origin import Caller, Origin
from toolexec.model.redaction import REDACTED
from toolexec.run.policy import Policy
from toolexec.run.policy_cases import tool_at
from toolexec.run.policy_suggest import suggest

OPEN = Policy()


def call(tool: str = "hub:push", server: str = "hub", caller: str = "ann", **facts: Any) -> dict[str, Any]:
    """Return a record of a call that succeeded."""
    who = {"caller": {"id": caller}} if caller else {}
    return {"kind": "call", "tool": tool, "binding": "mcp", "backend": server, **who, "outcome": "ok", **facts}


def effect(rules: list[Any], tool: str, server: str, caller: str, args: Any = None) -> str:
    """Return what a policy of nothing but these rules says."""
    policy = Policy.from_dict({"default": "deny", "rules": rules})
    made = ToolCall(tool, args or {}, origin=Origin(caller=Caller(id=caller)))
    return policy.decide(tool_at(tool, f"mcp:{server}"), made).effect


IDS = st.sampled_from(["a:x", "a:y", "b:x", "b:[*]", "plain"])
USES = st.tuples(IDS, st.sampled_from(["a", "b", "a*"]), st.sampled_from(["", "ann", "bob", "*", "a?n"]))


@given(st.lists(USES.filter(lambda use: "[" not in use[0]), min_size=1))
def test_what_was_done_is_allowed_and_nothing_else(uses: list[Any]) -> None:
    """Rules name each tool on its backend for its callers, whatever characters their names have."""
    rules = [rule for rule, _ in suggest([call(*use) for use in uses], OPEN).rules]
    for tool in ("a:x", "a:y", "b:x", "plain", "a:z"):
        for server in ("a", "b", "a*", "ab"):
            for caller in ("", "ann", "bob", "*", "a?n", "axn"):
                expected = "allow" if (tool, server, caller) in uses else "deny"
                assert effect(rules, tool, server, caller) == expected


def test_calls_alike_share_a_rule() -> None:
    """Tools of one backend that the same people call have one rule; versions count as one tool, and failures do not count."""
    records = [call(), call("hub:get:2.0.0"), call("hub:get"), call("hub:rm", outcome="policy_denied"), call(caller="")]
    assert suggest(records, OPEN).rules == [
        ({"effect": "allow", "tools": ["hub:get"], "backends": ["mcp:hub"], "callers": ["ann"]}, 2),
        ({"effect": "allow", "tools": ["hub:push"], "backends": ["mcp:hub"], "callers": ["", "ann"]}, 2),
    ]


def test_resources_and_prompts_are_named_with_what_they_are() -> None:
    """A rule for a resource allows no tool, no prompt and no version of the same name; with conditions, no other URI."""
    read = [call("hub:docs:+resource", args={"uri": "file:///a.md"}) for _ in range(4)]
    records = [*read, call("hub:review:+prompt"), call("hub:complete:+completion")]
    ((rule, _),) = suggest(records, OPEN).rules
    assert rule["tools"] == ["hub:complete:+completion", "hub:docs:+resource", "hub:review:+prompt"]
    for tool in rule["tools"]:
        assert effect([rule], tool, "hub", "ann") == "allow"
    for tool in ("hub:docs", "hub:docs:1.0", "hub:docs:+prompt", "hub:review", "hub:review:+resource", "hub:complete"):
        assert effect([rule], tool, "hub", "ann") == "deny"
    limited = [rule for rule, _ in suggest(read, OPEN, conditions=True).rules]
    assert effect(limited, "hub:docs:+resource", "hub", "ann", {"uri": "file:///a.md"}) == "allow"
    assert effect(limited, "hub:docs:+resource", "hub", "ann", {"uri": "file:///b.md"}) == "deny"


def test_arguments_are_limited_where_they_are_known() -> None:
    """Paths are limited to what is above them, few values to themselves; secrets, free text and what only some calls have are not."""
    args = [
        {
            "path": f"/srv/data/{n}/a.txt",
            "to": "ann" if n % 2 else "bob",
            "text": str(n),
            "key": f"[{REDACTED}]",
            "n": 1,
        }
        for n in range(6)
    ]
    args[0]["new"] = "x"
    found = suggest([call(args=each) for each in args], OPEN, conditions=True)
    ((rule, count),) = found.rules
    assert (rule["when"], count) == (
        {"n": {"in": [1]}, "path": {"path_under": "/srv/data"}, "to": {"in": ["bob", "ann"]}},
        6,
    )
    assert [effect([rule], "hub:push", "hub", "ann", each) for each in args] == ["allow"] * 6
    assert effect([rule], "hub:push", "hub", "ann", {**args[1], "path": "/srv/data/../x"}) == "deny"
    assert "when" not in suggest([call(args=each) for each in args], OPEN).rules[0][0]


def test_arguments_that_are_not_all_in_the_log_limit_nothing() -> None:
    """Some records have a digest only, or were cut; a path at the root limits nothing."""
    for other in ({"args_digest": "x"}, {"args": {"left_out": "9999 bytes"}}):
        found = suggest([call(args={"path": "/srv/a"}), call(**other)], OPEN, conditions=True)
        assert ["when" in rule for rule, _ in found.rules] == [False]
    for path in ("/etc", "/srv/../x"):
        found = suggest([call(args={"path": path})] * 4, OPEN, conditions=True)
        assert ["path_under" in rule.get("when", {}).get("path", {}) for rule, _ in found.rules] == [False]


def test_what_a_rule_decides_stays() -> None:
    """A call that a rule allows needs no other; one that is denied or asked about is named and left so."""
    policy = Policy.from_dict(
        {
            "rules": [
                {"effect": "allow", "tools": ["hub:get"], "roles": ["reader"]},
                {"effect": "ask", "tools": ["hub:rm"], "name": "careful"},
            ]
        }
    )
    records = [call("hub:get", caller="ann") | {"caller": {"id": "ann", "roles": ["reader"]}}, call("hub:rm"), {}]
    found = suggest([*records, {"kind": "call", "outcome": "ok", "tool": "x"}], policy)
    assert (found.rules, found.refused, found.skipped) == ([], [("hub:rm", "careful")], 1)


def test_runs_get_rules_where_they_are_denied_by_default() -> None:
    """Code is named by its language, but not where all runs are allowed anyway."""
    code = {"kind": "code", "outcome": "ok", "details": {"language": "python"}, "caller": {"id": "ann"}}
    chain = {"kind": "chain", "outcome": "ok"}
    assert suggest([code, chain], OPEN).rules == []
    rules = [{"effect": "deny", "runs": ["chain"], "name": "no chains"}]
    found = suggest([code, code, chain], Policy.from_dict({"default_runs": "deny", "rules": rules}))
    rule = {"effect": "allow", "runs": ["code"], "languages": ["python"], "callers": ["ann"]}
    assert (found.rules, found.refused) == ([(rule, 2)], [("a chain", "no chains")])


def test_a_rule_by_arguments_is_not_widened() -> None:
    """Where the log does not have the arguments, a rule without conditions would allow more than was done."""
    rules = [{"effect": "allow", "tools": ["hub:*"], "when": {"path": {"path_under": "/srv"}}, "name": "work"}]
    policy = Policy.from_dict({"default": "deny", "rules": rules})
    for more in ({}, {"args": {"left_out": "9 bytes"}}, {"args": {"path": "/srv/a", "key": REDACTED}}):
        found = suggest([call(**more)], policy, conditions=True)
        assert (found.rules, found.unclear) == ([], [("hub:push", "work")])
    found = suggest([call(args={"path": "/srv/a"}), call("other:x", "other")], policy)
    assert ([rule["tools"] for rule, _ in found.rules], found.unclear) == ([["other:x"]], [])
