"""Hostile programs: every sandbox holds them, or the gap is listed here by name, with the reason."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.testing import escape_battery
from toolexec.testing.escape_battery import BatteryReport, Outcome, may_run, run_battery
from toolexec.testing.escapes import ESCAPES, Attempt, Escape, watch
from toolexec.testing.scripted_sandbox import ScriptedSandbox

_OPEN = "it runs on the host, with the rights of its user"
UNSAFE_HOST: Mapping[str, Mapping[str, str]] = {
    "python": dict.fromkeys(
        (
            "builtins",
            "disk_elsewhere",
            "environment",
            "host_modules",
            "kill_processes",
            "links_out_of_the_directory",
            "list_processes",
            "look_around",
            "network_connect",
            "network_datagram",
            "network_listen",
            "read_host_files",
            "start_programs",
            "write_host_files",
        ),
        _OPEN,
    ),
    "javascript": dict.fromkeys(("constructors", "kill_processes", "network_connect", "read_host_files"), _OPEN),
    "bash": dict.fromkeys(
        (
            "environment",
            "kill_processes",
            "links_out_of_the_directory",
            "list_processes",
            "look_around",
            "network_connect",
            "network_datagram",
            "read_host_files",
            "write_host_files",
        ),
        _OPEN,
    ),
}
"""What gets out of `unsafe_host`: it is what its name says."""


# The fast tier tries these on the embedded sandbox, one of each kind; the full tier tries all of them on every sandbox.
FAST = {
    "builtins",
    "disk_fill",
    "environment",
    "forbidden_tool",
    "forge_value_by_print",
    "host_modules",
    "memory_list",
    "network_connect",
    "output_flood",
    "poison",
    "read_host_files",
    "start_programs",
    "user_namespaces",
    "vsock",
    "write_host_files",
}


def of_language(language: str, fast: Collection[str] = ()) -> list[Any]:
    """List the escapes that have a program in one language; all but *fast* are of the full tier."""
    return [
        pytest.param(escape, id=escape.name, marks=[] if escape.name in fast else pytest.mark.full)
        for escape in ESCAPES
        if language in escape.programs
    ]


async def attack(backend: Any, escape: Escape, language: str = "python") -> BatteryReport:
    """The report of one escape."""
    try:
        return await run_battery(backend, language=language, escapes=[escape])
    finally:
        await backend.aclose()


@pytest.mark.parametrize("escape", of_language("python", FAST))
async def test_the_embedded_sandbox_holds_python(escape: Escape) -> None:
    """Nothing gets out, the host is unharmed, the next run is clean: without exceptions."""
    (await attack(WasmBackend(pool_size=1), escape)).raise_for_gaps()


@pytest.mark.skipif(find_spec("quickjs_rs") is None, reason="the extra `javascript` is not installed")
@pytest.mark.parametrize("escape", of_language("javascript"))
async def test_the_embedded_sandbox_holds_javascript(escape: Escape) -> None:
    """Nothing gets out here either."""
    (await attack(WasmBackend(), escape, "javascript")).raise_for_gaps()


@pytest.mark.full
@pytest.mark.parametrize("part", range(8))
async def test_the_unsafe_host_and_python(part: int) -> None:
    """The listed programs escape, no more and no fewer."""
    await attack_the_host("python", part, parts=8)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
@pytest.mark.parametrize("part", range(2))
async def test_the_unsafe_host_and_javascript(part: int) -> None:
    """The listed programs escape, no more and no fewer."""
    await attack_the_host("javascript", part, parts=2)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize("part", range(2))
async def test_the_unsafe_host_and_bash(part: int) -> None:
    """The listed programs escape, no more and no fewer."""
    await attack_the_host("bash", part, parts=2)


async def attack_the_host(language: str, part: int, parts: int) -> None:
    """Run one part of a language's programs in one backend: all at once would take longer than a test may, and one at
    a time most of the time would go to what each battery starts.
    """
    backend = UnsafeHostBackend()
    fitting = [escape for escape in ESCAPES if language in escape.programs and may_run(escape, backend)]
    escapes = fitting[part::parts]
    names = {escape.name for escape in escapes}
    gaps = {name: reason for name, reason in UNSAFE_HOST[language].items() if name in names}
    try:
        report = await run_battery(backend, language=language, escapes=escapes, known_gaps=gaps)
    finally:
        await backend.aclose()
    report.raise_for_gaps()


# -- the battery itself -----------------------------------------------------------------------------------------


def test_every_escape_has_a_name_of_its_own() -> None:
    """Names are unique, the fast tier's are among them, and each escape says what it tries."""
    assert FAST <= {escape.name for escape in ESCAPES}
    assert len({escape.name for escape in ESCAPES}) == len(ESCAPES)
    assert all(escape.tries.startswith("to ") and escape.programs for escape in ESCAPES)


