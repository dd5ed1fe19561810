"""The door: nothing reaches a backend that no rule has decided on, and each attempt is in the log once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import READING, UNMARKED, Clock, Service, behind, busy, events_of, raised

import toolexec
from toolexec import Exec, Tool, ToolContext
from toolexec.backend import ProviderBackend
from toolexec.backend.attempt import Attempt
from toolexec.discovery.index import bulk
from toolexec.errors import (
    ApprovalRequiredError,
    BackendUnavailableError,
    ConnectionLostError,
    DefinitionChangedError,
    PolicyError,
    ToolExecError,
)
from toolexec.model import MCPBinding, ProviderBinding, ToolCall
from toolexec.model.origin import ApprovalRequest, Origin, acting
from toolexec.run import Resolver, Runner
from toolexec.run.audit import AuditLog, read_last
from toolexec.run.effects import EffectLedger
from toolexec.run.gate import Gate
from toolexec.run.layer import Layer
from toolexec.run.layers.approval import Approval
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.fallback import Fallback
from toolexec.run.layers.ledger import Ledger
from toolexec.run.layers.retry import Retry
from toolexec.run.pinning import Pins
from toolexec.run.policy import Policy, Rule
from toolexec.run.reconcile import CHECK

SOURCES = Path(toolexec.__file__).parent


class Mirrored:
    """A tool on two servers, the first of which is down, behind a gate with an audit log."""

    def __init__(self, shop: Workshop, path: Path, **parts: Any) -> None:
        self.hub, self.mirror = Service(shop), Service(shop, "mirror")
        shop.index.register(self.hub.add("again", READING), ProviderBinding("mirror", "again"))
        self.hub.down = BackendUnavailableError("down")
        self.log = AuditLog.open(path / "audit.jsonl")
        parts = {"fallback": Fallback(), "audit": Audit(self.log), **parts}
        self.runner = behind(shop, **parts)

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Return the records of one kind."""
        return [each for each in read_last(self.log.path, 100) if each["kind"] == kind]


def quick(attempts: int = 2) -> Retry:
    """Return retries without pauses."""
    clock = Clock()
    return Retry(attempts=attempts, pause=0, clock=clock, sleep=clock.sleep)


def denying(*backends: str) -> Policy:
    """Return a policy that denies these backends and allows all else."""
    return Policy([Rule("deny", backends=backends)], remote_destructive="allow")


def asking(*backends: str) -> Policy:
    """Return a policy that asks before calls of these backends."""
    return Policy([Rule("ask", backends=backends)], remote_destructive="allow")


async def test_a_fallback_does_not_reach_a_denied_backend(workshop: Workshop, tmp_path: Path) -> None:
    """The policy decides on the other binding, too, and its refusal is in the log."""
    both = Mirrored(workshop, tmp_path, policy=denying("provider:mirror"))
    assert await raised(both.runner, ToolCall("hub:again")) is both.hub.down
    assert both.mirror.count == 0
    [attempt] = both.records("attempt")
    assert (attempt["backend"], attempt["outcome"]) == ("mirror", "policy_denied")


async def test_a_stream_does_not_reach_a_denied_backend(workshop: Workshop, tmp_path: Path) -> None:
    """A stream goes elsewhere by the same rules."""
    both = Mirrored(workshop, tmp_path, policy=denying("provider:mirror"))
    with pytest.raises(BackendUnavailableError):
        await events_of(both.runner, ToolCall("hub:again", fallback=True))
    assert both.mirror.count == 0


@pytest.mark.parametrize("answer", ["no", "once"])
async def test_a_fallback_asks_for_its_own_backend(workshop: Workshop, tmp_path: Path, answer: str) -> None:
    """An approver is asked before the mirror is called, and only then."""
    asked: list[str] = []

    def ask(request: ApprovalRequest) -> Any:
        asked.append(f"{request.tool_id} on {request.backend}")
        return answer

    policy = asking("provider:mirror")
    both = Mirrored(workshop, tmp_path, policy=policy, approval=Approval(policy.decide, ask=ask))
    if answer == "no":
        assert await raised(both.runner, ToolCall("hub:again")) is both.hub.down
    else:
        result = await both.runner.run(ToolCall("hub:again"))
        assert result.raise_for_error().binding == ProviderBinding("mirror", "again")
    assert (asked, both.mirror.count) == (["hub:again on provider:mirror"], int(answer == "once"))


