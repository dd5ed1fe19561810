"""Skills as tools of an Exec."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Gate, Policy, Rule, Tool, tool
from toolexec.discovery.index import bulk
from toolexec.discovery.summary import Filters
from toolexec.errors import (
    ConfigurationError,
    ExecutionError,
    InputValidationError,
    OutputValidationError,
    ToolCallLimitError,
    ToolConflictError,
    ToolNotAllowedError,
    WorkflowCheckError,
    WorkflowSyntaxError,
)
from toolexec.model.binding import ProviderBinding
from toolexec.model.call import Progress
from toolexec.model.tool import ToolAnnotations
from toolexec.workflow.skill import Skill

SKILLS = Path(__file__).parents[2] / "examples" / "skills"


def text(name: str, body: str, front: str = "") -> str:
    """Return a skill."""
    return f'+++\nname = "{name}"\ndescription = "Does it"\n{front}+++\n{body}'


@tool("a:get", read_only=True, open_world=False)
async def get(n: int) -> dict[str, int]:
    """Gets a number."""
    return {"n": n}


@tool("a:put", idempotent=True, destructive=False)
async def put(n: int) -> int:
    """Puts a number."""
    return n


@tool("a:drop")
async def drop() -> None:
    """Drops everything."""


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with three tools."""
    async with Exec() as opened:
        for each in (get, put, drop):
            opened.add(each)
        yield opened


class TestCalls:
    """A skill is called as any tool."""

    async def test_on_every_path(self, ex: Exec) -> None:
        """Alone, in a chain, in code, in a workflow and in another skill."""
        ex.add_skill(text("one", 'input n: integer = 1\nx := run("a:get", {n: n})\nreturn x.n + 1'))
        ex.add_skill(text("two", 'return run("skill:one", {n: 10})'))
        assert (await ex.run_tool("skill:one", {"n": 4})).value == 5
        assert (await ex.run_chain([{"tool": "skill:one"}])).value == 2
        assert (await ex.execute_code("return tools.skill.one(n=2)")).value == 3
        assert (await ex.run_workflow('return run("skill:one")')).value == 2
        assert (await ex.run_tool("skill:two")).value == 11

    async def test_it_is_found_and_described(self, ex: Exec) -> None:
        """Its description and inputs are those of a tool."""
        ex.add_skill(text("triage", 'input n: integer "The issue"\nreturn n', 'tags = ["issues"]\n'))
        (found,) = await ex.search_tools("triage", limit=1)
        assert found.id == "skill:triage"
        assert (await ex.get_tool_doc("skill:triage")).to_dict()["tool"]["inputSchema"]["properties"]["n"] == {
            "type": "integer",
            "description": "The issue",
        }

    async def test_arguments_and_results_are_checked(self, ex: Exec) -> None:
        """By the declared inputs and the output schema."""
        ex.add_skill(text("one", "input n: integer\nreturn n", 'output_schema = {type = "string"}\n'))
        with pytest.raises(InputValidationError):
            await ex.run_tool("skill:one", {"n": "x"})
        assert isinstance((await ex.run_tool("skill:one", {"n": 1})).error, OutputValidationError)

    async def test_a_failure_points_at_its_line(self, ex: Exec) -> None:
        """The error is that of the tool, with the place in the skill and what it could not do."""
        ex.add_skill(text("one", '\nx := run("a:get", {n: 1})\nreturn x.m'))
        error = (await ex.run_tool("skill:one")).error
        assert isinstance(error, ExecutionError)
        assert "skill:one failed: the object has no member m" in str(error)
        assert (error.details["line"], error.details["source"], error.details["code"]) == (
            7,
            "return x.m",
            "code_error",
        )

    async def test_progress_and_prints_reach_the_caller(self, ex: Exec) -> None:
        """Each call of a tool is progress."""
        seen: list[Progress] = []
        ex.add_skill(text("one", 'print("begun")\nrun("a:get", {n: 1})\nrun("a:put", {n: 2})'))
        await ex.run_tool("skill:one", on_progress=seen.append)
        assert [(each.done, each.message) for each in seen] == [
            (0, "started"),
            (1, "a:get"),
            (2, "a:put"),
            (1, "completed"),
        ]


