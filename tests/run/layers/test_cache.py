"""Cache: which answers are kept, for whom and for how long, and that equal calls are one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Workshop
from tests.run.layers.resilience import (
    READING,
    Clock,
    Service,
    behind,
    busy,
    by,
    events_of,
    in_thread,
    raised,
)
from tests.waiting import until

from toolexec import Exec, ToolReply, tool
from toolexec.errors import BackendUnavailableError, ConfigurationError, ToolTimeoutError
from toolexec.model import FunctionTool, ToolCall
from toolexec.model.call import Progress
from toolexec.model.content import text
from toolexec.model.json_value import JSONValue
from toolexec.run import Runner, TraceEvent
from toolexec.run.audit import AuditLog
from toolexec.run.cache_stores import MemoryCache, SQLiteCache
from toolexec.run.gate import Gate
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.cache import Cache


class Cached:
    """A service behind a cache on a clock."""

    def __init__(self, shop: Workshop, **rules: Any) -> None:
        self.clock = Clock()
        self.service = Service(shop)
        self.cache = Cache(**{"clock": self.clock, **rules})
        self.runner: Runner = behind(shop, cache=self.cache)

    async def hits(self, tool_id: str = "hub:read", **call: Any) -> bool:
        """Make a call; return whether it was answered without the service."""
        before = self.service.count
        result = await self.runner.run(ToolCall(tool_id, **call))
        assert result.ok
        assert result.cached is (self.service.count == before)
        return result.cached


async def test_an_equal_call_is_answered_from_the_cache(workshop: Workshop) -> None:
    """The tool is called once; the second result is the same, and says where it comes from."""
    cached = Cached(workshop)
    first = await cached.runner.run(ToolCall("hub:read", {"a": 1, "b": [1, 2]}))
    second = await cached.runner.run(ToolCall("hub:read", {"b": [1, 2], "a": 1}))
    assert (first.cached, second.cached, cached.service.count) == (False, True, 1)
    assert (second.value, second.tool_id, second.binding) == (first.value, first.tool_id, first.binding)
    assert second.to_dict()["cached"] is True
    assert "cached" not in first.to_dict()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {}),
        ({"a": 1}, {"a": "1"}),
        ({"a": True}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": "b\0c"}, {"a\0b": "c"}),
    ],
    ids=str,
)
async def test_other_arguments_are_another_call(workshop: Workshop, first: Any, second: Any) -> None:
    """Arguments that differ in any way do not share an answer."""
    cached = Cached(workshop)
    assert [await cached.hits(args=first), await cached.hits(args=second), await cached.hits(args=first)] == [
        False,
        False,
        True,
    ]


async def test_an_answer_expires(workshop: Workshop) -> None:
    """An answer counts for `ttl` seconds, and is then asked for again."""
    cached = Cached(workshop, ttl=60)
    assert not await cached.hits()
    cached.clock.now += 59
    assert await cached.hits()
    cached.clock.now += 2
    assert not await cached.hits()


async def test_only_tools_that_read_are_answered_for(workshop: Workshop) -> None:
    """An idempotent tool needs a rule of its own, and one that is unmarked or destructive never is answered for."""
    cached = Cached(workshop, rules={"hub:p*": 60, "hub:delete": 60})
    for name, hits in (("read", True), ("put", True), ("post", False), ("delete", False)):
        assert not await cached.hits(f"hub:{name}")
        assert await cached.hits(f"hub:{name}") is hits
    plain = Cached.__new__(Cached)
    plain.service, plain.runner = cached.service, behind(workshop, cache=Cache())
    assert [await plain.hits("hub:put"), await plain.hits("hub:put")] == [False, False]


async def test_rules_say_for_how_long(workshop: Workshop) -> None:
    """The first rule that fits counts, 0 means never."""
    cached = Cached(workshop, rules={"hub:now": 0, "hub:*": 10})
    cached.service.add("now", READING)
    assert [await cached.hits("hub:now"), await cached.hits("hub:now")] == [False, False]
    assert not await cached.hits()
    cached.clock.now += 11
    assert not await cached.hits()


@pytest.mark.parametrize(
    ("identity", "shared"),
    [
        ("caller", {"ann": True, "bob": False, "other tenant": False, "anonymous": False}),
        ("tenant", {"ann": True, "bob": True, "other tenant": False, "anonymous": False}),
        ("none", {"ann": True, "bob": True, "other tenant": True, "anonymous": True}),
    ],
)
async def test_answers_belong_to_a_caller(workshop: Workshop, identity: str, shared: dict[str, bool]) -> None:
    """By default no caller gets what another one was answered."""
    callers = {
        "ann": by("ann", "acme"),
        "bob": by("bob", "acme"),
        "other tenant": by("ann", "emca"),
        "anonymous": by(),
    }
    cached = Cached(workshop, identity=identity)
    await cached.hits(origin=callers["ann"])
    assert {name: await cached.hits(origin=origin) for name, origin in callers.items()} == shared


async def test_a_changed_tool_is_another_one(workshop: Workshop) -> None:
    """A new definition, or a new version, starts without answers."""
    cached = Cached(workshop)
    await cached.hits()
    assert await cached.hits()
    workshop.index.unregister("hub:read")
    cached.service.add("read", READING, tags=["new"])
    assert not await cached.hits()


async def test_failures_are_not_kept(workshop: Workshop) -> None:
    """The next call after a failure reaches the tool."""
    cached = Cached(workshop)
    cached.service.fail(busy())
    assert not (await cached.runner.run(ToolCall("hub:read"))).ok
    cached.service.down = BackendUnavailableError("down")
    assert await raised(cached.runner, ToolCall("hub:read")) is cached.service.down
    cached.service.down = None
    assert not await cached.hits()
    assert await cached.hits()


async def test_a_fresh_call_reaches_the_tool(workshop: Workshop) -> None:
    """The answer to it takes the place of the one that was kept."""
    cached = Cached(workshop)
    await cached.hits()
    assert not await cached.hits(fresh=True)
    assert (await cached.runner.run(ToolCall("hub:read"))).value == {"number": 2}


async def test_results_share_nothing(workshop: Workshop) -> None:
    """A caller that changes a result changes no other caller's."""
    cached = Cached(workshop)
    cached.service.next = [{"rows": [1]}]
    for _ in range(3):
        result = await cached.runner.run(ToolCall("hub:read"))
        assert result.value == {"rows": [1]}
        result.value["rows"].append(2)


