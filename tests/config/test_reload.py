"""Settings that a running server takes over: all of them, or none, and no call fails for it."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec.config.build import Built, build
from toolexec.config.load import load_settings
from toolexec.config.loaded import LoadedConfig
from toolexec.config.reload import Reload
from toolexec.errors import ConfigurationError, PolicyError, RateLimitedError, ToolNotFoundError
from toolexec.model.origin import ApprovalAnswer, ApprovalRequest, Origin, acting
from toolexec.server.auth import ApiKey, AuthSettings, LiveKeys
from toolexec.server.auth.credentials import caller_of

TOOLS = '''
import asyncio

from toolexec import tool

began, go_on = asyncio.Event(), asyncio.Event()


@tool("add", read_only=True)
async def add(a: int, b: int) -> int:
    """Add."""
    await asyncio.sleep(0)
    return a + b


@tool("wait", read_only=True)
async def wait() -> str:
    """Wait until it may go on."""
    began.set()
    await go_on.wait()
    return "it went on"
'''
ONE = '[providers.one]\nkind = "python"\ntarget = "reload_one"\n'
TWO = '[providers.two]\nkind = "python"\ntarget = "reload_two"\n'
DENY = '[[policy.rules]]\neffect = "deny"\ntools = "one:add"\nreason = "it is closed"\n'
FILE = Path("toolexec.toml")


def read() -> LoadedConfig:
    """Read the settings as a server does."""
    return load_settings([FILE], environment={}, serving=True)


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two modules with the same tools."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("one", "two"):
        (tmp_path / f"reload_{name}.py").write_text(TOOLS)


@asynccontextmanager
async def serving(text: str, **more: Any) -> AsyncGenerator[tuple[Built, Reload]]:
    """Build what the file says, started, with what reloads it."""
    FILE.write_text(text)
    built = build(read(), serving=True)
    reload = Reload(built, read, **more)
    try:
        await built.ex.start()
        yield built, reload
    finally:
        await reload.aclose()
        await built.ex.aclose()
        built.close()


async def test_a_new_policy_holds_from_the_next_call_on_and_no_call_before_it_fails() -> None:
    """Calls are made all the time, by many callers, while the policy is replaced again and again."""
    quiet = f"{ONE}[audit]\nenabled = false\n"
    async with serving(quiet) as (built, reload):
        counted = asyncio.Event()
        done: list[int] = []

        async def keep_calling() -> None:
            while True:
                done.append((await built.ex.run_tool("one:add", {"a": 1, "b": len(done)})).raise_for_error().value)
                counted.set()

        callers = [asyncio.create_task(keep_calling()) for _ in range(4)]
        try:
            for number in range(3):
                FILE.write_text(f'{quiet}[[policy.rules]]\neffect = "deny"\ntools = "other:{number}"\n')
                counted.clear()
                changes = await reload()
                assert changes is not None
                assert changes.keys == ("policy.rules",)
                await counted.wait()
            assert not any(caller.done() for caller in callers)
            FILE.write_text(quiet + DENY)
            await reload()
            with pytest.raises(PolicyError, match="it is closed"):
                await built.ex.run_tool("one:add", {"a": 1, "b": 1})
            assert "one:add" not in [found.id for found in await built.ex.search_tools("add")]
            ends = await asyncio.gather(*callers, return_exceptions=True)
        finally:
            for caller in callers:
                caller.cancel()
    assert {type(end) for end in ends} == {PolicyError}
    assert len(done) >= 4


async def test_a_running_call_goes_on_by_the_policy_that_it_began_with() -> None:
    """The tool is denied meanwhile."""
    async with serving(ONE) as (built, reload):
        tools = importlib.import_module("reload_one")
        running = asyncio.create_task(built.ex.run_tool("one:wait"))
        await tools.began.wait()
        FILE.write_text(ONE + DENY.replace("one:add", "one:*"))
        await reload()
        with pytest.raises(PolicyError):
            await built.ex.run_tool("one:wait")
        tools.go_on.set()
        assert (await running).value == "it went on"


@pytest.mark.parametrize(
    ("keys", "code", "why"),
    [
        ([], "policy_denied", "the key of its caller has been taken out, or the key or token has expired"),
        (
            [ApiKey(id="ann", sha256="0" * 64, roles=("staff",), expires="2020-01-31")],
            "policy_denied",
            "has been taken out, or the key or token has expired",
        ),
        ([ApiKey(id="ann", sha256="0" * 64)], "policy_denied", "roles have changed since this call began"),
        ([ApiKey(id="ann", sha256="1" * 64, roles=("staff",))], "", ""),
    ],
    ids=["taken out", "expired", "without the role", "another key"],
)
async def test_an_approved_call_is_made_only_for_what_its_caller_is_by_then(
    keys: list[ApiKey], code: str, why: str
) -> None:
    """An approver is asked, and the key of the caller is changed before the answer, as that may take long for a task. A key
    with the same roles is the same caller."""
    asks = '[policy]\ndefault = "deny"\n[[policy.rules]]\neffect = "ask"\ntools = "one:add"\nroles = "staff"\n'
    held = LiveKeys(AuthSettings(api_keys=(ApiKey(id="ann", sha256="0" * 64, roles=("staff",)),)))
    asked, answer = asyncio.Event(), asyncio.Event()

    async def approve(request: ApprovalRequest) -> ApprovalAnswer:
        asked.set()
        await answer.wait()
        return "once"

    async with serving(ONE + asks, keys=held) as (built, _):
        with acting(Origin(caller=caller_of(held.auth.api_keys[0]), ask=approve)):
            call = asyncio.create_task(built.ex.run_tool("one:add", {"a": 1, "b": 2}))
        await asked.wait()
        held.replace(keys)
        answer.set()
        if not code:
            assert (await call).value == 3
            return
        with pytest.raises(PolicyError, match=why) as refused:
            await call
        assert refused.value.code == code


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{TWO}[[policy.rules]\n", "toolexec.toml"),
        (f'{TWO}\n[policy]\ndefault = "perhaps"\n', "toolexec.toml, line 6: "),
        (f'{TWO}[providers.bad]\nkind = "python"\n', "bad"),
    ],
)
async def test_with_any_mistake_in_the_file_all_stays_as_it_was(
    text: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing that is right in it is taken over, either; one line of the log has the mistake with its place."""
    async with serving(ONE + DENY) as (built, reload):
        FILE.write_text(text)
        caplog.clear()
        assert await reload() is None
        [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert record.getMessage() == reload.problem
        assert why in reload.problem
        assert "\n" not in reload.problem
        assert [status.name for status in built.ex.backend_statuses()] == ["local", "one"]
        with pytest.raises(PolicyError):
            await built.ex.run_tool("one:add", {"a": 1, "b": 1})
        FILE.write_text(ONE)
        assert await reload()
        assert not reload.problem
        assert (await built.ex.run_tool("one:add", {"a": 1, "b": 1})).value == 2


async def test_a_removed_server_is_gone_and_its_running_call_finishes() -> None:
    """The server is closed after that call, and not before; the other one is the same as before."""
    async with serving(ONE + TWO) as (built, reload):
        tools = importlib.import_module("reload_one")
        kept, removed = built.ex.backends.get("two"), built.ex.backends.get("one")
        assert removed is not None
        closed = asyncio.Event()
        close = removed.aclose

        async def observed() -> None:
            await close()
            closed.set()

        removed.aclose = observed  # type: ignore[method-assign]
        running = asyncio.create_task(built.ex.run_tool("one:wait"))
        await tools.began.wait()
        FILE.write_text(TWO)
        changes = await reload()
        assert changes is not None
        assert changes.removed == ("one",)
        with pytest.raises(ToolNotFoundError):
            await built.ex.run_tool("one:add", {"a": 1, "b": 1})
        assert built.ex.backends.get("two") is kept
        assert (await built.ex.run_tool("two:add", {"a": 1, "b": 1})).value == 2
        assert not closed.is_set()
        tools.go_on.set()
        assert (await running).value == "it went on"
        await closed.wait()


async def test_a_changed_server_is_replaced_and_one_that_is_added_connects() -> None:
    """A call of the changed one's tools goes to the new one, also at once."""
    async with serving(ONE) as (built, reload):
        before = built.ex.backends.get("one")
        FILE.write_text(ONE.replace("reload_one", "reload_two") + TWO)
        changes = await reload()
        assert changes is not None
        assert (changes.added, changes.changed, changes.removed) == (("two",), ("one",), ())
        assert (await built.ex.run_tool("one:add", {"a": 1, "b": 2})).value == 3
        assert (await built.ex.run_tool("two:add", {"a": 1, "b": 2})).value == 3
        assert built.ex.backends.get("one") is not before


async def test_a_call_that_began_two_reloads_ago_still_finishes() -> None:
    """A server that is removed by the second of them waits for it, too."""
    async with serving(ONE + TWO) as (built, reload):
        tools = importlib.import_module("reload_one")
        running = asyncio.create_task(built.ex.run_tool("one:wait"))
        await tools.began.wait()
        for text in (ONE + TWO + DENY, TWO + DENY):
            FILE.write_text(text)
            assert await reload()
        assert (await built.ex.run_tool("two:add", {"a": 1, "b": 2})).value == 3
        tools.go_on.set()
        assert (await running).value == "it went on"


async def test_of_two_reloads_at_once_the_last_file_wins() -> None:
    """The second one waits for the first, and reads what is there then."""
    reading, entered, release = 0, asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slowly() -> LoadedConfig:
        nonlocal reading
        reading += 1
        assert reading == 1, "two reloads read the settings at the same time"
        loaded = read()
        loop.call_soon_threadsafe(entered.set)
        asyncio.run_coroutine_threadsafe(release.wait(), loop).result(30)
        reading -= 1
        return loaded

    async with serving(ONE) as (built, _):
        reload = Reload(built, slowly)
        FILE.write_text(ONE + DENY)
        first = asyncio.create_task(reload())
        await entered.wait()
        FILE.write_text(TWO)
        second = asyncio.create_task(reload())
        release.set()
        await asyncio.gather(first, second)
        assert built.ex.backends.names() == ["local", "two"]
        assert (await built.ex.run_tool("two:add", {"a": 1, "b": 2})).value == 3
        await reload.aclose()


async def test_rates_are_exchanged_and_what_did_not_change_keeps_its_count() -> None:
    """A change of the policy gives no caller new calls."""
    rate = '[limits]\nrate = "2/h"\n'
    async with serving(ONE + rate) as (built, reload):
        for _ in range(2):
            await built.ex.run_tool("one:add", {"a": 1, "b": 1})
        FILE.write_text(ONE + rate + DENY.replace("one:add", "other:add"))
        assert await reload()
        with pytest.raises(RateLimitedError):
            await built.ex.run_tool("one:add", {"a": 1, "b": 1})
        FILE.write_text(ONE)
        assert await reload()
        assert (await built.ex.run_tool("one:add", {"a": 1, "b": 1})).value == 2


async def test_another_rate_gives_no_caller_new_calls() -> None:
    """The use that a caller has made of one rate stays when another one changes, or is taken away."""
    async with serving(f'{ONE}[limits]\nrate_per_caller = "2/h"\nrate_per_tool = "9/h"\n') as (built, reload):
        for _ in range(2):
            await built.ex.run_tool("one:add", {"a": 1, "b": 1})
        for other in ('rate_per_tool = "8/h"\n', "", 'rate = "9/h"\n'):
            FILE.write_text(f'{ONE}[limits]\nrate_per_caller = "2/h"\n{other}')
            assert await reload()
            with pytest.raises(RateLimitedError, match="for one caller"):
                await built.ex.run_tool("one:add", {"a": 1, "b": 1})


async def test_runs_of_code_that_go_on_count_for_the_new_share() -> None:
    """A caller whose share is made larger has what is left of it, and one of whom it is taken has none."""
    async with serving(f"{ONE}[limits]\ncode_per_caller = 1\n") as (built, reload), AsyncExitStack() as stack:
        await stack.enter_async_context(built.ex.session())
        for share in (2, 1):
            FILE.write_text(f"{ONE}[limits]\ncode_per_caller = {share}\n")
            assert await reload()
            if share == 2:
                await stack.enter_async_context(built.ex.session())
            with pytest.raises(RateLimitedError, match=f"{share} runs of code"):
                await built.ex.execute_code("1")


async def test_an_open_breaker_stays_open_when_other_settings_change() -> None:
    """The breaker and the bulkhead are the same objects, unless their own settings have changed."""
    kept = "[resilience]\nbreaker_failures = 3\nmax_concurrent = 4\n"
    async with serving(ONE + kept) as (built, reload):
        assert built.gate is not None
        breaker, bulkhead, retry = built.gate.breaker, built.gate.bulkhead, built.gate.retry
        FILE.write_text(ONE + kept + "attempts = 7\n")
        assert await reload()
        assert (built.gate.breaker is breaker, built.gate.bulkhead is bulkhead) == (True, True)
        assert built.gate.retry is not retry


async def test_what_needs_a_restart_is_named_as_long_as_it_differs(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing of it is taken over; what else has changed is."""
    caplog.set_level(logging.INFO)
    async with serving(ONE) as (built, reload):
        FILE.write_text(f'{ONE}{DENY}[http]\nkeep_alive = 7\n[audit]\npath = "other.jsonl"\n')
        for taken in (True, False):
            changes = await reload()
            assert changes is not None
            assert bool(changes) is taken
            assert changes.restart == ("audit.path", "http.keep_alive")
            assert "not before a restart: audit.path, http.keep_alive" in caplog.records[-1].getMessage()
        assert not Path("other.jsonl").exists()
        FILE.write_text(ONE)
        changes = await reload()
        assert changes is not None
        assert changes.restart == ()
        assert built.serve.http.keep_alive != 7


async def test_the_audit_log_has_what_was_changed_by_name() -> None:
    """Clients are notified then; neither happens where nothing has changed."""
    notices: list[None] = []
    async with serving(ONE, notify=lambda: notices.append(None)) as (built, reload):
        await reload()
        assert not notices
        FILE.write_text(TWO + DENY)
        await reload()
        assert len(notices) == 1
        assert built.audit is not None
        records = map(json.loads, built.audit.path.read_text().splitlines())
        [found] = [each for each in records if each["kind"] == "note"]
    expected = {"keys": ["policy.rules"], "added": ["two"], "removed": ["one"], "note": "the settings were reloaded"}
    assert {name: found[name] for name in expected} == expected


async def test_what_fails_last_of_all_changes_nothing_either() -> None:
    """A layer that cannot be put around the new rules; the audit log says that it came to nothing."""
    text = "from toolexec import Exec\n\nfits = True\n\n\ndef layer(inner):\n    assert fits\n    return inner\n\n\n"
    Path("own_exec.py").write_text(f"{text}ex = Exec(layers=[layer])\nex.add(lambda: 1, 'own:one')\n")
    FILE.write_text("")

    def both() -> LoadedConfig:
        return load_settings([FILE, "own_exec.py"], environment={}, serving=True)

    built = build(both(), serving=True)
    async with built.ex as ex:
        reload = Reload(built, both)
        FILE.write_text(DENY.replace("one:add", "own:*") + TWO)
        layer = ex.options.layers[0]
        layer.__globals__["fits"] = False  # type: ignore[attr-defined]
        assert await reload() is None
        assert "AssertionError" in reload.problem
        assert (await ex.run_tool("own:one")).value == 1
        assert ex.backends.names() == ["local"]
        assert built.audit is not None
        assert "the settings were not reloaded after all" in built.audit.path.read_text()
        layer.__globals__["fits"] = True  # type: ignore[attr-defined]
        assert await reload()
        with pytest.raises(PolicyError):
            await ex.run_tool("own:one")
        await reload.aclose()
    built.close()


async def test_a_name_that_a_backend_of_the_program_has_changes_nothing() -> None:
    """Neither is the policy of the same file taken over."""
    async with serving(ONE) as (built, reload):
        built.ex.add_http("two", "https://two.invalid")
        FILE.write_text(ONE + TWO + DENY)
        assert await reload() is None
        assert "a backend named two is there already" in reload.problem
        assert built.audit is not None
        assert "reloaded" not in built.audit.path.read_text()
        assert (await built.ex.run_tool("one:add", {"a": 1, "b": 1})).value == 2


def test_only_what_was_built_for_a_server_can_be_reloaded() -> None:
    """The gate of another Exec is fixed."""
    FILE.write_text(ONE)
    with pytest.raises(ConfigurationError, match="serving=True"):
        Reload(build(read()), read)


@pytest.mark.full
async def test_of_two_mcp_servers_only_the_changed_one_is_started_again() -> None:
    """The process of the other one goes on; that of one that is removed ends."""

    def server(name: str, *args: str) -> str:
        return f"[mcpServers.{name}]\ncommand = '{sys.executable}'\nargs = {['-m', 'mcp_server_time', *args]!r}\n"

    def pids() -> dict[str, Any]:
        return {each.name: each.info.get("pid") for each in built.ex.backend_statuses() if each.kind == "mcp"}

    async with serving(server("one") + server("two")) as (built, reload):
        before = pids()
        assert all(before.values())
        FILE.write_text(server("one") + server("two", "--local-timezone", "UTC"))
        changes = await reload()
        assert changes is not None
        assert changes.changed == ("two",)
        for name in ("one", "two"):
            assert (await built.ex.run_tool(f"{name}:get_current_time", {"timezone": "UTC"})).ok
        after = pids()
        assert after["one"] == before["one"]
        assert after["two"] not in (None, before["two"])
        FILE.write_text(server("one"))
        assert await reload()
        assert pids() == {"one": before["one"]}
        await until(lambda: not Path(f"/proc/{before['two']}").exists() and not Path(f"/proc/{after['two']}").exists())


async def test_answers_are_looked_at_from_the_next_call_on() -> None:
    """The part that scans is exchanged, and one that does not change stays over another reload."""
    scan = '[scan]\nenabled = true\nbackends = ["provider"]\nscanners = ["hidden"]\npath = "held"\n'
    async with serving(ONE + scan) as (built, reload):
        gate = built.gate
        assert gate is not None
        before = gate.scan
        FILE.write_text(ONE + scan + DENY)
        assert await reload()
        assert gate.scan is before is not None
        FILE.write_text(ONE)
        assert await reload()
        assert gate.scan is None
