"""Approval: who is asked, what they get to see, what each answer means, and that what was approved is what runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Workshop

from toolexec.discovery.index import Registered
from toolexec.errors import (
    ApprovalDeniedError,
    ApprovalRequiredError,
    ConfigurationError,
    InputValidationError,
    PolicyError,
    ToolNotFoundError,
)
from toolexec.model import LocalBinding, Tool, ToolAnnotations, ToolCall
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Caller, Origin
from toolexec.model.redaction import Redactor
from toolexec.run import Resolver, Result
from toolexec.run.approvals import ApprovalMemory
from toolexec.run.layers.approval import Approval
from toolexec.run.policy import Policy, Rule
from toolexec.run.runner import ThreadRunner

ANY = {"type": "object"}
SHORT = 0.05
ASK = Policy([Rule("allow", tools="*:free"), Rule("ask", namespaces="git", reason="it is public", name="pushes")])


class Approvals:
    """A tool behind approval, and a person who answers what `answers` says."""

    def __init__(self, shop: Workshop, *answers: Any, decide: Any = ASK.decide, **settings: Any) -> None:
        self.answers = [*answers]
        self.asked: list[ApprovalRequest] = []
        self.ran: list[Any] = []
        self.shop = shop
        self.approval = Approval(decide, **settings)
        for name in ("push", "pull"):
            tool = Tool(name=name, namespace="git", input_schema=ANY, description=f"The {name}")
            shop.add_tool(tool, self._run)
        self.runner = self.approval.wrap(shop.runner(), Resolver(shop.index, shop.backends).resolve)

    async def _run(self, args: dict[str, Any]) -> str:
        self.ran.append(args)
        return "done"

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Answer with the next answer; what can be raised is, what can be called is awaited."""
        self.asked.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return await answer() if callable(answer) else answer

    def call(self, args: Any = None, tool_id: str = "git:push", **origin: Any) -> ToolCall:
        """Return a call of a caller that can be asked."""
        return ToolCall(tool_id, args, origin=Origin(**{"ask": self.ask, **origin}))

    async def run(self, args: Any = None, **call: Any) -> Result:
        """Make a call."""
        return await self.runner.run(self.call(args, **call))

    async def refused(self, args: Any = None, **call: Any) -> PolicyError:
        """The error of a call that is not made."""
        before = len(self.ran)
        with pytest.raises(PolicyError) as caught:
            await self.run(args, **call)
        assert len(self.ran) == before
        return caught.value