class TestWithoutCode:
    """A workflow needs no sandbox."""

    async def test_skills_and_workflows_run_where_code_is_switched_off(self) -> None:
        """Other code does not."""
        async with Exec(enable_code_execution=False, runtime_backends=[]) as ex:
            ex.add(get)
            ex.add_skill(text("one", 'return run("a:get", {n: 4}).n'))
            assert (await ex.run_tool("skill:one")).value == 4
            assert (await ex.run_workflow('return run("skill:one") + 1')).value == 5
            assert (await ex.execute_code("return 1 + 1", language="dsl")).value == 2
            with pytest.raises(ConfigurationError, match="switched off"):
                await ex.execute_code('return tools.run("skill:one", {})')
        with pytest.raises(ConfigurationError, match="closed"):
            await ex.run_workflow("return 1")


class TestLimits:
    """A skill keeps its own limits and its caller's."""

    async def test_the_cap_of_the_caller_counts_its_calls(self, ex: Exec) -> None:
        """The call of the skill is one, what it calls are others."""
        ex.add_skill(text("many", 'collect i in range(5) { run("a:put", {n: i}) }'))
        assert (await ex.execute_code("return tools.skill.many()", max_tool_calls=6)).value == [0, 1, 2, 3, 4]
        result = await ex.execute_code("return tools.skill.many()", max_tool_calls=5)
        assert result.error is not None
        assert "max tool calls (5) exceeded" in str(result.error)
        result = await ex.run_workflow('return run("skill:many")', max_tool_calls=5)
        assert "max tool calls (5) exceeded" in str(result.error)

    async def test_its_own_cap_holds_where_the_caller_allows_more(self, ex: Exec) -> None:
        """`max_tool_calls` of the front matter."""
        ex.add_skill(text("many", 'collect i in range(5) { run("a:put", {n: i}) }', "max_tool_calls = 4\n"))
        error = (await ex.run_tool("skill:many")).error
        assert error is not None
        assert isinstance(error.__cause__, ToolCallLimitError)

    async def test_its_steps_and_time_are_limited(self, ex: Exec) -> None:
        """`max_steps` and `timeout` of the front matter."""
        ex.add_skill(text("long", "for i in range(1000000) { i + 1 }", "max_steps = 1000\n"))
        ex.add_skill(text("late", 'retry 3 delay 60s { fail "no" }', "timeout = 0.05\n"))
        assert (await ex.run_tool("skill:long")).error.details["code"] == "limit_exceeded"  # type: ignore[union-attr]
        assert (await ex.run_tool("skill:late")).error.details["code"] == "code_timeout"  # type: ignore[union-attr]

    async def test_it_calls_what_it_may(self, ex: Exec) -> None:
        """The listed tools, or those that it names; its caller need not be allowed to call them."""
        ex.add_skill(text("named", 'return run("a:put", {n: 1})'))
        ex.add_skill(text("listed", 'return run("a:put", {n: 1})', 'allowed_tools = ["a:get"]\n'))
        ex.add_skill(text("computed", 'return run("a:" + "put", {n: 1})'))
        assert (await ex.execute_code("return tools.skill.named()", allowed_tools=["skill:named"])).value == 1
        for name in ("listed", "computed"):
            error = (await ex.run_tool(f"skill:{name}")).error
            assert error is not None
            assert error.details["code"] in {WorkflowCheckError.code, ToolNotAllowedError.code, "code_error"}

    async def test_the_gate_decides_each_of_its_calls(self) -> None:
        """A skill is not a way around a policy."""
        gate = Gate(policy=Policy([Rule(effect="deny", tools=["a:drop"])], default="allow"))
        async with Exec(gate=gate) as ex:
            ex.add(drop)
            ex.add_skill(text("one", 'run("a:drop")'))
            assert (await ex.run_tool("skill:one")).error is not None

    async def test_it_cannot_call_itself(self, ex: Exec) -> None:
        """Neither at once nor by way of another."""
        ex.add_skill(text("self", 'return run("skill:self")'))
        ex.add_skill(text("a", 'return run("skill:b")'))
        ex.add_skill(text("b", 'return run("skill:a")'))
        for name, path in (("self", "skill:self calls skill:self"), ("a", "skill:a calls skill:b calls skill:a")):
            assert f"must not call itself: {path}" in str((await ex.run_tool(f"skill:{name}")).error)
        ex.add_skill(text("twice", 'run("a:get", {n: 1})\nreturn run("a:get", {n: 2}).n'))
        ex.add_skill(text("calls", 'run("skill:twice")\nreturn run("skill:twice")'))
        assert (await ex.run_tool("skill:calls")).value == 2

    async def test_a_task_that_outlives_its_run_is_not_counted_in_it(self, ex: Exec) -> None:
        """The cap of a run ends with the run."""
        go, left = asyncio.Event(), list[asyncio.Task[Any]]()

        async def later() -> Any:
            await go.wait()
            return await ex.run_tool("skill:many")

        async def begin() -> None:
            left.append(asyncio.create_task(later()))

        ex.add(begin, "a:begin")
        ex.add_skill(text("many", 'collect i in range(5) { run("a:put", {n: i}) }'))
        assert (await ex.run_workflow('run("a:begin")', max_tool_calls=1)).ok
        go.set()
        assert (await left[0]).value == [0, 1, 2, 3, 4]