@pytest.mark.parametrize(
    "value", [None, 0, 1.5, 10**30, "é😀\n", [], {"": [None, True]}, [{"a": [0.1, -0.0]}] * 50], ids=repr
)
async def test_values_come_back_as_they_were(workshop: Workshop, value: JSONValue) -> None:
    """Every JSON value is given back exactly."""
    cached = Cached(workshop)
    cached.service.next = [value]
    for _ in range(2):
        result = await cached.runner.run(ToolCall("hub:read"))
        assert (json.dumps(result.value), type(result.value)) == (json.dumps(value), type(value))
    assert cached.service.count == 1


async def test_replies_in_parts_come_back_as_they_were(workshop: Workshop) -> None:
    """Content, structured value and metadata are kept, and warnings about the output, too."""
    cached = Cached(workshop)
    reply = ToolReply(content=[text("two")], structured={"n": 2}, has_structured=True, meta={"cost": 1})
    cached.service.add("parts", READING, output_schema={"type": "object", "required": ["m"]})
    cached.service.next = [reply]
    first = await cached.runner.run(ToolCall("hub:parts"))
    second = await cached.runner.run(ToolCall("hub:parts"))
    assert second.cached
    assert second.reply == reply
    assert [w.message for w in second.warnings] == [w.message for w in first.warnings] != []


