"""Rules about runs hold on every path on which code, workflows, chains and skills begin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate, Policy, Rule
from toolexec.errors import (
    ApprovalDeniedError,
    ApprovalRequiredError,
    ConfigurationError,
    HandlerError,
    PolicyError,
    RateLimitedError,
)
from toolexec.model.origin import ApprovalRequest, Caller, Origin, acting
from toolexec.run.code_shares import CodeShares
from toolexec.run.layers.approval import Approval

SKILL = """+++
name = "double"
description = "Doubles a number."
+++
return 2
"""
GUEST, ADMIN = Caller(id="guest-7", roles=("guest",)), Caller(id="ann", roles=("admin",))


async def stream(ex: Exec) -> None:
    async for _ in ex.stream_code("1"):
        pass


async def session(ex: Exec) -> None:
    async with ex.session() as opened:
        await opened.execute_code("1")


async def skill(ex: Exec) -> None:
    tool = ex.add_skill(SKILL)
    (await ex.run_tool(tool.id)).raise_for_error()


RUNS: dict[str, tuple[str, Callable[[Exec], Awaitable[Any]]]] = {
    "code": ("code", lambda ex: ex.execute_code("1")),
    "code, durable": ("code", lambda ex: ex.execute_code("1", durable="a")),
    "stream": ("code", stream),
    "session": ("code", session),
    "workflow": ("workflow", lambda ex: ex.run_workflow("return 1")),
    "workflow, durable": ("workflow", lambda ex: ex.run_workflow("return 1", durable="b")),
    "workflow as code": ("workflow", lambda ex: ex.execute_code("return 1", language="workflow")),
    "workflow by its alias": ("workflow", lambda ex: ex.execute_code("return 1", language="dsl")),
    "chain": ("chain", lambda ex: ex.run_chain([{"tool": "shop:price"}])),
    "chain, durable": ("chain", lambda ex: ex.run_chain([{"tool": "shop:price"}], durable="c")),
}


def make(rules: list[Rule], tmp_path: Path, ask: Any = None, **more: Any) -> Exec:
    policy = Policy(rules, **more)
    gate = Gate(policy=policy, approval=Approval(policy.decide, ask=ask, timeout=5))
    ex = Exec(gate=gate, journal=tmp_path / "runs.db")
    ex.add(lambda: 4.5, "shop:price")
    return ex


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_that_a_rule_denies_does_not_begin(name: str, tmp_path: Path) -> None:
    """A denied caller gets a PolicyError with the rule's reason; any other one runs."""
    kind, run = RUNS[name]
    async with make([Rule("deny", runs=kind, roles="guest", reason="guests may only call")], tmp_path) as ex:
        with acting(Origin(caller=GUEST)), pytest.raises(PolicyError, match="guests may only call"):
            await run(ex)
        with acting(Origin(caller=ADMIN)):
            await run(ex)


@pytest.mark.parametrize("name", RUNS)
async def test_a_rule_about_other_runs_or_tools_changes_nothing(name: str, tmp_path: Path) -> None:
    """Rules of another kind of run, and rules about tools with the names of runs, match no run."""
    kind, run = RUNS[name]
    others = [each for each in ("code", "workflow", "chain", "skill") if each != kind]
    names = ["execute_code", "run_workflow", "run_chain"]
    async with make([Rule("deny", runs=others), Rule("deny", tools=names)], tmp_path) as ex:
        await run(ex)


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_is_approved_as_a_whole(name: str, tmp_path: Path) -> None:
    """The approver is shown what would run; each answer is for one run."""
    kind, run = RUNS[name]
    asked: list[ApprovalRequest] = []
    answers = iter(["no", "session"])

    def ask(request: ApprovalRequest) -> Any:
        asked.append(request)
        return next(answers)

    async with make([Rule("ask", runs=kind)], tmp_path, ask) as ex:
        with pytest.raises(ApprovalDeniedError):
            await run(ex)
        await run(ex)
    assert len(asked) == 2
    shown = asked[0].args
    assert "shop:price" in str(shown["steps"]) if kind == "chain" else "1" in str(shown["code"])


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_without_an_approver_is_refused(name: str, tmp_path: Path) -> None:
    """Where no approver can be asked, nothing runs."""
    kind, run = RUNS[name]
    async with make([Rule("ask", runs=kind)], tmp_path) as ex:
        with pytest.raises(ApprovalRequiredError):
            await run(ex)


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_of_an_exec_without_a_gate_of_its_own_begins(name: str, tmp_path: Path) -> None:
    """The gate that every Exec has decides on no run."""
    async with Exec(journal=tmp_path / "runs.db") as ex:
        ex.add(lambda: 4.5, "shop:price")
        await RUNS[name][1](ex)


async def test_only_some_may_run_anything(tmp_path: Path) -> None:
    """With default_runs, rules that allow name those who may."""
    async with make([Rule("allow", runs="code", roles="admin")], tmp_path, default_runs="deny") as ex:
        with acting(Origin(caller=GUEST)):
            with pytest.raises(PolicyError):
                await ex.execute_code("1")
            assert (await ex.run_tool("shop:price")).value == 4.5
        with acting(Origin(caller=ADMIN)):
            assert (await ex.execute_code("1")).value == 1
            with pytest.raises(PolicyError):
                await ex.run_workflow("return 1")


async def test_a_rule_holds_for_the_profile_in_force(tmp_path: Path) -> None:
    """The profile is that of the options where a run names none, and of a session where it is in one."""
    async with make([Rule("deny", profiles="standard")], tmp_path) as ex:
        for profile in ("", "standard", "wasm"):
            with pytest.raises(PolicyError, match="code in the profile standard"):
                await ex.execute_code("1", profile=profile)
        await ex.execute_code("1", profile="hardened")
        await ex.run_workflow("return 1")
        async with ex.session(profile="hardened") as opened:
            assert (await opened.execute_code("1", profile="standard")).ok
    async with make([Rule("deny", profiles="hardened")], tmp_path) as ex:
        with pytest.raises(PolicyError):
            async with ex.session(profile="hardened"):
                pass