class TestAdding:
    """What is wrong is refused with nothing added."""

    async def test_hints_follow_from_the_tools_that_it_names(self, ex: Exec) -> None:
        """Nothing is assumed where a tool is not known; the front matter wins."""
        cases = {
            'run("a:get", {n: 1})': (True, True, False, False),
            'run("a:get", {n: 1})\nrun("a:put", {n: 1})': (False, True, False, True),
            'run("a:drop")': (False, False, True, True),
            'run("a:nothing")': (False, False, None, None),
            'run("a:" + "get")': (False, False, None, None),
        }
        for number, (body, expected) in enumerate(cases.items()):
            hints = ex.add_skill(text(f"s{number}", body)).annotations
            assert (hints.read_only, hints.idempotent, hints.destructive, hints.open_world) == expected, body
        tool = ex.add_skill(text("s9", 'run("a:drop")', "read_only = true\ndestructive = false\n"))
        assert tool.annotations == ToolAnnotations(read_only=True, destructive=False, open_world=True)

    async def test_hints_follow_tools_that_come_and_change(self, ex: Exec) -> None:
        """Hints are up to date, also those that follow from another skill."""
        ex.add_skill(text("inner", 'run("b:later")'))
        ex.add_skill(text("outer", 'run("skill:inner")'))
        ex.add_skill(text("fixed", 'run("b:later")', "read_only = true\ndestructive = false\n"))
        ex.add_skill(text("self", 'run("skill:self")'))

        async def found() -> list[str]:
            return sorted(each.id for each in await ex.search_tools("", 50, filters=Filters(read_only=True)))

        assert await found() == ["a:get", "skill:fixed"]
        binding = ProviderBinding("b", "later")

        def later(**hints: bool) -> Tool:
            return Tool(name="later", namespace="b", input_schema={}, annotations=ToolAnnotations(**hints))

        ex.add(later(read_only=True), binding=binding)
        assert await found() == ["a:get", "b:later", "skill:fixed", "skill:inner", "skill:outer"]
        doc = await ex.get_tool_doc("skill:outer")
        assert doc.to_dict()["tool"]["annotations"]["readOnlyHint"] is True
        bulk(ex.index).replace(later(destructive=True), binding)
        assert await found() == ["a:get", "skill:fixed"]
        hints = ex.index.find("skill:outer").tool.annotations  # type: ignore[union-attr]
        assert (hints.read_only, hints.destructive) == (False, True)
        ex.index.unregister("b:later")
        assert ex.index.find("skill:inner").tool.annotations == ToolAnnotations()  # type: ignore[union-attr]

    async def test_a_skill_that_was_taken_out_stays_out(self, ex: Exec) -> None:
        """A change of its tools does not bring it back."""
        ex.add_skill(text("one", 'run("b:later")'))
        ex.index.unregister("skill:one")
        ex.add(lambda: None, "b:later")
        assert ex.index.find("skill:one") is None

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            (text("x", "return ("), WorkflowSyntaxError),
            (text("x", "return y"), WorkflowCheckError),
            ("+++\n+++\n", ConfigurationError),
            ("/nowhere/x.workflow", ConfigurationError),
        ],
    )
    async def test_a_wrong_skill_is_refused(self, ex: Exec, given: str, error: type[Exception]) -> None:
        """Before anything is added."""
        before = len(ex.index)
        with pytest.raises(error):
            ex.add_skill(given)
        assert len(ex.index) == before

    async def test_a_name_is_taken_once(self, ex: Exec) -> None:
        """As that of any tool."""
        ex.add_skill(text("x", "return 1"))
        with pytest.raises(ToolConflictError):
            ex.add_skill(text("x", "input n: integer\nreturn n"))

    def test_without_a_loop(self) -> None:
        """The blocking twin adds skills, too; a Skill that was parsed will do."""
        with Exec().sync as ex:
            ex.add_skill(Skill.parse(text("x", "return 1")))
            assert ex.run_tool("skill:x").value == 1