async def test_the_log_names_the_backend_that_answered(workshop: Workshop, tmp_path: Path) -> None:
    """The call has its record, and the attempt at the mirror one of its own."""
    both = Mirrored(workshop, tmp_path)
    result = await both.runner.run(ToolCall("hub:again"))
    [call], [attempt] = both.records("call"), both.records("attempt")
    assert result.ok
    assert (call["backend"], call["answered_backend"], call["attempts"]) == ("hub", "mirror", 2)
    assert (attempt["backend"], attempt["outcome"], attempt["after"]) == ("mirror", "ok", "backend_unavailable")
    assert attempt["run_id"] == call["run_id"]


async def test_another_tool_is_recorded_also_when_it_fails(workshop: Workshop, tmp_path: Path) -> None:
    """A fallback to another tool that fails leaves a record."""
    both = Mirrored(workshop, tmp_path, fallback=Fallback({"hub:post": "mirror:post"}))
    both.mirror.down = BackendUnavailableError("down, too")
    assert await raised(both.runner, ToolCall("hub:post")) is both.hub.down
    assert [(each["tool"], each["outcome"]) for each in both.records("attempt")] == [
        ("mirror:post", "backend_unavailable")
    ]


async def test_another_tool_is_in_the_ledger(workshop: Workshop, tmp_path: Path, effects: EffectLedger) -> None:
    """An unknown outcome at the other tool is known to the ledger: the next equal call is not simply made."""
    both = Mirrored(workshop, tmp_path, fallback=Fallback({"hub:post": "mirror:post"}), ledger=Ledger(effects))
    both.mirror.fail(ConnectionLostError("gone"))
    assert not (await both.runner.run(ToolCall("hub:post"))).ok
    assert await raised(both.runner, ToolCall("hub:post")) is both.hub.down
    assert both.mirror.count == 1
    assert [effect.tool for effect in effects.unsettled()] == ["mirror:post"]


@pytest.fixture
def effects(tmp_path: Path) -> Iterator[EffectLedger]:
    """A ledger in a file, which an error that is kept would keep open."""
    with closing(EffectLedger(tmp_path / "effects.db")) as made:
        yield made


async def by_call(runner: Any, call: ToolCall) -> ToolExecError | None:
    """Return why a call failed."""
    return (await runner.run(call)).error


async def by_stream(runner: Any, call: ToolCall) -> ToolExecError | None:
    """Return why a stream failed."""
    [event] = await events_of(runner, replace(call, fallback=True))
    return event.error


@pytest.mark.parametrize("path", [by_call, by_stream])
async def test_a_fallback_of_unknown_outcome_is_the_last(workshop: Workshop, tmp_path: Path, path: Any) -> None:
    """A third tool never repeats what the second may have done, however harmless the first is."""
    both = Mirrored(workshop, tmp_path, fallback=Fallback({"hub:read": ["mirror:post", "third:post"]}))
    third = Service(workshop, "third")
    both.mirror.fail(ConnectionLostError("gone"))
    assert isinstance(await path(both.runner, ToolCall("hub:read")), ConnectionLostError)
    assert (both.mirror.count, third.count) == (1, 0)


@pytest.mark.parametrize("path", [by_call, by_stream])
async def test_an_unknown_outcome_of_before_ends_the_search(
    workshop: Workshop, tmp_path: Path, effects: EffectLedger, path: Any
) -> None:
    """A third tool never repeats what the second may have done in an earlier call."""
    ledger = Ledger(effects)
    others = Fallback({"hub:post": ["mirror:post", "third:post"]})
    both = Mirrored(workshop, tmp_path, fallback=others, ledger=ledger)
    third = Service(workshop, "third")
    both.mirror.fail(ConnectionLostError("gone"))
    assert isinstance(await path(both.runner, ToolCall("hub:post")), ConnectionLostError)
    with pytest.raises(BackendUnavailableError):
        await path(both.runner, ToolCall("hub:post"))
    assert (both.mirror.count, third.count) == (1, 0)


async def test_each_retry_has_a_record_of_its_own(workshop: Workshop, tmp_path: Path) -> None:
    """Three attempts are the record of the call, and two more."""
    both = Mirrored(workshop, tmp_path, retry=quick(3))
    both.hub.down = None
    both.hub.fail(busy(), busy())
    assert (await both.runner.run(ToolCall("hub:read"))).attempts == 3
    [call] = both.records("call")
    assert (call["attempts"], call["outcome"]) == (3, "ok")
    assert [(each["attempt"], each["outcome"]) for each in both.records("attempt")] == [
        (2, "execution_failed"),
        (3, "ok"),
    ]


