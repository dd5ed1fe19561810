"""What every `Journal` must do, as plain functions: run them with any test framework, or with none."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any, TypeAlias

from toolexec.durable.journal import CallRecord, Journal, RunRecord, Signal, Snapshot, Wait
from toolexec.errors import JournalError, RunBusyError, RunError
from toolexec.process.owner import this_owner
from toolexec.testing.report import Report, checks_of

MakeStore: TypeAlias = Callable[[], Callable[[], Journal]]
"""Makes a new, empty store and returns what opens it; each call of that opens the same store once more."""

_AWKWARD = 'a "quoted" \\ \x00 \u20ac \U0001f600 \u2028 text'


def _run(run_id: str = "r", **parts: Any) -> RunRecord:
    about: dict[str, Any] = {"kind": "code", "source": "1", "digest": "d", "settings": {}, **parts}
    return RunRecord(id=run_id, **about)


def _call(step: str, **parts: Any) -> CallRecord:
    about: dict[str, Any] = {"tool": "a:b", "definition": "v1", "args": "x", **parts}
    return CallRecord(step=step, **about)


@contextmanager
def _claimed(make: MakeStore, run_id: str = "r") -> Generator[Journal]:
    """A journal with one run that `me` owns."""
    with closing(make()()) as journal:
        journal.create(_run(run_id))
        journal.claim(run_id, "me", 60)
        yield journal


@contextmanager
def _refuses(what: str, code: str) -> Generator[None]:
    caught: RunError | None = None
    try:
        yield
    except RunError as error:
        caught = error
    got = "nothing" if caught is None else caught.code
    assert got == code, f"{what} must raise RunError with the code {code}, not {got}"
    assert caught is None or caught.run_id, f"the RunError of {what} must name the run"


@contextmanager
def _unusable(what: str) -> Generator[None]:
    try:
        yield
    except JournalError:
        return
    raise AssertionError(f"{what} must raise JournalError")


def _steps(journal: Journal, run_id: str = "r") -> list[tuple[str, str]]:
    return [(call.step, call.state) for call in journal.calls(run_id)]


def keeps_what_a_run_was_started_with(make: MakeStore) -> None:
    """Require that all of a new run is read back, by another opener, too."""
    open_store = make()
    settings = {"inputs": {"a": [1, 2.5, None, True, _AWKWARD]}, "deep": [[[{}]]]}
    run = _run("r/1 \u20ac", kind="workflow", source="x := 1\n\u20ac", settings=settings, caller="ann", created=17.25)
    with closing(open_store()) as journal, closing(open_store()) as other:
        made = journal.create(run)
        assert (made.id, made.source, made.settings) == (run.id, run.source, settings), "create must return the run"
        found = other.get(run.id)
    assert found == made, "another opener must read the same"
    assert (found.kind, found.digest, found.caller, found.created) == ("workflow", "d", "ann", 17.25), f"got {found}"
    assert (found.state, found.owner, found.calls, found.result) == ("running", "", 0, None), f"got {found}"


def stamps_new_runs(make: MakeStore) -> None:
    """Require that a run without a time of creation gets one, and that no two runs have the same."""
    with closing(make()()) as journal:
        before = time.time()
        made = journal.create(_run("a"))
        assert before - 5 < made.created < time.time() + 5, f"created is {made.created}"
        twice = [journal.create(_run(name, created=5.0)).created for name in ("b", "c")]
        assert 5.0 <= twice[0] < twice[1] < 5.1, f"two runs were created at {twice}"


def returns_the_run_that_is_there(make: MakeStore) -> None:
    """Require that a second run with the same ID is not written."""
    with closing(make()()) as journal:
        journal.create(_run(source="first", digest="one"))
        found = journal.create(_run(source="second", digest="two"))
        assert (found.source, found.digest) == ("first", "one"), "create must return the run that was there"
        assert journal.get("r").source == "first", "the run that was there must stay"


def creates_with_an_owner(make: MakeStore) -> None:
    """Require that a run can belong to its creator from the beginning, so that no other is quicker."""
    with closing(make()()) as journal:
        journal.create(_run(owner="me", lease=time.time() + 60))
        journal.begin("r", "me", _call("1"))
        with _refuses("a claim of another's run", "run_busy"):
            journal.claim("r", "other", 60)


def reports_unknown_runs(make: MakeStore) -> None:
    """Require `run_not_found` of every method for a run that is not there."""
    with _claimed(make) as journal:
        uses: dict[str, Callable[[], object]] = {
            "get": lambda: journal.get("no"),
            "claim": lambda: journal.claim("no", "me", 1),
            "renew": lambda: journal.renew("no", "me", 1),
            "calls": lambda: journal.calls("no"),
            "deliveries": lambda: journal.deliveries("no"),
            "begin": lambda: journal.begin("no", "me", _call("1")),
            "end": lambda: journal.end("no", "me", "1", "done", {}),
            "save": lambda: journal.save("no", "me", Snapshot(calls=0, state={})),
            "snapshot": lambda: journal.snapshot("no"),
            "suspend": lambda: journal.suspend("no", "me", []),
            "signal": lambda: journal.signal("no", Signal(id="s", name="n")),
            "signals": lambda: journal.signals("no"),
            "take": lambda: journal.take("no", "me", "1", "n"),
            "finish": lambda: journal.finish("no", "me", "done", {}),
            "cancel": lambda: journal.cancel("no"),
        }
        for name, use in uses.items():
            with _refuses(name, "run_not_found"):
                use()
        assert journal.delete("no") is False, "there is no run to delete"


def lists_runs_newest_first(make: MakeStore) -> None:
    """Require that runs are listed by creation, filtered, page by page, without what may be long."""
    with closing(make()()) as journal:
        for number in range(7):
            journal.create(_run(f"r{number}", created=100.0 + number, caller="ann" if number % 2 else "bob"))
        for number in (1, 2, 3):
            journal.claim(f"r{number}", "me", 60)
        journal.finish("r1", "me", "done", {"value": 1})
        journal.finish("r2", "me", "failed", {"error": 1})
        journal.suspend("r3", "me", [Wait(step="1", kind="signal", name="go")])
        listed = journal.runs()
        assert [run.id for run in listed] == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"], f"listed {listed}"
        assert all((run.source, run.settings, run.result) == ("", {}, None) for run in listed), "lists must be short"
        assert [run.state for run in listed[3:6]] == ["waiting", "failed", "done"], f"listed {listed}"
        assert listed[3].waits[0].name == "go", "a list must say what is waited for"
        assert [run.id for run in journal.runs(states=["waiting", "done"])] == ["r3", "r1"], "only these states"
        assert [run.id for run in journal.runs(caller="bob")] == ["r6", "r4", "r2", "r0"], "only this caller's"
        assert journal.runs(caller="") == [], "no run is without a caller"
        assert [run.id for run in journal.runs(states=["running"], caller="ann")] == ["r5"], "both filters"
        page = journal.runs(limit=3)
        rest = journal.runs(limit=10, before=page[-1].created)
        assert [run.id for run in page + rest] == [run.id for run in listed], "pages must join"
        assert journal.runs(limit=0) == [], "a limit of 0 gives none"


def gives_a_run_to_one_owner(make: MakeStore) -> None:
    """Require that a run with a living owner is busy, and that the same owner may claim it again."""
    with _claimed(make) as journal:
        held = journal.get("r")
        assert (held.owner, held.state) == ("me", "running"), f"got {held}"
        assert time.time() + 50 < held.lease < time.time() + 70, f"the lease is {held.lease}"
        with _refuses("a claim of another's run", "run_busy"):
            journal.claim("r", "other", 60)
        assert journal.get("r") == held, "a refused claim must change nothing"
        assert journal.claim("r", "me", 90).lease > held.lease, "the same owner may claim again"


def passes_a_run_on_after_its_lease(make: MakeStore) -> None:
    """Require that a lease that is over, or was given up, lets another one in, and keeps the old owner out."""
    with _claimed(make) as journal:
        journal.begin("r", "me", _call("1"))
        journal.renew("r", "me", 0)
        assert journal.claim("r", "other", 60).owner == "other", "the lease was over"
        with _refuses("an outcome of the old owner", "run_lost"):
            journal.end("r", "me", "1", "done", {})
        journal.end("r", "other", "1", "not_done", {})
        assert _steps(journal) == [("1", "not_done")], f"got {_steps(journal)}"


def renews_a_lease(make: MakeStore) -> None:
    """Require that a renewed lease counts from now."""
    with _claimed(make) as journal:
        journal.renew("r", "me", 1000)
        assert journal.get("r").lease > time.time() + 900, "the lease must be longer"


def recognises_a_dead_owner(make: MakeStore) -> None:
    """Require that a run whose process has died on this machine is free at once, and due."""
    machine = this_owner().partition("-")[0]
    dead = f"{machine}-{(1 << 22) + 1}-1"  # no process of Linux has a number like that
    with closing(make()()) as journal:
        for name, owner in (("a", dead), ("b", f"{dead}/2"), ("c", this_owner()), ("d", "elsewhere-1-2")):
            journal.create(_run(name))
            journal.claim(name, owner, 60)
        is_known = machine != "0"  # else nothing is known of processes on this system
        assert sorted(journal.due(time.time())) == (["a", "b"] if is_known else []), "dead owners' runs are due"
        for name in "cd":
            with _refuses("a claim of a run whose owner may live", "run_busy"):
                journal.claim(name, "me", 60)
        for name in "ab" if is_known else "":
            assert journal.claim(name, "me", 60).owner == "me", "a dead owner must not keep a run"


def keeps_others_from_writing(make: MakeStore) -> None:
    """Require `run_lost` of every write of one that does not own the run, with nothing written."""
    with _claimed(make) as journal:
        journal.begin("r", "me", _call("1"))
        before = (journal.get("r"), journal.calls("r"))
        uses: dict[str, Callable[[], object]] = {
            "renew": lambda: journal.renew("r", "other", 1),
            "begin": lambda: journal.begin("r", "other", _call("2"), [["1"]]),
            "end": lambda: journal.end("r", "other", "1", "done", {}),
            "save": lambda: journal.save("r", "other", Snapshot(calls=0, state={})),
            "suspend": lambda: journal.suspend("r", "other", [], [["1"]]),
            "take": lambda: journal.take("r", "other", "1", "n"),
            "finish": lambda: journal.finish("r", "other", "done", {}, [["1"]]),
        }
        for name, use in uses.items():
            with _refuses(name, "run_lost"):
                use()
        assert (journal.get("r"), journal.calls("r")) == before, "a refused write must change nothing"
        assert (journal.deliveries("r"), journal.snapshot("r")) == ([], None), "a refused write must change nothing"
        journal.suspend("r", "me", [])
        with _refuses("a write to a run without an owner", "run_lost"):
            journal.begin("r", "", _call("2"))


def records_calls_in_order(make: MakeStore) -> None:
    """Require that calls are read in the order of their beginning, with all that was written."""
    with _claimed(make) as journal:
        first = _call("b.1", tool="n:t", definition="v2", args="y", sent="key", at=(3, 14), began=55.5)
        journal.begin("r", "me", first)
        journal.begin("r", "me", _call("a"))
        outcome = {"value": [1, {"x": None}, _AWKWARD], "big": 1 << 70, "f": 1.5}
        journal.end("r", "me", "a", "done", outcome)
        journal.begin("r", "me", _call("0"))
        journal.end("r", "me", "0", "failed", {"error": {"code": "x"}})
        calls = journal.calls("r")
        assert [call.step for call in calls] == ["b.1", "a", "0"], f"got {calls}"
        assert [call.number for call in calls] == [1, 2, 3], f"numbers are {[call.number for call in calls]}"
        got = calls[0]
        assert (got.tool, got.definition, got.args, got.sent, got.at, got.began, got.state) == (
            *("n:t", "v2", "y", "key", (3, 14), 55.5),
            "begun",
        ), f"got {got}"
        assert (got.outcome, got.ended) == (None, None), "a call that has begun has no outcome"
        assert (calls[1].state, calls[1].outcome) == ("done", outcome), f"got {calls[1]}"
        assert calls[1].ended is not None, "an outcome has a time"
        assert (calls[2].state, calls[2].at) == ("failed", None), f"got {calls[2]}"
        assert [call.step for call in journal.calls("r", after=2)] == ["0"], "the first two must be left out"
        assert journal.get("r").calls == 3, "a run counts its calls"


def begins_a_call_again(make: MakeStore) -> None:
    """Require that a call of unknown outcome can begin again, in its old place, and one with an outcome cannot."""
    with _claimed(make) as journal:
        journal.begin("r", "me", _call("1", sent="old"))
        journal.begin("r", "me", _call("2"))
        journal.begin("r", "me", _call("1", sent="new", definition="v3", began=9.0))
        calls = journal.calls("r")
        assert [(call.step, call.number) for call in calls] == [("1", 1), ("2", 2)], f"got {calls}"
        assert (calls[0].sent, calls[0].definition, calls[0].began) == ("new", "v3", 9.0), f"got {calls[0]}"
        assert journal.get("r").calls == 2, "it is the same call"
        journal.end("r", "me", "1", "done", {"value": 1})
        with _unusable("a call with an outcome that begins again"):
            journal.begin("r", "me", _call("1"), [["1"]])
        assert journal.calls("r")[0].outcome == {"value": 1}, "the outcome must stay"
        assert journal.deliveries("r") == [], "a refused write must change nothing"


def keeps_the_first_outcome(make: MakeStore) -> None:
    """Require that an outcome needs a call, is written once, and that the same outcome again is fine."""
    with _claimed(make) as journal:
        with _unusable("the outcome of a call that never began"):
            journal.end("r", "me", "1", "done", {})
        journal.begin("r", "me", _call("1"))
        with _unusable("`begun` as the end of a call"):
            journal.end("r", "me", "1", "begun", {})
        journal.end("r", "me", "1", "done", {"value": 1})
        journal.end("r", "me", "1", "done", {"value": 1})
        for state, value in (("done", 2), ("failed", 1)):
            with _unusable("another outcome"):
                journal.end("r", "me", "1", state, {"value": value})  # pyright: ignore[reportArgumentType]
        assert journal.calls("r")[0].outcome == {"value": 1}, "the first outcome must stay"


def records_deliveries(make: MakeStore) -> None:
    """Require that groups of answers are read in the order in which they were written."""
    with _claimed(make) as journal:
        assert journal.deliveries("r") == [], "nothing was delivered"
        journal.begin("r", "me", _call("1"))
        journal.begin("r", "me", _call("2"), [["1"], [], ["0", "3"]])
        journal.suspend("r", "me", [], [["2"]])
        journal.claim("r", "me", 60)
        journal.begin("r", "me", _call("2"), [("5",)])
        journal.finish("r", "me", "done", {}, [["6", "7"]])
        expected = [["1"], [], ["0", "3"], ["2"], ["5"], ["6", "7"]]
        assert journal.deliveries("r") == expected, f"got {journal.deliveries('r')}"


def keeps_the_last_snapshot(make: MakeStore) -> None:
    """Require that a snapshot takes the place of the last one."""
    with _claimed(make) as journal:
        assert journal.snapshot("r") is None, "there is none yet"
        for calls in (100, 200):
            journal.save("r", "me", Snapshot(calls=calls, state={"at": calls, "x": _AWKWARD}))
        found = journal.snapshot("r")
        assert found == Snapshot(calls=200, state={"at": 200, "x": _AWKWARD}), f"got {found}"


def suspends_until_something_happens(make: MakeStore) -> None:
    """Require that a suspended run has no owner, says what it waits for, and is due when a wait is over."""
    with _claimed(make) as journal:
        waits = (
            Wait(step="1", kind="time", due=2000.0, since=1.0),
            Wait(step="2", kind="input", name="input:2", details={"question": "?", "schema": {}}, due=1500.0),
        )
        assert journal.suspend("r", "me", waits) is True, "nothing has come meanwhile"
        run = journal.get("r")
        assert (run.state, run.owner, run.waits) == ("waiting", "", waits), f"got {run}"
        assert journal.due(1499.0) == [], "nothing is over yet"
        assert journal.due(1500.0) == ["r"], "the first wait is over"
        back = journal.claim("r", "me", 60)
        assert (back.state, back.owner, back.waits) == ("running", "me", ()), f"got {back}"
        assert journal.due(1600.0) == [], "it runs again"
        assert journal.suspend("r", "me", [Wait(step="3", kind="signal", name="go")]), "it waits for a signal"
        assert journal.due(1e12) == [], "only a signal can wake it"


def wakes_with_a_signal(make: MakeStore) -> None:
    """Require that a signal that a run waits for makes it due, and that one that it does not wait for is kept."""
    with _claimed(make) as journal:
        journal.suspend("r", "me", [Wait(step="3", kind="signal", name="go")])
        assert journal.signal("r", Signal(id="s1", name="other", payload={"a": _AWKWARD}, sender="bob")) is False
        assert journal.due(1e12) == [], "another signal must not wake it"
        assert journal.signal("r", Signal(id="s2", name="go", payload=[1], sent=77.0)) is True, "it waits for that"
        assert journal.signal("r", Signal(id="s2", name="go", payload=[2])) is True, "the same signal again"
        assert journal.due(1.0) == ["r"], "it is due at once"
        kept = journal.signals("r")
        assert [(signal.id, signal.payload) for signal in kept] == [("s1", {"a": _AWKWARD}), ("s2", [1])], f"{kept}"
        assert (kept[0].sender, kept[1].sent, kept[0].taken_by) == ("bob", 77.0, ""), f"{kept}"
        assert kept[0].sent > 0, "a signal without a time gets one"


def does_not_miss_a_signal(make: MakeStore) -> None:
    """Require that a run is not suspended for a signal that is there, and that nothing is written then."""
    with _claimed(make) as journal:
        assert journal.signal("r", Signal(id="s", name="go")) is False, "the run does not wait"
        waits = [Wait(step="1", kind="signal", name="go"), Wait(step="2", kind="time", due=9.0)]
        assert journal.suspend("r", "me", waits, [["1"]]) is False, "the signal is there"
        run = journal.get("r")
        assert (run.owner, run.state, run.waits) == ("me", "running", ()), f"got {run}"
        assert journal.deliveries("r") == [], "nothing must be written"
        assert journal.take("r", "me", "1", "go") is not None, "the signal is there"
        assert journal.suspend("r", "me", waits) is False, "what a step has just taken is on its way to the program"
        assert journal.suspend("r", "me", [Wait(step="3", kind="signal", name="go")]) is True, "it was taken"


def takes_signals_once(make: MakeStore) -> None:
    """Require that each signal goes to one step, the first first, and to the same step again after a crash."""
    with _claimed(make) as journal:
        for number in range(3):
            journal.signal("r", Signal(id=f"s{number}", name="go", payload=number))
        assert journal.take("r", "me", "1", "stop") is None, "there is no such signal"
        for step, payload in (("1", 0), ("2", 1), ("1", 0)):
            got = journal.take("r", "me", step, "go")
            assert got is not None, f"step {step} must get a signal"
            assert (got.payload, got.taken_by) == (payload, step), f"step {step} got {got}"
        assert [signal.taken_by for signal in journal.signals("r")] == ["1", "2", ""], f"{journal.signals('r')}"
        journal.suspend("r", "me", [Wait(step="9", kind="signal", name="halt")])
        assert journal.signal("r", Signal(id="s0", name="go")) is False, "a signal that was taken wakes nothing"


def ends_a_run(make: MakeStore) -> None:
    """Require that a run that has ended has a result and no owner, stays as it is, and takes no signal."""
    with _claimed(make) as journal:
        with _unusable("an end that is not one"):
            journal.finish("r", "me", "waiting", {})
        journal.finish("r", "me", "done", {"value": _AWKWARD})
        run = journal.get("r")
        assert (run.state, run.owner, run.result) == ("done", "", {"value": _AWKWARD}), f"got {run}"
        assert journal.claim("r", "me", 60) == run, "a run that has ended cannot be claimed"
        assert journal.cancel("r") is False, "a run that has ended cannot be cancelled"
        with _refuses("a signal to a run that has ended", "run_ended"):
            journal.signal("r", Signal(id="s", name="n"))
        with _refuses("a write to a run that has ended", "run_lost"):
            journal.begin("r", "me", _call("1"))
        assert journal.get("r") == run, "it must stay as it is"
        assert journal.due(1e12) == [], "it is over"


def cancels_at_once_or_asks(make: MakeStore) -> None:
    """Require that a run without an owner is cancelled at once, and that an owner learns it at its next write."""
    with _claimed(make) as journal:
        journal.create(_run("idle"))
        assert journal.cancel("idle") is True, "it has no owner"
        assert journal.get("idle").state == "cancelled", "it is cancelled"
        assert journal.cancel("idle") is True, "it is cancelled still"
        journal.begin("r", "me", _call("1"))
        assert journal.cancel("r") is False, "its owner is to end it"
        assert journal.get("r").cancel_asked, "it was asked for"
        uses: dict[str, Callable[[], object]] = {
            "renew": lambda: journal.renew("r", "me", 1),
            "begin": lambda: journal.begin("r", "me", _call("2")),
            "save": lambda: journal.save("r", "me", Snapshot(calls=0, state={})),
            "suspend": lambda: journal.suspend("r", "me", []),
            "take": lambda: journal.take("r", "me", "1", "n"),
        }
        for name, use in uses.items():
            with _refuses(name, "run_cancelled"):
                use()
        journal.end("r", "me", "1", "done", {"value": 1})
        assert _steps(journal) == [("1", "done")], "what a call has done is recorded all the same"
        journal.finish("r", "me", "cancelled", {"error": {}})
        assert journal.get("r").state == "cancelled", "its owner has ended it"


def cancels_for_an_owner_that_is_gone(make: MakeStore) -> None:
    """Require that a run that was to be cancelled is cancelled by the next one who claims it."""
    with _claimed(make) as journal:
        journal.cancel("r")
        journal.finish("r", "me", "done", {"value": 1})
        assert journal.get("r").state == "done", "an owner that was quicker than the wish may end it"
        journal.create(_run("s"))
        journal.claim("s", "me", 60)
        journal.cancel("s")
        # Its process dies; a lease that is over stands for that.
        assert journal.claim("s", "me", 0).state == "cancelled", "no owner may go on with it"
        with _refuses("a write to a run that was cancelled", "run_cancelled"):
            journal.begin("s", "me", _call("1"))


def lists_what_is_due(make: MakeStore) -> None:
    """Require that runs without a living owner are due, those that wait for the longest time first."""
    with closing(make()()) as journal:
        for name, due in (("b", 20.0), ("a", 10.0), ("c", 30.0)):
            journal.create(_run(name))
            journal.claim(name, "me", 60)
            journal.suspend(name, "me", [Wait(step="1", kind="time", due=due)])
        journal.create(_run("new"))
        assert journal.due(25.0) == ["new", "a", "b"], f"got {journal.due(25.0)}"
        assert journal.due(25.0, limit=2) == ["new", "a"], "no more than the limit"
        journal.claim("new", "me", 60)
        assert journal.due(25.0) == ["a", "b"], "an owner has it"
        assert journal.due(time.time() + 61) == ["a", "b", "c", "new"], "its lease is over by then"


def forgets_runs_that_have_ended(make: MakeStore) -> None:
    """Require that nothing of a deleted run is left, and that one that has not ended stays."""
    with _claimed(make) as journal:
        journal.begin("r", "me", _call("1"), [["0"]])
        journal.signal("r", Signal(id="s", name="n"))
        journal.save("r", "me", Snapshot(calls=0, state={}))
        with _refuses("to delete a run that has not ended", "run_busy"):
            journal.delete("r")
        journal.finish("r", "me", "failed", {})
        assert journal.delete("r") is True, "there was one"
        assert journal.delete("r") is False, "there is none any more"
        journal.create(_run())
        assert (journal.calls("r"), journal.deliveries("r"), journal.signals("r")) == ([], [], []), "nothing is left"
        assert journal.snapshot("r") is None, "nothing is left"


def refuses_what_is_not_json(make: MakeStore) -> None:
    """Require JournalError, with nothing written, for what a store could not give back."""
    with _claimed(make) as journal:
        journal.begin("r", "me", _call("1"))
        for value in (float("nan"), {1, 2}, "\ud800"):
            with _unusable(f"the outcome {value!r}"):
                journal.end("r", "me", "1", "done", {"value": value})
        with _unusable("a lone surrogate"):
            journal.begin("r", "me", _call("\ud800"))
        assert _steps(journal) == [("1", "begun")], f"got {_steps(journal)}"


def keeps_large_outcomes(make: MakeStore) -> None:
    """Require that an outcome of megabytes is kept as it is."""
    with _claimed(make) as journal:
        journal.begin("r", "me", _call("1"))
        outcome = {"value": "\u20acx" * 2_000_000}
        journal.end("r", "me", "1", "done", outcome)
        assert journal.calls("r")[0].outcome == outcome, "the outcome has changed"


def stands_many_threads(make: MakeStore) -> None:
    """Require that threads and several openers lose nothing, and that each signal goes to one step."""
    open_store = make()
    with closing(open_store()) as journal, closing(open_store()) as other:
        for number in range(4):
            journal.create(_run(f"r{number}"))
            journal.claim(f"r{number}", "me", 60)

        def work(turn: int) -> None:
            used = other if turn % 2 else journal
            run_id, step = f"r{turn % 4}", str(turn)
            used.begin(run_id, "me", _call(step))
            used.signal(run_id, Signal(id=step, name="go"))
            got = used.take(run_id, "me", step, "go")
            used.end(run_id, "me", step, "done", {"took": got and got.id})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(80)))
        for number in range(4):
            calls = journal.calls(f"r{number}")
            assert sorted(call.number for call in calls) == list(range(1, 21)), "each call has its own number"
            took = {(call.outcome or {}).get("took") for call in calls}
            assert len(took) == 20, f"20 calls took {len(took)} signals"
            assert None not in took, "there was a signal for each"


def has_one_winner(make: MakeStore) -> None:
    """Require that of many that create and claim a run at once one has it."""
    open_store = make()
    with closing(open_store()) as journal, closing(open_store()) as other:

        def claim(number: int) -> str:
            used = other if number % 2 else journal
            used.create(_run())
            try:
                return used.claim("r", f"owner {number}", 60).owner
            except RunBusyError:
                return ""

        with ThreadPoolExecutor(8) as pool:
            winners = [owner for owner in pool.map(claim, range(16)) if owner]
        assert len(winners) == 1, f"{winners} had it at once"
        assert journal.get("r").owner == winners[0], "another one has it"


def refuses_after_close(make: MakeStore) -> None:
    """Require that a closed journal raises JournalError, can be closed again, and has lost nothing."""
    open_store = make()
    journal = open_store()
    journal.create(_run())
    journal.close()
    journal.close()
    with _unusable("a closed journal"):
        journal.get("r")
    with _unusable("a closed journal"):
        journal.create(_run("s"))
    with closing(open_store()) as again:
        assert again.get("r").source == "1", "the run must be there"


JOURNAL_CHECKS: tuple[Callable[[MakeStore], None], ...] = tuple(checks_of(__name__).values())
"""Every check; each takes a factory of empty stores and raises AssertionError with the broken promise."""


def check_journal(make: MakeStore, *, known_gaps: Collection[str] = ()) -> None:
    """Put the stores that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    checks = {check.__name__: check for check in JOURNAL_CHECKS}
    report = Report("journal", checks, known_gaps)
    for name, check in checks.items():
        with report.check(name):
            check(make)
    report.conclude()