async def test_the_example_skills_run_over_real_servers(tmp_path: Path) -> None:
    """All of them, over the servers for Git and the time."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    (tmp_path / "x.py").write_text("x = 1\n")
    for command in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "Add x"]):
        subprocess.run([*git, *command], check=True, timeout=60)
    for key, setting in (("user.name", "Ann"), ("user.email", "ann@example.com")):
        subprocess.run([*git, "config", key, setting], check=True, timeout=60)
    repo: dict[str, Any] = {"repo": str(tmp_path)}
    async with Exec(start_timeout=60) as ex:
        for name in ("git", "time"):
            (status,) = await ex.add_mcp(name, command=[sys.executable, "-m", f"mcp_server_{name}"])
            assert status.available, status.reason
        for path in SKILLS.glob("*.workflow"):
            ex.add_skill(path)

        async def value(name: str, **args: Any) -> Any:
            return (await ex.run_tool(f"skill:{name}", args)).raise_for_error().value

        (commit,) = await value("commits", **repo)
        assert (commit["author"], commit["subject"]) == ("Ann", "Add x")
        assert await value("contributors", **repo) == [{"author": "Ann", "commits": 1}]
        assert await value("release-notes", **repo) == "# Changes\n\n## Add\n- Add x"
        brief = await value("repository-brief", **repo)
        assert (brief["branch"], brief["is_clean"], brief["latest"]) == ("main", True, ["Add x"])
        assert await value("topic-branch", title="Faster x", **repo) == {"branch": "topic/faster-x", "is_new": True}
        (tmp_path / "x.py").write_text("x = 2\n")
        review = await value("review-changes", **repo)
        assert (review["files"], review["added"], review["removed"]) == (["x.py"], 1, 1)
        await value("careful-commit", files=["x.py"], message="Make x faster", **repo)
        assert [each["subject"] for each in await value("commits", **repo)] == ["Make x faster", "Add x"]
        clock = await value("world-clock", zones=["UTC"])
        assert [each["zone"] for each in clock] == ["UTC"]
        times = await value("meeting-times", time="09:00", participants={"ann": "UTC", "ken": "Asia/Tokyo"})
        assert times["outside_working_hours"] == ["ken"]
        assert set(await value("awake-now", people={"ann": "UTC"})) <= {"ann"}