async def test_a_check_of_the_ledger_is_recorded(workshop: Workshop, tmp_path: Path, effects: EffectLedger) -> None:
    """The call that checks for a lost effect is a call like others for policy and log."""
    both = Mirrored(workshop, tmp_path, ledger=Ledger(effects))
    both.hub.down = None
    both.hub.add("look", READING)
    both.hub.add("write", UNMARKED, meta={CHECK: "hub:look"})
    both.hub.fail(ConnectionLostError("gone"), then=[True])
    await both.runner.run(ToolCall("hub:write"))
    assert (await both.runner.run(ToolCall("hub:write"))).cached
    assert [(each["tool"], each["outcome"]) for each in both.records("attempt")] == [("hub:look", "ok")]


class Changing(Layer):
    """A layer of a user that changes each call."""

    def __init__(self, inner: Runner, change: Callable[[ToolCall], ToolCall]) -> None:
        super().__init__(inner)
        self._change = change

    def before(self, call: ToolCall) -> ToolCall:
        """Return the other call."""
        return self._change(call)


@pytest.mark.parametrize(
    "change",
    [
        lambda call: replace(call, tool_id="other:read"),
        lambda call: replace(call, args={"path": "/etc/passwd"}),
        lambda call: ToolCall("other:read"),
    ],
)
async def test_what_a_layer_changes_is_decided_again(
    workshop: Workshop, change: Callable[[ToolCall], ToolCall]
) -> None:
    """Another tool, other arguments, or a new call cannot bypass the policy."""
    hub, other = Service(workshop), Service(workshop, "other")
    rules = [Rule("deny", tools="other:*"), Rule("deny", when={"path": {"path_under": "/etc"}})]
    resolver = Resolver(workshop.index, workshop.backends)
    gate = Gate(policy=Policy(rules, remote_destructive="allow"))
    layers = [lambda inner: Changing(inner, change)]
    runner = gate.wrap(workshop.runner(resolver=resolver), resolver.resolve, layers)
    assert isinstance(await raised(runner, ToolCall("hub:read", {"path": "/tmp/a"})), PolicyError)
    assert hub.count + other.count == 0


class ChangingInPlace(Layer):
    """A layer of a user that changes the arguments that it finds, at each attempt further."""

    def before(self, call: ToolCall) -> None:
        """Go one step down."""
        args: Any = call.args
        args["where"]["path"] += args["steps"].pop(0)


@pytest.mark.parametrize(
    ("steps", "made"),
    [(["/b", ""], []), (["", "/b", ""], ["/a"]), (["/c", "/d", "/e"], ["/a/c", "/a/c/d", "/a/c/d/e"])],
)
async def test_what_a_layer_changes_in_place_is_decided_again(
    workshop: Workshop, steps: list[str], made: list[str]
) -> None:
    """A layer that changes the same object cannot bypass the policy either, nor at a later attempt."""
    hub, resolver = Service(workshop), Resolver(workshop.index, workshop.backends)
    policy = Policy([Rule("deny", when={"where.path": {"path_under": "/a/b"}})], remote_destructive="allow")
    gate = Gate(policy=policy, retry=quick(3))
    runner = gate.wrap(workshop.runner(resolver=resolver), resolver.resolve, [ChangingInPlace])
    hub.fail(busy(), busy(), busy())
    call = ToolCall("hub:read", {"where": {"path": "/a"}, "steps": steps})
    with pytest.raises(PolicyError) if len(made) < 3 else nullcontext():
        await runner.run(call)
    assert [args["where"]["path"] for _, args in hub.calls] == made


async def test_a_caller_who_changes_the_arguments_later_changes_no_attempt() -> None:
    """Each attempt is made with what was decided on, also where nothing in it is nested."""
    args, given = {"path": "/tmp/a"}, list[Any]()

    def answer(name: str, args: Any) -> str:
        given.append(args)
        if len(given) == 1:
            raise busy()
        return "done"

    async def change(seconds: float) -> None:
        args["path"] = "/etc/passwd"

    async with Exec(gate=Gate(retry=Retry(attempts=2, pause=0, sleep=change))) as ex:
        ex.backends.register(ProviderBackend("hub", answer))
        tool = Tool(name="read", namespace="hub", annotations=READING, input_schema={"type": "object"})
        ex.index.register(tool, ProviderBinding("hub", "read"))
        assert (await ex.run_tool("hub:read", args)).ok
    assert given == [{"path": "/tmp/a"}] * 2