CLEAN = ["probe", [None, [], False], "[3]", True]
HARMLESS = Escape(name="harmless", tries="to do nothing", programs={"python": "harmless"})


def naive(program: Any) -> ScriptedSandbox:
    """A sandbox whose hostile program does what *program* says, on the host; ordinary ones run well."""

    async def answer(request: ExecuteRequest) -> Any:
        if request.code != "harmless":
            assert request.gateway is not None
            request.output.write("clean\n")
            await request.gateway.run_tool("escape:echo", {"text": "probe"})
            return CLEAN
        return await program(request)

    return ScriptedSandbox(default=answer)


async def evidence(program: Any, escape: Escape = HARMLESS) -> str:
    """Return the battery's evidence against a program."""
    (outcome,) = (await attack(naive(program), escape)).outcomes
    return outcome.evidence


async def test_a_harmless_program_is_held() -> None:
    """The battery objects to nothing that a decent program does."""

    async def program(request: ExecuteRequest) -> Any:
        return [1, 2]

    assert await evidence(program) == ""


def also(program: Any) -> ScriptedSandbox:
    """A sandbox whose programs are all ordinary but those that begin with `hostile`."""
    sandbox = naive(program)
    ordinary = sandbox.default

    async def answer(request: ExecuteRequest) -> Any:
        return await (program if request.code.startswith("hostile") else ordinary)(request)

    sandbox.default = answer
    return sandbox


async def test_a_secret_in_the_output_is_seen() -> None:
    """Wherever it comes out; here the content of the canary file is printed."""

    async def program(request: ExecuteRequest) -> Any:
        request.output.write(Path(request.code.split()[1]).read_text())

    escape = replace(HARMLESS, programs={"python": "hostile @CANARY@"})
    (outcome,) = (await attack(also(program), escape)).outcomes
    assert outcome.evidence == "it got hold of the file secret"


async def test_changed_files_and_dead_processes_are_seen() -> None:
    """Restores the canaries for the next program."""

    async def program(request: ExecuteRequest) -> Any:
        _, directory, child = request.code.split()
        Path(directory, "new.txt").write_text("x")
        os.kill(int(child), signal.SIGKILL)
        await asyncio.sleep(0.2)

    escape = replace(HARMLESS, programs={"python": "hostile @DIRECTORY@ @CHILD@"})
    report = await run_battery(also(program), escapes=[escape, HARMLESS])
    assert report.outcomes[0].evidence == (
        "it changed the host's files: canary.txt, new.txt; it ended a process of the host"
    )