class TestAnswers:
    """What an answer means."""

    async def test_once(self, workshop: Workshop) -> None:
        """An answer of once is for one call."""
        approvals = Approvals(workshop, "once", "no")
        assert (await approvals.run({"a": 1})).value == "done"
        assert isinstance(await approvals.refused({"a": 1}), ApprovalDeniedError)
        assert approvals.ran == [{"a": 1}]

    @pytest.mark.parametrize(
        "answer", ["no", "", None, True, "ALWAYS", 7, ["once"], RuntimeError("x"), asyncio.CancelledError(), KeyError()]
    )
    async def test_everything_else_is_no(self, workshop: Workshop, answer: Any) -> None:
        """Whatever is answered or raised that is none of the answers: the call is not made."""
        error = await Approvals(workshop, answer).refused()
        assert isinstance(error, ApprovalDeniedError)
        assert (error.code, error.tool_id, error.op, error.retryable) == (
            "approval_denied",
            "git:push",
            "approval",
            False,
        )

    async def test_no_answer_in_time(self, workshop: Workshop) -> None:
        """A missing answer is a no, and the question is cancelled."""
        stopped: list[bool] = []

        async def forever() -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(True)

        error = await Approvals(workshop, forever, timeout=SHORT).refused()
        assert isinstance(error, ApprovalDeniedError)
        assert "nobody answered within 0.05 s" in str(error)
        await asyncio.sleep(0)
        assert stopped == [True]

    async def test_an_approver_that_does_not_stop(self, workshop: Workshop) -> None:
        """The approver's task is abandoned, and its later failure disturbs nothing."""
        go = asyncio.Event()

        async def stubborn() -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await go.wait()
                raise RuntimeError("too late") from None

        assert isinstance(await Approvals(workshop, stubborn, timeout=SHORT).refused(), ApprovalDeniedError)
        go.set()
        await asyncio.sleep(SHORT)

    async def test_nobody_to_ask(self, workshop: Workshop) -> None:
        """Raises another error, which says what would help."""
        error = await Approvals(workshop).refused(ask=None)
        assert isinstance(error, ApprovalRequiredError)
        assert error.details == {"rule": "pushes", "reason": "it is public"}
        assert "it is public" in str(error)
        unexplained = Approvals(Workshop(), decide=Policy([Rule("ask")]).decide)
        assert "rule 1" in str(await unexplained.refused(ask=None))

    async def test_the_callers_own_way_comes_first(self, workshop: Workshop) -> None:
        """The configured one is used where the caller has none; it may be a plain function."""
        asked: list[str] = []

        def configured(request: ApprovalRequest) -> ApprovalAnswer:
            asked.append(request.tool_id)
            return "once"

        approvals = Approvals(workshop, "once", ask=configured)
        await approvals.run()
        assert (len(approvals.asked), asked) == (1, [])
        await approvals.run(ask=None)
        assert (len(approvals.asked), asked) == (1, ["git:push"])

    async def test_what_needs_no_question(self, workshop: Workshop) -> None:
        """Allowed calls are made, denied ones raise, unknown ones fail as usual; no question is asked."""
        approvals = Approvals(workshop, decide=Policy([Rule("deny", tools="git:push")]).decide)
        assert (await approvals.run(tool_id="git:pull")).ok
        assert (await approvals.refused()).code == "policy_denied"
        with pytest.raises(ToolNotFoundError):
            await approvals.run(tool_id="git:nothing")
        assert approvals.asked == []

    async def test_being_cancelled(self, workshop: Workshop) -> None:
        """Cancellation passes through and stops the question; later calls are asked about as usual."""
        asking, stopped = asyncio.Event(), asyncio.Event()

        async def forever() -> Any:
            asking.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        approvals = Approvals(workshop, forever, "once")
        task = asyncio.create_task(approvals.run())
        await asking.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await stopped.wait()
        assert (await approvals.run()).ok
        assert len(approvals.ran) == 1

    async def test_streams(self, workshop: Workshop) -> None:
        """A stream is asked about at its first step."""
        approvals = Approvals(workshop, "once", "no")
        call = approvals.call()
        call.fallback = True
        events = [event async for event in approvals.runner.stream(call)]
        assert events[-1].data == "done"
        with pytest.raises(ApprovalDeniedError):
            await anext(approvals.runner.stream(call))
        call.tool_id, call.origin = "git:pull", Origin()
        with pytest.raises(ApprovalRequiredError):
            await anext(approvals.runner.stream(call))

    def test_calls_in_the_callers_thread(self, workshop: Workshop) -> None:
        """Calls that need a question go to the event loop, the others do not."""
        approvals = Approvals(workshop)
        workshop.add(lambda: 5, "math:free")

        def wait(work: Any) -> Any:
            raise AssertionError

        runner = approvals.runner
        assert isinstance(runner, ThreadRunner)
        result = runner.run_in_thread(ToolCall("math:free"), wait, 1)
        assert result is not None
        assert result.value == 5
        workshop.add(lambda: 5, "git:sync")
        assert not runner.runs_in_thread(ToolCall("git:sync"), 1)
        assert runner.run_in_thread(ToolCall("git:sync"), wait, 1) is None
        assert not runner.runs_in_thread(ToolCall("no such:"), 1)

    @pytest.mark.parametrize("timeout", [0, -1, float("nan")])
    def test_a_timeout_that_makes_no_sense(self, timeout: float) -> None:
        """Refuses an invalid timeout at the start."""
        with pytest.raises(ConfigurationError):
            Approval(ASK.decide, timeout=timeout)