@pytest.mark.parametrize("spelling", ["javascript", "js", "JS", "typescript", "ts", "TSX"])
async def test_a_rule_holds_for_a_language_however_it_is_spelled(spelling: str, tmp_path: Path) -> None:
    """Another name of a language, or its typed form, does not lead around the rule."""
    async with make([Rule("deny", languages="js", reason="python only")], tmp_path) as ex:
        for run in (
            ex.execute_code("return 1", language=spelling),
            ex.execute_code("return 1", language=spelling, durable="a"),
            anext(ex.stream_code("return 1", language=spelling)),
            ex.session(language=spelling).__aenter__(),
        ):
            with pytest.raises(PolicyError, match="javascript code in the profile standard: python only"):
                await run
        assert (await ex.execute_code("return 1")).value == 1
        assert (await ex.run_workflow("return 1")).value == 1


async def test_a_rule_holds_for_the_language_in_force(tmp_path: Path) -> None:
    """The language is the default one where a run names none, and a session's run is in that of the session."""
    denied = [Rule("deny", languages="python")]
    async with make(denied, tmp_path) as ex:
        for language in ("", "py", "Python", "python-science"):
            with pytest.raises(PolicyError):
                await ex.execute_code("1", language=language)
    async with make([Rule("allow", languages="python", profiles="standard")], tmp_path, default_runs="deny") as ex:
        assert (await ex.execute_code("1")).value == 1
        with pytest.raises(PolicyError):
            await ex.execute_code("1", language="bash")
        with pytest.raises(PolicyError):
            await ex.execute_code("1", profile="hardened")
        async with ex.session() as opened:
            assert (await opened.execute_code("1")).value == 1
            with pytest.raises(PolicyError):
                await opened.execute_code("1", language="bash")


async def test_the_default_language_of_an_exec_counts(tmp_path: Path) -> None:
    """A run that names no language is decided on as what it will run as."""
    policy = Policy([Rule("deny", languages="javascript")])
    async with Exec(gate=Gate(policy=policy), default_language="js") as ex:
        with pytest.raises(PolicyError):
            await ex.execute_code("return 1")


def test_languages_of_plugins_can_be_named() -> None:
    """A language that no sandbox of toolexec speaks is one of a plugin."""
    assert Rule("deny", languages=["Ruby", "java", "golang"]).languages == ("ruby", "java", "go")


async def test_a_skill_is_a_run_of_its_own_kind(tmp_path: Path) -> None:
    """A caller who may not write workflows may still call skills, unless a rule denies skills."""
    async with make([Rule("deny", runs="workflow")], tmp_path) as ex:
        await skill(ex)
    async with make([Rule("deny", runs="skill")], tmp_path) as ex:
        with pytest.raises(HandlerError) as caught:
            await skill(ex)
        assert isinstance(caught.value.__cause__, PolicyError)


async def test_a_refused_durable_run_leaves_no_run(tmp_path: Path) -> None:
    """Nothing is written down that would be tried again later."""
    async with make([Rule("deny", runs="chain")], tmp_path) as ex:
        with pytest.raises(PolicyError):
            await ex.run_chain([{"tool": "shop:price"}], durable="a")
        assert await ex.runs.list() == []


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"runs": "chains"}, "did you mean chain"),
        ({"profiles": "hardend"}, "did you mean hardened"),
        ({"profiles": "wasm"}, "profiles of a rule"),
        ({"runs": "code", "tools": "a:b"}, "write two rules"),
        ({"runs": "code", "when": {"a": 1}}, "write two rules"),
        ({"profiles": "dev", "destructive": True}, "write two rules"),
        ({"runs": "chain", "profiles": "dev"}, "profiles of a rule are for code"),
        ({"runs": ["chain", "skill"], "languages": "go"}, "languages of a rule are for code"),
        ({"languages": "pyton"}, "did you mean python"),
        ({"languages": ""}, "languages of a rule cannot be ''; use python"),
        ({"languages": "dsl"}, "use runs = workflow"),
        ({"languages": "go", "tags": "x"}, "cannot have both languages and tags"),
    ],
)
def test_rules_about_runs_that_make_no_sense(fields: dict[str, Any], message: str) -> None:
    """Refuses a rule that would never match, or not what it looks like."""
    with pytest.raises(ConfigurationError, match=message):
        Rule("deny", **fields)


async def test_one_caller_does_not_take_the_share_of_another() -> None:
    """A caller whose runs fill its share is refused with a time to wait, and another one runs."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        begun.set()
        await go.wait()

    async with Exec(gate=Gate(code_shares=CodeShares(1))) as ex:
        ex.add(wait, "test:wait")
        with acting(Origin(caller=GUEST)):
            first = asyncio.create_task(ex.execute_code("tools.test.wait()"))
            await begun.wait()
            with pytest.raises(RateLimitedError) as caught:
                await ex.execute_code("1")
            assert caught.value.retry_after
            assert (await ex.run_workflow("return 1")).value == 1
        with acting(Origin(caller=ADMIN)):
            assert (await ex.execute_code("1")).value == 1
        go.set()
        assert (await first).ok
        with acting(Origin(caller=GUEST)):
            assert (await ex.execute_code("1")).value == 1
            async with ex.session() as opened:
                assert (await opened.execute_code("1")).value == 1
                with pytest.raises(RateLimitedError):
                    await ex.execute_code("1")
