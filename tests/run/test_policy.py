"""Policy: which rules match, which of them counts, what is hidden, and how rules are read."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from toolexec.discovery.index import Registered
from toolexec.errors import ConfigurationError
from toolexec.model import LocalBinding, MCPBinding, ProviderBinding, Tool, ToolAnnotations, ToolCall
from toolexec.model.origin import Caller, Origin
from toolexec.run.policy import Policy, Rule, Verdict

READS = ToolAnnotations(read_only=True)
WRITES = ToolAnnotations(destructive=False)
DESTROYS = ToolAnnotations(destructive=True)


def local(tool_id: str = "math:add", **parts: Any) -> Registered:
    """A tool of this process."""
    binding = LocalBinding(tool_id)
    return Registered(_tool(tool_id, **parts), (binding,), binding)


def remote(tool_id: str = "git:push", **parts: Any) -> Registered:
    """A tool of the MCP server `hub`."""
    binding = MCPBinding("hub", tool_id)
    return Registered(_tool(tool_id, **parts), (binding,), binding)


def _tool(tool_id: str, **parts: Any) -> Tool:
    namespace, name, version = (["", *tool_id.split(":")] if ":" not in tool_id else [*tool_id.split(":"), ""])[:3]
    return Tool(name=name, namespace=namespace, version=version, input_schema={"type": "object"}, **parts)


def call(args: Any = None, **caller: Any) -> ToolCall:
    """A call of anything."""
    return ToolCall("any", args, origin=Origin(caller=Caller(**caller)))


def decide(policy: Policy, entry: Registered, args: Any = None, **caller: Any) -> str:
    """The effect."""
    return policy.decide(entry, call(args, **caller)).effect


def matches(entry: Registered, args: Any = None, caller: Mapping[str, Any] | None = None, **matchers: Any) -> bool:
    """Return whether a deny rule with these matchers denies."""
    policy = Policy([Rule("deny", **matchers)], remote_destructive="allow")
    return decide(policy, entry, args, **(caller or {})) == "deny"


class TestMatchers:
    """What a rule looks at."""

    @pytest.mark.parametrize(
        ("pattern", "tool_id", "expected"),
        [
            ("math:add", "math:add", True),
            ("math:*", "math:add", True),
            ("*", "math:add", True),
            ("Math:*", "math:add", False),
            ("add", "math:add", False),
            ("*:add", "math:add", True),
            ("math:add", "math:add:1.0.0", True),
            ("math:a??", "math:add:1.0.0", True),
            ("math:add:1.*", "math:add:1.0.0", True),
            ("math:add:2.*", "math:add:1.0.0", False),
            ("math:[ab]dd", "math:add", True),
        ],
    )
    def test_tools(self, pattern: str, tool_id: str, expected: bool) -> None:
        """Patterns are case-sensitive, and one without a version means all versions."""
        assert matches(local(tool_id), tools=pattern) is expected

    def test_namespaces(self) -> None:
        """Patterns, and the empty one for tools without a namespace."""
        assert matches(local("math:add"), namespaces=["git", "ma*"])
        assert not matches(local("math:add"), namespaces="git")
        plain = Registered(Tool(name="t", input_schema={}), (LocalBinding("t"),), LocalBinding("t"))
        assert matches(plain, namespaces="")

    def test_tags(self) -> None:
        """One of them is enough, and they are normalised as a tool's are."""
        assert matches(local(tags=["Old Ways"]), tags=["x", "OLD WAYS"])
        assert not matches(local(tags=["new"]), tags=["old"])

    @pytest.mark.parametrize(
        ("hints", "matcher", "expected"),
        [
            (ToolAnnotations(), {"destructive": True}, True),
            (READS, {"destructive": True}, False),
            (ToolAnnotations(read_only=True, destructive=True), {"destructive": True}, True),
            (WRITES, {"destructive": False}, True),
            (READS, {"read_only": True}, True),
            (WRITES, {"read_only": True}, False),
            (ToolAnnotations(idempotent=True), {"idempotent": True}, True),
            (ToolAnnotations(), {"open_world": True}, True),
            (ToolAnnotations(open_world=False), {"open_world": True}, False),
        ],
    )
    def test_hints(self, hints: ToolAnnotations, matcher: dict[str, bool], expected: bool) -> None:
        """Annotations count as a caller must read them."""
        assert matches(local(annotations=hints), **matcher) is expected

    @pytest.mark.parametrize(
        ("pattern", "expected"), [("mcp", True), ("hub", True), ("h*", True), ("mcp:h?b", True), ("local", False)]
    )
    def test_backends(self, pattern: str, expected: bool) -> None:
        """By kind, name, or both."""
        assert matches(remote(), backends=pattern) is expected

    def test_the_backend_that_is_used_counts(self) -> None:
        """Of several backends it is the one that the call goes to."""
        here, there = LocalBinding("t"), ProviderBinding("hub", "t")
        entry = Registered(_tool("math:add"), (there, here), here)
        assert matches(entry, backends="local")
        assert not matches(entry, backends="hub")

    def test_callers(self) -> None:
        """By ID, by one of their roles, by one of their scopes."""
        assert matches(local(), caller={"id": "guest-1"}, callers="guest-*")
        assert not matches(local(), caller={"id": "ann"}, callers="guest-*")
        assert matches(local(), callers="")
        assert not matches(local(), callers="?*")
        assert matches(local(), caller={"roles": ("a", "b")}, roles=["b", "c"])
        assert not matches(local(), roles="*")
        assert matches(local(), caller={"scopes": ("tools:read",)}, scopes="tools:*")

    def test_all_matchers_must_match(self) -> None:
        """Two matchers of which one fails do not match."""
        assert matches(local(), tools="math:*", namespaces="math")
        assert not matches(local(), tools="math:*", namespaces="git")
        assert not matches(local(), {"a": 1}, tools="math:*", when={"a": 2})