class TestMemory:
    """Answers for longer than one call."""

    async def test_a_session(self, workshop: Workshop) -> None:
        """Further calls of the tool by the same caller in the same session pass, with any arguments and by any path."""
        approvals = Approvals(workshop, "session", "no", "no", "no", "no")
        ann = Caller(id="ann")
        await approvals.run({"a": 1}, session="s1", caller=ann)
        await approvals.run({"a": 2}, session="s1", caller=Caller(id="ann", roles=("x",)), path="code", ask=None)
        assert len(approvals.asked) == 1
        await approvals.refused(session="s2", caller=ann)
        await approvals.refused(session="s1", caller=Caller(id="bob"))
        await approvals.refused(session="s1", caller=Caller(id="ann", tenant="t"))
        await approvals.refused(session="s1", caller=ann, tool_id="git:pull")

    async def test_no_session(self, workshop: Workshop) -> None:
        """Without one, it is as long as the process runs."""
        approvals = Approvals(workshop, "session", "no")
        await approvals.run()
        await approvals.run()
        await approvals.refused(session="s1")

    async def test_always(self, workshop: Workshop, tmp_path: Path) -> None:
        """The answer holds in every session, and in the next process if there is a file."""
        path = tmp_path / "approvals.json"
        approvals = Approvals(workshop, "always", "no", remember=ApprovalMemory(path))
        await approvals.run(session="s1")
        await approvals.run(session="s2")
        assert len(approvals.asked) == 1
        later = Approvals(Workshop(), "no", remember=ApprovalMemory(path))
        await later.run(session="s3")
        await later.refused(caller=Caller(id="bob"))

    async def test_always_without_a_file(self, workshop: Workshop) -> None:
        """The answer lasts as long as the process."""
        approvals = Approvals(workshop, "always")
        await approvals.run(session="s1")
        await approvals.run(session="s2")

    async def test_always_with_a_file_that_fails(
        self, workshop: Workshop, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The call is made, and the answer lasts as long as the process; the log says so."""
        path = tmp_path / "approvals.json"
        approvals = Approvals(workshop, "always", remember=ApprovalMemory(path))
        path.mkdir()
        await approvals.run()
        await approvals.run()
        assert "until the end of this process only" in caplog.text

    async def test_a_changed_tool_is_asked_about_again(self, workshop: Workshop) -> None:
        """An approval is for the definition that was shown."""
        approvals = Approvals(workshop, "session", "no")
        await approvals.run()
        tool = workshop.index.get("git:push").tool
        workshop.index.replace(tool.replace(description="Now with force"), LocalBinding("git:push"))
        await approvals.refused()
        assert approvals.asked[-1].description == "Now with force"

    async def test_many_sessions(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only so many are remembered; the one that was used least recently is asked again."""
        monkeypatch.setattr("toolexec.run.layers.approval._MAX_SESSIONS", 2)
        approvals = Approvals(workshop, *["session"] * 3, "no")
        await approvals.run(session="a")
        await approvals.run(session="b")
        await approvals.run(session="a")
        await approvals.run(session="c")
        await approvals.run(session="a")
        await approvals.refused(session="b")


class TestManyAtOnce:
    """Several calls that need the same answer."""

    async def _all(self, approvals: Approvals, count: int, **call: Any) -> list[Any]:
        calls = [asyncio.create_task(approvals.run({"n": n}, **call)) for n in range(count)]
        return await asyncio.gather(*calls, return_exceptions=True)

    @pytest.mark.parametrize("answer", ["session", "always"])
    async def test_one_answer_for_all(self, workshop: Workshop, answer: str) -> None:
        """Calls that one answer covers are asked about once."""

        async def later() -> Any:
            await asyncio.sleep(0.01)
            return answer

        approvals = Approvals(workshop, later)
        done = await self._all(approvals, 20)
        assert all(result.ok for result in done)
        assert len(approvals.asked) == 1
        assert approvals.runner._lines == {}  # type: ignore[attr-defined]

    async def test_once_is_for_one(self, workshop: Workshop) -> None:
        """Each is asked about by itself, one after the other, until an answer covers the rest."""
        approvals = Approvals(workshop, "once", "no", "once", "session")
        done = await self._all(approvals, 6)
        assert [isinstance(one, ApprovalDeniedError) for one in done] == [False, True, False, False, False, False]
        assert [request.args["n"] for request in approvals.asked] == [0, 1, 2, 3]

    async def test_nobody_there(self, workshop: Workshop) -> None:
        """If one is not answered in time, those that wait behind it are not asked about either; later ones are."""

        async def forever() -> Any:
            await asyncio.Event().wait()

        approvals = Approvals(workshop, forever, "once", timeout=SHORT)
        done = await self._all(approvals, 5)
        assert [type(one) for one in done] == [ApprovalDeniedError] * 5
        assert len(approvals.asked) == 1
        assert (await approvals.run()).ok

    async def test_different_questions_do_not_wait(self, workshop: Workshop) -> None:
        """Callers and tools are asked about at the same time."""
        both = asyncio.Barrier(3)

        async def meet() -> Any:
            await both.wait()
            return "once"

        approvals = Approvals(workshop, meet, meet, meet)
        done = await asyncio.gather(
            approvals.run(),
            approvals.run(tool_id="git:pull"),
            approvals.run(caller=Caller(id="ann")),
            return_exceptions=True,
        )
        assert all(result.ok for result in done if isinstance(result, Result))
        assert len(approvals.ran) == 3


class TestWhatIsApproved:
    """What is shown is what runs."""

    async def test_later_changes_of_the_arguments_do_not_count(self, workshop: Workshop) -> None:
        """Neither the caller nor the approver can change them meanwhile."""
        args: dict[str, Any] = {"to": {"branch": "main"}, "files": ["a"]}

        async def tamper() -> Any:
            args["to"]["branch"] = "evil"
            args["files"].append("b")
            args["force"] = True
            approvals.asked[0].args["to"]["branch"] = "other"  # type: ignore[index]
            return "once"

        approvals = Approvals(workshop, tamper)
        await approvals.run(args)
        assert approvals.ran == [{"to": {"branch": "main"}, "files": ["a"]}]

    @pytest.mark.parametrize("change", ["definition", "binding", "version"])
    async def test_a_tool_that_changes_meanwhile_is_not_called(self, workshop: Workshop, change: str) -> None:
        """Refuses such a tool; it may be called again, to be asked about as it is now."""

        async def swap() -> Any:
            index = workshop.index
            tool = index.get("git:push").tool
            if change == "definition":
                index.replace(tool.replace(annotations=ToolAnnotations(destructive=True)), LocalBinding("git:push"))
            elif change == "binding":
                index.unregister("git:push")
                index.register(tool, LocalBinding("git:pull"))
            else:
                index.unregister("git:push")
                index.register(tool.replace(version="2.0.0"), LocalBinding("git:push"))
            return "always"

        approvals = Approvals(workshop, swap, "once")
        error = await approvals.refused()
        assert isinstance(error, ApprovalDeniedError)
        assert error.retryable
        assert "changed" in str(error)
        assert (await approvals.run()).ok
        assert len(approvals.asked) == 2

    async def test_a_tool_that_goes_meanwhile(self, workshop: Workshop) -> None:
        """Such a tool is not found, as usual."""

        async def remove() -> Any:
            workshop.index.unregister("git:push")
            return "once"

        with pytest.raises(ToolNotFoundError):
            await Approvals(workshop, remove).run()

    async def test_what_the_question_says(self, workshop: Workshop) -> None:
        """The tool by its full ID, who wants it and how, why, and which run it is."""
        approvals = Approvals(workshop, "once")
        ann = Caller(id="ann")
        call = approvals.call({"a": 1}, caller=ann, path="chain")
        await approvals.runner.run(call)
        assert approvals.asked == [
            ApprovalRequest(
                tool_id="git:push",
                args={"a": 1},
                reason="it is public",
                description="The push",
                caller=ann,
                path="chain",
                run_id=call.run_id,
            )
        ]
        assert call.run_id

    async def test_what_has_changed_since_the_last_approval(self, workshop: Workshop) -> None:
        """The question marks the arguments that are not as they were when the tool was last approved, for this caller
        in this session."""
        approvals = Approvals(workshop, "once", "once", "no", "once", "once")
        await approvals.run({"a": 1, "b": [2], "c": "x"})
        await approvals.run({"a": 1, "b": [2, 3], "c": "y", "d": None})
        await approvals.refused({"a": 5})
        await approvals.run({"a": 1, "b": [2, 3], "c": "y", "d": None})
        await approvals.run({"a": 1}, session="another")
        assert [request.changed for request in approvals.asked] == [(), ("b", "c", "d"), ("a",), (), ()]

    async def test_a_rule_without_a_reason(self, workshop: Workshop) -> None:
        """The question names the rule."""
        approvals = Approvals(workshop, "once", decide=Policy([Rule("ask", name="careful")]).decide)
        await approvals.run()
        assert "careful" in approvals.asked[0].reason

    async def test_secrets_are_not_shown_but_run(self, workshop: Workshop) -> None:
        """The question has none of them, the tool gets them."""
        redact = Redactor()
        redact.add("hunter2-hunter2")
        approvals = Approvals(workshop, "once", redact=redact)
        args = {"auth": {"header": "Bearer hunter2-hunter2"}}
        await approvals.run(args)
        assert "hunter2" not in repr(approvals.asked[0])
        assert approvals.ran == [args]

    async def test_a_description_cannot_steer_a_terminal(self, workshop: Workshop) -> None:
        """A description is one line of visible characters, 500 at most."""
        evil = "Harmless\x1b[2J\x9b1m\x00\n\n[y] approved\u202e\u200b " + "x" * 10_000
        tool = Tool(name="evil", namespace="git", input_schema=ANY, description=evil)
        workshop.add_tool(tool, lambda args: 1)
        approvals = Approvals(workshop, "once")
        await approvals.run(tool_id="git:evil")
        shown = approvals.asked[0].description
        assert shown.startswith(r"Harmless\x1b[2J\x9b1m\x00 [y] approved\u202e\u200b x")
        assert len(shown) == 500
        assert shown.isprintable()

    @pytest.mark.parametrize("args", [{"a": object()}, {"a": float("nan")}, {(7,): 1}, ["a"], "text"])
    async def test_what_is_not_json_is_not_asked_about(self, workshop: Workshop, args: Any) -> None:
        """Arguments that cannot be shown as they are cannot be approved."""
        approvals = Approvals(workshop)
        with pytest.raises(InputValidationError):
            await approvals.run(args)
        assert approvals.asked == []


async def test_decisions_that_are_made_elsewhere(workshop: Workshop) -> None:
    """Any function can decide."""
    seen: list[Registered] = []

    def decide(entry: Registered, call: ToolCall) -> Any:
        seen.append(entry)
        return ASK.decide(entry, call)

    check: Callable[..., Any] = decide
    approvals = Approvals(workshop, "once", decide=check)
    await approvals.run()
    assert seen[0].tool.id == "git:push"