async def test_a_layer_that_changes_what_is_allowed_changes_nothing_else(workshop: Workshop) -> None:
    """The changed call is made once, with the arguments that the layer set."""
    hub = Service(workshop)
    resolver = Resolver(workshop.index, workshop.backends)
    layers = [lambda inner: Changing(inner, lambda call: replace(call, args={"a": 2}))]
    runner = Gate(policy=denying("none")).wrap(workshop.runner(resolver=resolver), resolver.resolve, layers)
    assert (await runner.run(ToolCall("hub:read", {"a": 1}))).ok
    assert hub.calls == [("read", {"a": 2})]


async def test_a_tool_that_changes_between_two_attempts_is_not_called(workshop: Workshop) -> None:
    """Its new definition is not the accepted one, so that the second attempt is refused."""
    hub, clock = Service(workshop), Clock()

    async def change(seconds: float) -> None:
        new = Tool(name="read", namespace="hub", annotations=READING, input_schema={"type": "object"}, description="x")
        bulk(workshop.index).replace(new, ProviderBinding("hub", "read"))

    hub.fail(busy())
    retry = Retry(attempts=3, pause=0, clock=clock, sleep=change)
    error = await raised(behind(workshop, retry=retry, pinning=Pins(None)), ToolCall("hub:read"))
    assert isinstance(error, DefinitionChangedError)
    assert hub.count == 1


# -- what an Exec does without a gate -------------------------------------------------------------------------------


def shop_with(**settings: Any) -> tuple[Exec, list[str]]:
    """Return an Exec with remote tools, one of which is marked as destructive, and what was called."""
    called: list[str] = []

    def answer(server: str, name: str, args: Any) -> str:
        called.append(name)
        return "done"

    ex = Exec(mcp_executor=answer, **settings)
    for name, hints in (("drop", {"destructiveHint": True}), ("post", {}), ("look", {"readOnlyHint": True})):
        tool = Tool.from_mcp({"name": name, "inputSchema": {"type": "object"}, "annotations": hints})
        ex.add(tool.replace(namespace="hub"), binding=MCPBinding("hub", name))
    return ex, called


async def calls_of_all_kinds(ex: Exec, tool_id: str) -> list[Any]:
    """Call a tool directly, in a chain, by a workflow, and as a stream; return the errors."""
    errors: list[Any] = []
    try:
        errors.append((await ex.run_tool(tool_id)).error)
    except PolicyError as error:
        errors.append(error)
    errors.append((await ex.run_chain([{"tool": tool_id}])).error)
    errors.append((await ex.run_workflow(f'run("{tool_id}")')).error)
    errors.append((await ex.execute_code(f"return tools.run({tool_id!r})")).error)
    try:
        errors.append([event async for event in ex.stream_tool(tool_id)][-1].error)
    except PolicyError as error:
        errors.append(error)
    return errors


@pytest.mark.parametrize("settings", [{}, {"gate": Gate()}], ids=["Exec()", "Exec(gate=Gate())"])
async def test_marked_destructive_tools_are_not_called_unasked(settings: Any) -> None:
    """Without a policy, on every path; the error says how to allow it."""
    ex, called = shop_with(**settings)
    async with ex:
        errors = await calls_of_all_kinds(ex, "hub:drop")
    assert called == []
    assert all(error is not None for error in errors)
    assert isinstance(errors[0], ApprovalRequiredError)
    assert 'Rule("allow", tools="hub:drop")' in str(errors[0])
    assert 'remote_destructive = "allow"' in str(errors[0])


async def test_unmarked_tools_are_called() -> None:
    """The default asks for what is marked, not for what says nothing."""
    ex, called = shop_with()
    async with ex:
        assert await calls_of_all_kinds(ex, "hub:post") == [None] * 5
    assert called == ["post"] * 5


async def test_no_gate_is_spelled_out() -> None:
    """None takes the default away, and nothing else does."""
    ex, called = shop_with(gate=None)
    async with ex:
        assert (await ex.run_tool("hub:drop")).ok
    assert called == ["drop"]