class TestVerdicts:
    """Which rule counts."""

    def test_the_strictest_wins_in_any_order(self) -> None:
        """Deny before ask before allow; the first of its kind is named."""
        rules = [
            Rule("allow", name="yes"),
            Rule("ask", name="well"),
            Rule("deny", name="no", reason="never"),
            Rule("deny", name="no as well"),
        ]
        random.Random(5).shuffle(rules)
        verdict = Policy(rules).decide(local(), call())
        first = next(rule for rule in rules if rule.effect == "deny")
        assert verdict == Verdict(effect="deny", rule=first.name, reason=first.reason)
        assert decide(Policy(rules[:2]), local()) == max(
            (r.effect for r in rules[:2]), key="allow ask deny".split().index
        )

    def test_the_default(self) -> None:
        """The default counts where no rule matches, and only there."""
        assert decide(Policy(), local()) == "allow"
        strict = Policy([Rule("allow", tools="math:add")], default="deny")
        assert decide(strict, local()) == "allow"
        assert strict.decide(local("math:sub"), call()) == Verdict(
            effect="deny", rule="default", reason="no rule allows it"
        )
        assert decide(Policy(default="ask"), local()) == "ask"

    def test_unnamed_rules_have_numbers(self) -> None:
        """A verdict says which rule it was."""
        assert Policy([Rule("allow"), Rule("deny")]).decide(local(), call()).rule == "rule 2"

    @pytest.mark.parametrize("setting", ["allow", "ask", "deny"])
    @pytest.mark.parametrize(
        "hints", [None, READS, WRITES, DESTROYS, ToolAnnotations(read_only=True, destructive=True)]
    )
    def test_destructive_tools_of_remote_backends(self, setting: Any, hints: ToolAnnotations | None) -> None:
        """Destructive tools of remote backends get the configured effect, other tools and local ones do not."""
        policy = Policy(remote_destructive=setting)
        harmless = hints in (READS, WRITES)
        assert decide(policy, remote(annotations=hints)) == ("allow" if harmless else setting)
        assert decide(policy, local(annotations=hints)) == "allow"

    @pytest.mark.parametrize(
        ("rules", "setting", "expected"),
        [
            ([Rule("allow")], "ask", "ask"),
            ([Rule("allow", tools="*")], "ask", "ask"),
            ([Rule("allow", backends=["*", "hub"])], "ask", "ask"),
            ([Rule("allow", callers="ann")], "ask", "ask"),
            ([Rule("allow", open_world=True)], "deny", "deny"),
            ([Rule("allow", tools="git:*")], "ask", "allow"),
            ([Rule("allow", tools="git:push")], "deny", "allow"),
            ([Rule("allow", namespaces="git")], "ask", "allow"),
            ([Rule("allow", backends="hub")], "ask", "allow"),
            ([Rule("allow", tags="safe")], "ask", "allow"),
            ([Rule("allow", destructive=True)], "ask", "allow"),
            ([Rule("allow", tools="git:push"), Rule("ask")], "ask", "ask"),
            ([Rule("allow", tools="git:push"), Rule("deny")], "ask", "deny"),
            ([Rule("ask", tools="git:push")], "deny", "ask"),
            ([Rule("ask")], "deny", "deny"),
            ([Rule("allow", tools="git:push", when={"dry": True})], "ask", "ask"),
        ],
    )
    def test_rules_beside_the_one_for_remote_backends(self, rules: list[Rule], setting: Any, expected: str) -> None:
        """A rule that says which tools it means takes its place, never that of a stricter rule."""
        policy = Policy(rules, remote_destructive=setting)
        assert decide(policy, remote(tags=["safe"]), id="ann") == expected

    def test_the_stricter_of_default_and_remote(self) -> None:
        """Neither weakens the other."""
        assert decide(Policy(default="deny"), remote()) == "deny"
        assert decide(Policy(default="ask", remote_destructive="deny"), remote()) == "deny"
        assert decide(Policy(default="deny", remote_destructive="allow"), remote()) == "deny"