async def test_equal_calls_at_the_same_time_are_one(workshop: Workshop) -> None:
    """Twenty callers wait for one call of the tool; each has a value of its own, and all but one say so."""
    cached, release = Cached(workshop), asyncio.Event()

    async def slow() -> dict[str, list[int]]:
        await release.wait()
        return {"rows": [1]}

    cached.service.next = [slow]
    tasks = [asyncio.create_task(cached.runner.run(ToolCall("hub:read", {"a": 1}))) for _ in range(20)]
    await _until(lambda: cached.service.count)
    release.set()
    results = await asyncio.gather(*tasks)
    assert cached.service.count == 1
    assert [result.cached for result in results] == [False] + [True] * 19
    assert len({id(result.value["rows"]) for result in results}) == 20


async def test_a_caller_that_leaves_takes_no_answer_from_others(workshop: Workshop) -> None:
    """The call goes on as long as anyone waits for it, and ends with the last one."""
    cached, release, ended = Cached(workshop), asyncio.Event(), asyncio.Event()

    async def slow() -> int:
        try:
            await release.wait()
        finally:
            ended.set()
        return 1

    cached.service.next = [slow, slow]
    first, second = (asyncio.create_task(cached.runner.run(ToolCall("hub:read"))) for _ in range(2))
    await _until(lambda: cached.service.count)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    assert not ended.is_set()
    release.set()
    assert (await second).value == 1
    ended.clear()
    release.clear()
    last = asyncio.create_task(cached.runner.run(ToolCall("hub:read", fresh=False, args={"b": 1})))
    await _until(lambda: cached.service.count == 2)
    last.cancel()
    await asyncio.wait([last])
    assert last.cancelled()
    assert ended.is_set()


async def test_waiting_callers_share_a_failure(workshop: Workshop) -> None:
    """A failure reaches all that waited, each with an error of its own; the next call tries again."""
    cached, release = Cached(workshop), asyncio.Event()

    async def slow() -> None:
        await release.wait()
        raise busy(why="full")

    cached.service.next = [slow]
    tasks = [asyncio.create_task(cached.runner.run(ToolCall("hub:read"))) for _ in range(3)]
    await _until(lambda: cached.service.count)
    release.set()
    results = await asyncio.gather(*tasks)
    assert [result.error.details if result.error else None for result in results] == [{"why": "full"}] * 3
    assert len({id(result.error) for result in results}) == 3
    assert not any(result.cached for result in results)
    assert not await cached.hits()


async def test_a_caller_with_less_time_waits_for_no_other(workshop: Workshop) -> None:
    """Only calls with the same limit are one, so that no caller gets the time limit of another."""
    cached, release = Cached(workshop), asyncio.Event()
    cached.service.next = [release.wait, asyncio.Event().wait]
    patient = asyncio.create_task(cached.runner.run(ToolCall("hub:read", timeout=20)))
    await _until(lambda: cached.service.count)
    hasty = await cached.runner.run(ToolCall("hub:read", timeout=0.01))
    assert isinstance(hasty.error, ToolTimeoutError)
    release.set()
    assert (await patient).ok


async def test_progress_reaches_all_that_wait(workshop: Workshop) -> None:
    """The reports of the one call go to each caller that asked for them."""
    reports: list[list[Progress]] = [[], []]
    release = asyncio.Event()

    async def work(context: Any) -> int:
        await release.wait()
        context.report(1, 2)
        return 1

    from toolexec.model.handler import ToolContext

    work.__annotations__["context"] = ToolContext
    workshop.add(work, "job:work", read_only=True)
    runner = behind(workshop, cache=Cache())
    tasks = [asyncio.create_task(runner.run(ToolCall("job:work", on_progress=each.append))) for each in reports]
    for _ in range(20):
        await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*tasks)
    assert reports == [[Progress(done=1, total=2)]] * 2