async def test_the_caller_may_approve() -> None:
    """An approver that the origin of a call brings is asked."""
    ex, called = shop_with()
    async with ex:
        with acting(Origin(ask=lambda request: "once")):
            assert (await ex.run_tool("hub:drop")).ok
    assert called == ["drop"]


async def test_a_layer_does_not_lead_around_the_default(workshop: Workshop) -> None:
    """A layer that turns the call of a harmless tool into one of a destructive tool meets the rule."""
    layers = [lambda inner: Changing(inner, lambda call: replace(call, tool_id="hub:drop"))]
    ex, called = shop_with(layers=layers)
    async with ex:
        with pytest.raises(ApprovalRequiredError):
            await ex.run_tool("hub:look")
    assert called == []


# -- parents --------------------------------------------------------------------------------------------------------


async def test_what_a_skill_does_has_its_call_as_parent(tmp_path: Path) -> None:
    """The log leads from the innermost call to the skill that was called."""
    log = AuditLog.open(tmp_path / "audit.jsonl")
    async with Exec(gate=Gate(audit=Audit(log))) as ex:
        ex.add(lambda n: n + 1, "t:next")
        ex.add_skill('+++\nname = "twice"\ndescription = "Adds two."\n+++\nrun("t:next", {n: 1})')
        await ex.run_tool("skill:twice")
    log.close()
    records = {each["run_id"]: each for each in read_last(log.path, 100) if each["kind"] in ("call", "code")}
    [inner] = [each for each in records.values() if each.get("tool") == "t:next"]
    program = records[inner["parent"]]
    assert program["kind"] == "code"
    assert records[program["parent"]]["tool"] == "skill:twice"


async def test_a_handler_can_say_whose_work_its_calls_are(tmp_path: Path) -> None:
    """A tool that calls others has its own call as their parent, and knows the names of its call."""
    log = AuditLog.open(tmp_path / "audit.jsonl")
    seen: list[Any] = []
    async with Exec(gate=Gate(audit=Audit(log))) as ex:

        async def outer(context: ToolContext) -> None:
            seen.append((context.run_id, context.idempotency_key, context.origin.path))
            with acting(context.inner):
                await ex.run_tool("t:inner")

        ex.add(lambda: 1, "t:inner")
        ex.add(outer, "t:outer")
        await ex.run_tool("t:outer", idempotency_key="k")
    log.close()
    records = {each["tool"]: each for each in read_last(log.path, 100) if each["kind"] == "call"}
    assert records["t:inner"]["parent"] == records["t:outer"]["run_id"]
    assert seen == [(records["t:outer"]["run_id"], "k", "direct")]


# -- what only the gate makes ---------------------------------------------------------------------------------------


def test_an_attempt_cannot_be_made_by_hand(workshop: Workshop) -> None:
    """Its class refuses everybody but its one maker."""
    workshop.add(lambda: 1, "t:one")
    with pytest.raises(TypeError, match="give the call to a runner"):
        Attempt(object(), ToolCall("t:one"), workshop.index.find("t:one"))  # type: ignore[arg-type]


def _hands_attempt_on(node: ast.AST) -> bool:
    """Return whether a part of a source calls the class, or anything but isinstance with it: that could make one."""
    if not isinstance(node, ast.Call) or (isinstance(node.func, ast.Name) and node.func.id == "isinstance"):
        return False
    called = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    return any(isinstance(each, ast.Name) and each.id == "Attempt" for each in (called, *node.args))


def test_only_the_gate_and_the_runner_make_attempts() -> None:
    """The sources make one in one file, and name its function in the few that stand before a backend."""
    makers: set[str] = set()
    users: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        text, place = path.read_text(), str(path.relative_to(SOURCES))
        if "backend.attempt import" not in text and place != "backend/attempt.py":  # to parse all takes seconds
            continue
        nodes = [*ast.walk(ast.parse(text))]
        makers |= {place} if any(map(_hands_attempt_on, nodes)) else set()
        users |= {place} if any(isinstance(node, ast.Name) and node.id == "attempt_at" for node in nodes) else set()
    assert makers == {"backend/attempt.py"}
    users.discard("testing/backend_suite.py")  # which tests backends as the gate calls them
    assert users == {"backend/aggregator.py", "run/default_gate.py", "run/door.py", "run/gated.py", "run/runner.py"}