class TestVisibility:
    """Which tools are hidden."""

    @pytest.mark.parametrize(
        ("policy", "expected"),
        [
            (Policy(), True),
            (Policy([Rule("deny")]), False),
            (Policy([Rule("deny", when={"a": 1})]), True),
            (Policy([Rule("ask")]), True),
            (Policy([Rule("deny", callers="bob")]), True),
            (Policy([Rule("deny", callers="ann")]), False),
            (Policy(default="deny"), False),
            (Policy(default="ask"), True),
            (Policy([Rule("deny", when={"a": 1})], default="deny"), False),
            (Policy([Rule("allow", when={"a": 1})], default="deny"), True),
            (Policy([Rule("ask", when={"a": 1})], default="deny"), True),
            (Policy([Rule("allow", tools="other")], default="deny"), False),
            (Policy(remote_destructive="deny"), False),
            (Policy([Rule("allow", callers="ann")], remote_destructive="deny"), False),
            (Policy([Rule("allow", tools="git:push", when={"a": 1})], remote_destructive="deny"), True),
            (Policy([Rule("allow", tools="git:push"), Rule("deny")]), False),
        ],
    )
    def test_what_no_arguments_could_allow_is_hidden(self, policy: Policy, expected: bool) -> None:
        """A tool is shown if and only if some arguments may let the caller call it or ask to."""
        assert policy.shows(remote(), Origin(caller=Caller(id="ann"))) is expected


@pytest.mark.full
def test_nothing_that_can_be_called_is_hidden_and_nothing_hidden_is_called() -> None:
    """Random policies: a hidden tool is denied for all arguments, and the strictest rule that matches counts."""
    chance = random.Random(17)
    arguments = [{}, {"a": 1}, {"a": 2}, {"a": "x"}, {"b": 1}]
    for _ in range(2000):
        rules = [
            Rule(
                chance.choice(["allow", "ask", "deny"]),  # type: ignore[arg-type]
                tools=chance.choice([(), "git:*", "math:*"]),
                callers=chance.choice([(), "ann", "bob"]),
                when=chance.choice([{}, {"a": 1}, {"a": {"above": 1}}, {"b": {"exists": False}}]),
            )
            for _ in range(chance.randrange(5))
        ]
        effects: list[Any] = ["allow", "ask", "deny"]
        policy = Policy(rules, default=chance.choice(effects), remote_destructive=chance.choice(effects))
        for entry in (remote(), local()):
            verdicts = [decide(policy, entry, args, id="ann") for args in arguments]
            if set(verdicts) != {"deny"}:
                assert policy.shows(entry, Origin(caller=Caller(id="ann")))
            for args, verdict in zip(arguments, verdicts, strict=True):
                alone = [rule.effect for rule in rules if rule.concerns(entry, Caller(id="ann")) and rule.applies(args)]
                if "deny" in alone:
                    assert verdict == "deny"
                elif "ask" in alone:
                    assert verdict != "allow"
                elif entry.binding.kind == "local":
                    assert verdict == ("allow" if alone else policy.default)