async def test_a_process_that_goes_on_is_seen_and_ended() -> None:
    """By its heartbeats; it is told to stop by their answers."""
    answers: list[bytes] = []

    async def program(request: ExecuteRequest) -> Any:
        _, port, token = request.code.split()

        async def beat() -> None:
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
                writer.write(f"beat-{token} 12345\n".encode())
                answers.append(await reader.readline())
                writer.close()
                await writer.wait_closed()
                if answers[-1] == b"stop\n":
                    return
                await asyncio.sleep(0.05)

        beats.append(asyncio.create_task(beat()))
        await asyncio.sleep(0.1)

    beats: list[asyncio.Task[None]] = []
    escape = replace(HARMLESS, programs={"python": "hostile @PORT@ @TOKEN@"})
    (outcome,) = (await attack(also(program), escape)).outcomes
    assert outcome.evidence == "its process 12345 outlived the run"
    await asyncio.wait_for(asyncio.gather(*beats), 30)
    assert answers[-1] == b"stop\n"


async def test_a_host_that_stands_still_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that stands still is seen, and so is memory that it takes for a program."""
    monkeypatch.setattr(watch, "_MAX_STALL_SECONDS", 0.1)
    monkeypatch.setattr(watch, "_MAX_GROWTH_BYTES", 32 << 20)

    async def program(request: ExecuteRequest) -> Any:
        taken = bytearray(b"x") * (256 << 20)
        time.sleep(0.5)
        await asyncio.sleep(0.1)
        return len(taken)

    found = await evidence(program)
    assert "the host's event loop stood still" in found
    assert "MiB of memory for it" in found


async def test_a_run_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """However patient its sandbox is."""
    monkeypatch.setattr(escape_battery, "_CAP_SECONDS", 0.1)
    monkeypatch.setattr(escape_battery, "_GRACE_SECONDS", 0.0)

    async def program(request: ExecuteRequest) -> Any:
        await asyncio.Event().wait()

    sandbox = naive(program)
    execute = sandbox.execute

    async def patient(request: ExecuteRequest) -> CodeResult:
        return await execute(replace(request, timeout=1000))

    sandbox.execute = patient  # type: ignore[method-assign]
    (outcome,) = (await attack(sandbox, replace(HARMLESS, timeout=0.1))).outcomes
    assert "it ran for" in outcome.evidence
    assert "the sandbox itself failed: TimeoutError" in outcome.evidence


async def test_a_forbidden_call_is_seen() -> None:
    """Though the gateway should have refused it."""

    async def program(request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        return (await request.gateway.run_tool("escape:forbidden")).value

    found = await evidence(program, replace(HARMLESS, allowed=None))
    assert "it called the forbidden tool 1 times" in found
    assert "it got hold of the tool secret" in found


async def test_a_late_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that is called once the result is there."""
    monkeypatch.setattr(escape_battery, "_QUIET_SECONDS", 0.5)
    tasks: list[asyncio.Task[Any]] = []

    async def program(request: ExecuteRequest) -> Any:
        async def late() -> None:
            await asyncio.sleep(0.01)
            assert request.gateway is not None
            await request.gateway.run_tool("escape:echo", {"text": 1})

        tasks.append(asyncio.create_task(late()))

    assert "it called a tool after its end" in await evidence(program)
    await asyncio.gather(*tasks)


async def test_a_visitor_is_seen() -> None:
    """A connection to the host's port."""

    async def program(request: ExecuteRequest) -> Any:
        _, port = request.code.split()
        _, writer = await asyncio.open_connection("127.0.0.1", int(port))
        writer.write(b"hello\n")
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()

    escape = replace(HARMLESS, programs={"python": "hostile @PORT@"})
    (outcome,) = (await attack(also(program), escape)).outcomes
    assert outcome.evidence == "it connected to the host: 'TCP hello'"


async def test_a_sandbox_that_fails_is_no_sandbox_that_holds() -> None:
    """Any exception of the sandbox is evidence against it."""

    async def program(request: ExecuteRequest) -> Any:
        raise SandboxUnavailableError("gone")

    assert "the sandbox itself failed: SandboxUnavailableError: gone" in await evidence(program)


async def test_a_value_that_is_no_json_is_seen() -> None:
    """Such a value would break every caller that passes it on."""

    async def program(request: ExecuteRequest) -> Any:
        return float("nan")

    assert "the value is not JSON" in await evidence(program)