async def test_streams_pass_by(workshop: Workshop) -> None:
    """A stream reaches the tool in any case, and its answer is not kept."""
    cached = Cached(workshop)
    await cached.hits()
    for number in (2, 3):
        [event] = await events_of(cached.runner, ToolCall("hub:read", fallback=True))
        assert event.data == {"number": number}


async def test_arguments_without_a_json_form_are_refused_as_ever(workshop: Workshop) -> None:
    """Arguments that cannot be compared are not looked up; the call says what is wrong with it."""
    cached = Cached(workshop)
    for args in ({"a": object()}, {"a": float("nan")}, [1]):
        assert (await raised(cached.runner, ToolCall("hub:read", args))).code == "validation_input"  # type: ignore[arg-type]
    assert not await cached.hits(args={"a": (1, 2)})
    assert await cached.hits(args={"a": [1, 2]})


async def test_a_call_in_a_thread_is_answered_there(workshop: Workshop) -> None:
    """A known answer needs no event loop; one that is not known does, for others may wait for it."""
    seen: list[int] = []

    def read(a: int) -> int:
        seen.append(a)
        return a

    workshop.add(read, "math:read", read_only=True)
    workshop.add(read, "math:write")
    runner: Any = behind(workshop, cache=Cache())
    assert await in_thread(runner, ToolCall("math:read", {"a": 1})) is None
    assert not runner.runs_in_thread(ToolCall("math:read", {"a": 1}), 20.0)
    await runner.run(ToolCall("math:read", {"a": 1}))
    result = await in_thread(runner, ToolCall("math:read", {"a": 1}))
    assert result is not None
    assert (result.value, result.cached, seen) == (1, True, [1])
    written = await in_thread(runner, ToolCall("math:write", {"a": 2}))
    assert written is not None
    assert not written.cached


def test_memory_is_bounded() -> None:
    """The answer that was not used for the longest time goes first, and the size is exact."""
    kept = MemoryCache(3 * 300)
    for name in (b"a", b"b", b"c"):
        kept.put(name, bytes(100), 10.0, 0.0)
    assert kept.get(b"a", 0.0) is not None
    kept.put(b"d", bytes(100), 10.0, 0.0)
    assert [name for name in (b"a", b"b", b"c", b"d") if kept.get(name, 0.0)] == [b"a", b"c", b"d"]
    kept.put(b"d", bytes(50), 10.0, 0.0)
    assert kept.bytes == 850
    assert kept.get(b"d", 11.0) is None
    assert (kept.bytes, len(kept)) == (600, 2)
    kept.put(b"e", bytes(5000), 10.0, 0.0)
    assert (kept.bytes, len(kept)) == (0, 0)


async def test_a_large_answer_is_not_kept_but_shared(workshop: Workshop) -> None:
    """An answer over the limit is given to all that wait for it, and to no later one."""
    cached, release = Cached(workshop, max_entry_bytes=1000), asyncio.Event()

    async def large() -> list[int]:
        await release.wait()
        return [*range(5000)]

    cached.service.next = [large]
    tasks = [asyncio.create_task(cached.runner.run(ToolCall("hub:read"))) for _ in range(3)]
    await _until(lambda: cached.service.count)
    release.set()
    results = await asyncio.gather(*tasks)
    assert all(result.value == [*range(5000)] for result in results)
    assert len({id(result.value) for result in results}) == 3
    assert cached.service.count == 1
    assert not await cached.hits()


async def test_a_file_outlives_the_process(workshop: Workshop, tmp_path: Path) -> None:
    """Another cache of the same file has the answers, as long as they count."""
    path = tmp_path / "state" / "answers.db"
    first = Cached(workshop, path=path)
    await first.hits(args={"a": 1})
    first.cache.close()
    first.cache.close()
    assert path.stat().st_mode & 0o777 == 0o600
    second = Cached.__new__(Cached)
    clock = Clock()
    cache = Cache(path=path, clock=clock)
    second.service, second.runner = first.service, behind(workshop, cache=cache)
    assert await second.hits(args={"a": 1})
    cache.memory.clear()
    clock.now += 301
    assert not await second.hits(args={"a": 1})
    cache.clear()
    assert not await second.hits(args={"a": 1})
    cache.close()


