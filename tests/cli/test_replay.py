"""The commands `replay`, `runs fork` and `runs diff`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec
from toolexec.cli import replay as command

Cli = Callable[..., Any]
FLOW = """
total := 0
for n in [1, 2, 3] {
    total = run("math:add", {a: total, b: n})
}
return total
"""


@pytest.fixture
def settings(tmp_path: Path, tools_file: Path, cli: Cli) -> Path:
    """Return settings with a journal that has a workflow's run `order`."""
    path = tmp_path / "toolexec.toml"
    path.write_text(f'[sources]\npython = ["{tools_file}"]\n[durable]\njournal = "runs.db"\nlinger = 0.05\n')
    flow = tmp_path / "flow.tool"
    flow.write_text(FLOW)
    assert cli("workflow", "run", flow, "--durable", "order", "-c", path).exit_code == 0
    return path


def test_a_replay_prints_what_is_there(cli: Cli, settings: Path) -> None:
    """As JSON it has what was asked for, as text the source with its position."""
    ran = cli("replay", "order", "--to", "call:2", "--print", "vars", "-e", "total * 10", "-c", settings, "--json")
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["reason"], found["line"]) == (0, "call", 4)
    assert found["text"].strip().startswith("total =")
    assert (found["variables"], found["values"]) == ({"total": "1", "n": "2"}, {"total * 10": "10"})
    assert {"calls", "source"}.isdisjoint(found)
    shown = cli("replay", "order", "--to", "line:4", "--to", "step", "-c", settings)
    assert "→ 4 " in shown.stdout or "→ 3 " in shown.stdout
    assert json.loads(cli("replay", "order", "-c", settings, "--json").stdout)["value"] == 6


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["order", "--to", "somewhere"], 2, "a replay goes to"),
        (["order", "--to", "call:9"], 3, "has no call 9"),
        (["order", "--to", "call:1", "-e", "total +"], 3, "expected"),
        (["nix", "--to", "error"], 3, "no run nix"),
        (["order", "--print", "all"], 2, "is not one of"),
    ],
)
def test_a_replay_names_what_makes_no_sense(
    cli: Cli, settings: Path, words: list[str], code: int, message: str
) -> None:
    """Each has its exit code, and says what there is."""
    ran = cli("replay", *words, "-c", settings)
    assert (ran.exit_code, message in ran.stderr) == (code, True), ran.stderr


def test_a_program_of_a_session_is_looked_into(cli: Cli, settings: Path) -> None:
    """A program has the variables of those before it; `runs show` says which one it is, and a fork says why there is none."""
    with Exec(journal=settings.with_name("runs.db"), record=1).sync as ex:
        ex.add(lambda a, b: a + b, "math:add")
        with ex.session() as session:
            for program in ("x = [tools.math.add(a=1, b=2)]", "x.append(4)", "return tools.math.add(a=x[0], b=x[1])"):
                assert session.execute_code(program).ok
        third, second, _ = (run.id for run in ex.runs.list(limit=3))
    ran = cli("replay", third, "--to", "call:1", "--print", "vars", "-e", "sum(x)", "-c", settings, "--json")
    found = json.loads(ran.stdout)
    assert (ran.exit_code, found["variables"], found["values"]) == (0, {"x": "[3, 4]"}, {"sum(x)": "7"})
    assert cli("runs", "replay", third, "-c", settings).exit_code == 0
    shown = cli("runs", "show", third, "-c", settings)
    assert f"program 3 of a session, after {second}" in shown.stdout + shown.stderr
    data = json.loads(cli("runs", "show", third, "-c", settings, "--json").stdout)
    assert data["session"] == {"number": 3, "previous": second}
    refused = cli("runs", "fork", third, "--at", "1", "-c", settings)
    assert (refused.exit_code, "program of a session" in refused.stderr) == (2, True)


def test_a_prompt_does_what_is_typed(cli: Cli, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands move, print and evaluate; a mistake ends nothing."""
    typed = iter(["n\n", "call 2\n", "v\n", "total + 1\n", "nonsense(\n", "b\n", "h\n", "a\n", "c\n", "q\n"])
    monkeypatch.setattr(command, "_is_terminal", lambda: True)
    monkeypatch.setattr(command, "_typed", lambda: next(typed))
    ran = cli("replay", "order", "-c", settings)
    assert ran.exit_code == 0
    assert {"total = 1", "n = 2"} <= {*ran.stdout.splitlines()}
    assert "\n2\n" in ran.stdout
    assert "go on to the next line" in ran.stdout
    assert "at the end, after 3 calls" in ran.stderr
    assert next(typed, None) is None


def test_a_run_is_forked_and_compared(cli: Cli, settings: Path, tmp_path: Path) -> None:
    """Offline it wants an answer, and exits as a run that waits; live it goes on."""
    answer = tmp_path / "answer.json"
    answer.write_text("100")
    fork = ["runs", "fork", "order", "--at", "2", "--answer", answer, "-c", settings]
    made = cli(*fork, "--json")
    found = json.loads(made.stdout)
    assert (made.exit_code, found["runId"], found["reused"]) == (4, "order.fork-1", 2)
    assert found["result"]["error"]["code"] == "run_unanswered"
    assert "forked from order at call 2" in cli("runs", "show", "order.fork-1", "-c", settings).stderr
    live = cli(*fork, "--live", "--id", "other")
    assert (live.exit_code, live.stdout) == (0, "103\n")
    compared = cli("runs", "diff", "order", "other", "-c", settings)
    assert compared.exit_code == 1
    assert "the first call that differs is 2 (step 0.2): result" in compared.stderr
    assert cli("runs", "diff", "order", "order", "-c", settings).exit_code == 0
    answer.write_text("{")
    assert cli(*fork).exit_code == 2