async def test_a_wrong_name_is_seen() -> None:
    """The result must say which sandbox it comes from."""

    async def program(request: ExecuteRequest) -> Any:
        from toolexec.code.types import BackendInfo

        return CodeResult(backend=BackendInfo(kind="other"))

    assert "the result names the sandbox other" in await evidence(program)


async def test_a_dirty_next_run_is_seen() -> None:
    """Traces of a hostile program show in the ordinary one after it."""
    dirty: list[str] = []

    async def program(request: ExecuteRequest) -> Any:
        dirty.append("left behind")

    sandbox = naive(program)
    clean = sandbox.default

    async def answer(request: ExecuteRequest) -> Any:
        value = await clean(request)
        return [*value, *dirty] if isinstance(value, list) else value

    sandbox.default = answer
    (outcome,) = (await attack(sandbox, HARMLESS)).outcomes
    assert "the next run was not clean" in outcome.evidence


async def test_an_own_judge_counts() -> None:
    """An escape can look at what only it knows about."""

    async def program(request: ExecuteRequest) -> Any:
        return 13

    def judge(attempt: Attempt) -> str:
        return "thirteen" if attempt.value == 13 else ""

    assert await evidence(program, replace(HARMLESS, check=judge)) == "thirteen"


async def test_a_sandbox_that_runs_nothing_is_refused() -> None:
    """Refuses a sandbox that runs nothing: it would hold every program, and prove nothing."""
    with pytest.raises(RuntimeError, match="cannot run an ordinary program"):
        await attack(ScriptedSandbox(default=ValueError("no")), HARMLESS)


async def test_known_gaps_are_told_apart() -> None:
    """A known one is no failure but is reported; one that holds now is news; an unknown name is refused."""

    async def program(request: ExecuteRequest) -> Any:
        return 13

    leaky = replace(HARMLESS, name="leaky", check=lambda attempt: "it leaks")
    report = await run_battery(naive(program), escapes=[HARMLESS, leaky], known_gaps={"leaky": "by design"})
    assert report.ok
    assert [outcome.name for outcome in report.gaps] == ["leaky"]
    report.raise_for_gaps()
    assert report.table().splitlines() == [
        "wasm, python: 1 of 2 held",
        "held       harmless  ended well",
        "known gap  leaky     it leaks (by design)",
    ]
    assert report.to_dict()["outcomes"][1]["knownGap"] == "by design"
    report = await run_battery(naive(program), escapes=[HARMLESS, leaky], known_gaps={"harmless": "it was"})
    assert not report.ok
    with pytest.raises(ExceptionGroup) as caught:
        report.raise_for_gaps()
    assert [str(error) for error in caught.value.exceptions] == [
        "leaky (wasm, python): it leaks; it tries to do nothing",
        "harmless (wasm, python) is a known gap, but it holds",
    ]
    assert "ESCAPED    leaky" in report.table()
    for wrong in ({"known_gaps": {"other": "?"}}, {"language": "cobol"}):
        with pytest.raises(ValueError, match="there are no"):
            await run_battery(naive(program), escapes=[HARMLESS], **wrong)


async def test_outcomes_are_told_at_once() -> None:
    """A battery takes a while; `on_outcome` receives each program when it is judged."""

    async def program(request: ExecuteRequest) -> Any:
        return 1

    received: list[str] = []
    await run_battery(naive(program), escapes=[HARMLESS], on_outcome=lambda outcome: received.append(outcome.name))
    assert received == ["harmless"]


def test_a_gap_is_not_closed_by_a_time_limit() -> None:
    """A program that was stopped before it could get out says nothing about its gap."""
    outcomes = [
        Outcome(name=ending, tries="to get out", held=True, ending=ending, known_gap="by design")
        for ending in ("code_timeout", "")
    ]
    report = BatteryReport(kind="unsafe_host", language="python", outcomes=outcomes)
    assert [outcome.name for outcome in report.closed] == [""]