class TestMemory:
    """Verdicts are kept, and never for too long."""

    def test_a_changed_tool_is_judged_again(self) -> None:
        """A new definition under the same ID gets its own verdict."""
        policy = Policy([Rule("deny", tags="bad")])
        assert decide(policy, local(tags=["good"])) == "allow"
        assert decide(policy, local(tags=["bad"])) == "deny"

    def test_callers_are_kept_apart(self) -> None:
        """Roles and scopes do not mix callers, whatever their names."""
        policy = Policy([Rule("deny", roles="x"), Rule("ask", scopes="x"), Rule("deny", callers="x")])
        entry = local()
        assert decide(policy, entry, scopes=("x",)) == "ask"
        assert decide(policy, entry, roles=("x",)) == "deny"
        assert decide(policy, entry, id="x") == "deny"
        assert decide(policy, entry) == "allow"
        assert decide(policy, entry, scopes=("x",)) == "ask"

    def test_many_callers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However many there are, the verdicts stay right, and what is kept stays small."""
        monkeypatch.setattr("toolexec.run.policy._MAX_PLANS", 50)
        policy = Policy([Rule("deny", callers="*[13579]")])
        entry = local()
        for number in range(300):
            assert decide(policy, entry, id=str(number)) == ("deny" if number % 2 else "allow")
        assert policy._plans <= 50
        assert sum(len(tool.plans) for tool in policy._tools.values()) <= 50


class TestReading:
    """Rules from configuration."""

    def test_a_whole_policy(self) -> None:
        """A whole policy equals one made of Rules."""
        policy = Policy.from_dict(
            {
                "default": "deny",
                "remote_destructive": "allow",
                "rules": [
                    {"effect": "allow", "tools": ["math:*"], "name": "sums", "reason": "harmless"},
                    {"effect": "ask", "namespaces": "git", "when": {"branch": "main"}},
                ],
            }
        )
        assert policy.rules[0] == Rule("allow", tools="math:*", name="sums", reason="harmless")
        assert decide(policy, local()) == "allow"
        assert decide(policy, remote(), {"branch": "main"}) == "ask"
        assert decide(policy, remote()) == "deny"
        assert Policy.from_dict({}).rules == ()

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"efect": "deny"}, "did you mean effect"),
            ({"effect": "deny", "tool": "x"}, "did you mean tools"),
            ({"effect": "deny", "conditions": []}, "unknown key 'conditions'; the keys are"),
            ({"effect": "deny", "zzz": []}, "the keys are effect, tools"),
            ({"tools": "x"}, "needs an effect: allow, deny, ask"),
            ({"effect": "denny"}, "did you mean deny"),
            ({"effect": 7}, "use allow, deny, ask"),
            ({"effect": ["deny"]}, "cannot be"),
            ({"effect": "deny", "tools": 7}, "tools of a rule must be a list of strings"),
            ({"effect": "deny", "tools": [7]}, "tools of a rule must be a list of strings"),
            ({"effect": "deny", "tools": []}, "tools of a rule is empty"),
            ({"effect": "deny", "tags": "###"}, "'###' in the tags of a rule is not a tag"),
            ({"effect": "deny", "read_only": "yes"}, "read_only of a rule must be true or false"),
            ({"effect": "deny", "reason": 7}, "reason of a rule must be a text"),
            ({"effect": "deny", "when": []}, "when must be a mapping"),
            ([], "a rule must be a mapping"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, data: Any, message: str) -> None:
        """Each mistake is named, with the rule it is in."""
        with pytest.raises(ConfigurationError) as caught:
            Policy.from_dict({"rules": [{"effect": "allow"}, data]})
        assert str(caught.value).startswith("rule 2 of the policy: ")
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"rule": []}, "did you mean rules"),
            ({"rules": "deny"}, "must be a list"),
            (
                {"default": "denied"},
                "Policy: default must be one of allow, deny, ask, not 'denied'; did you mean deny?",
            ),
            ({"remote_destructive": True}, "Policy: remote_destructive must be one of allow, deny, ask, not True"),
            (7, "a policy must be a mapping"),
        ],
    )
    def test_a_policy_that_makes_no_sense(self, data: Any, message: str) -> None:
        """Refuses an invalid policy as a whole."""
        with pytest.raises(ConfigurationError) as caught:
            Policy.from_dict(data)
        assert message in str(caught.value)

    def test_rules_that_are_none(self) -> None:
        """Only Rules are rules."""
        with pytest.raises(ConfigurationError, match=r"Rule\.from_dict"):
            Policy([{"effect": "deny"}])  # type: ignore[list-item]