def test_a_file_is_bounded(tmp_path: Path) -> None:
    """Expired answers go, and then what expires soonest."""
    store = SQLiteCache(tmp_path / "answers.db", 100 * 300)
    for number in range(201):
        store.put(b"%d" % number, bytes(100), 10.0 + number, 5.0)
    assert store.get(b"100", 0.0) is None
    assert [store.get(b"%d" % number, 0.0) is not None for number in (101, 200)] == [True, True]
    store.close()
    assert store.get(b"200", 0.0) is None
    store.put(b"1", b"", 1.0, 0.0)


def test_a_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    """A directory or a file of something else raises at once."""
    other = tmp_path / "other.db"
    other.write_bytes(b"this is not a database, and long enough to be seen as one" * 40)
    for path in (tmp_path, other):
        with pytest.raises(ConfigurationError, match="cannot be used"):
            Cache(path=path)


@pytest.mark.parametrize("rules", [{"ttl": -1}, {"rules": {"a": -1}}, {"max_bytes": 0}, {"identity": "all"}], ids=str)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, Any]) -> None:
    """Numbers and words out of range raise at once."""
    with pytest.raises(ConfigurationError):
        Cache(**rules)


async def test_a_hit_is_seen_from_outside(tmp_path: Path) -> None:
    """Audit and trace say that an answer came from the cache, and how many attempts there were."""
    log, seen = AuditLog.open(tmp_path / "audit.jsonl"), []

    @tool("math:read", read_only=True)
    async def read() -> int:
        return 1

    def trace(event: TraceEvent) -> None:
        if event.result is not None:
            seen.append(event.result.cached)

    async with Exec(gate=Gate(cache=Cache(), audit=Audit(log)), trace=trace) as ex:
        ex.add(read)
        for fresh in (False, False, True):
            await ex.run_tool("math:read", fresh=fresh)
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line.get("cached", False) for line in lines if line["kind"] == "call"] == [False, True, False]
    assert seen == [False, True, False]


async def _until(condition: Any) -> None:
    """Wait until it holds."""
    await until(condition, 0)


async def test_functions_of_another_exec_are_others() -> None:
    """Two Execs with one gate share no answers of their functions, which may differ under one ID."""
    gate = Gate(cache=Cache(ttl=60))

    def who(name: str) -> FunctionTool[[], str]:
        return tool("t:who", read_only=True)(lambda: name)

    async with Exec(gate=gate) as ann, Exec(gate=gate) as bob:
        ann.add(who("ann"))
        bob.add(who("bob"))
        said = [(await ex.run_tool("t:who")).value for ex in (ann, bob, ann, bob)]
    assert said == ["ann", "bob", "ann", "bob"]


async def test_a_function_that_takes_the_place_of_another_answers_itself() -> None:
    """A function that is added again under an equal ID and definition is called, also while its predecessor works."""
    working, may_end = asyncio.Event(), asyncio.Event()

    @tool("t:read", read_only=True)
    async def former() -> str:
        working.set()
        await may_end.wait()
        return "former"

    @tool("t:read", read_only=True)
    async def latter() -> str:
        return "latter"

    async with Exec(gate=Gate(cache=Cache(ttl=60))) as ex:
        ex.add(former)
        first = asyncio.create_task(ex.run_tool("t:read"))
        await working.wait()
        ex.add(latter)
        second = await ex.run_tool("t:read")
        may_end.set()
        values = [(await first).value, second.value, (await ex.run_tool("t:read")).value]
    assert values == ["former", "latter", "latter"]
