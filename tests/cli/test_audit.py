"""`toolexec audit`: what was called, and whether the log is whole."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.command_line import CliRunner, Result
from tests.servers import server_environment

from toolexec.cli.audit import audit, audit_file
from toolexec.errors import ConfigurationError
from toolexec.run.audit import AuditLog

Cli = Callable[..., Result]
PROGRAM = """
import typer
from toolexec.cli.audit import audit
root = typer.Typer()
@root.callback()
def shared(context: typer.Context) -> None:
    context.obj = ((), False)
root.add_typer(audit, name="audit")
root()
"""


@pytest.fixture
def run() -> Cli:
    """Calls the commands in this process."""
    root = typer.Typer()

    @root.callback()
    def shared(context: typer.Context) -> None:
        context.obj = ((), False)

    root.add_typer(audit, name="audit")

    def call(*words: object, width: int = 160) -> Result:
        return CliRunner(env={"COLUMNS": str(width)}).invoke(root, ["audit", *map(str, words)])

    return call


def write(log: AuditLog, **record: Any) -> None:
    log.append({"run_id": record.get("tool", "r"), "outcome": "ok", "duration_ms": 1.5, **record})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A log with calls of many kinds."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path)
    write(log, kind="call", tool="git:log", caller={"id": "ann"}, client="ide")
    log.append({"kind": "start", "what": "chain", "run_id": "c1"})
    write(log, kind="call", tool="mail:send", run_id="r2", parent="c1", client="ide")
    write(log, kind="call", tool="mail:drop", run_id="r3", parent="c1", outcome="policy_denied", rule="no-drop")
    write(log, kind="chain", run_id="c1", details={"steps": 2}, outcome="policy_denied", reason="x\x1b[31my")
    log.append({"kind": "start", "what": "call", "tool": "odd:\x1b]0;x\x07wait", "run_id": "r9"})
    log.append({"note": "a torn line was moved"})
    log.close()
    return path


def test_tail_shows_calls_below_their_chain(run: Cli, path: Path) -> None:
    """The table has who, what and how, a chain before its calls, what has not ended, and escapes in words."""
    result = run("tail", path)
    assert result.exit_code == 0, result.output
    rows = result.stdout.splitlines()[2:]
    order = ("git:log", "chain steps=2", "└ mail:send", "└ mail:drop", "wait", "a torn line was moved")
    assert [word in row for word, row in zip(order, rows, strict=True)] == [True] * 6
    assert "ann" in rows[0]
    assert "1.5 ms" in rows[0]
    assert "policy_denied no-drop" in rows[3]
    assert r"policy_denied x\x1b[31my" in rows[1]
    assert "not ended" in rows[4]
    assert "\x1b" not in result.output


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--tool", "mail:*"], ["mail:send", "mail:drop"]),
        (["--caller", "ann"], ["git:log"]),
        (["--outcome", "policy_denied"], ["mail:drop", None]),
        (["--outcome", "denied"], ["mail:drop", None]),
        (["--outcome", "failed", "--tool", "mail:*"], ["mail:drop"]),
        (["--since", "yesterday", "--outcome", "denied"], ["mail:drop", None]),
        (["--since", "1h", "--caller", "ann"], ["git:log"]),
        (["--since", "2999-01-01"], []),
        (["-n", "1"], [None]),
        (["--tool", "none"], []),
    ],
)
def test_tail_filters(run: Cli, path: Path, words: list[str], shown: list[str | None]) -> None:
    """Only the records that were asked for are shown, as they are with --json."""
    result = run("tail", path, "--json", *words)
    assert [record.get("tool") for record in json.loads(result.stdout)["records"]] == shown
    if not shown:
        assert "no such calls" in run("tail", path, *words).output


@pytest.mark.parametrize("width", [60, 72, 80, 100, 120, 160])
def test_tail_is_readable_at_any_width(run: Cli, tmp_path: Path, width: int) -> None:
    """No line is longer than the screen, and the names of tools and outcomes stand in it whole."""
    tools = ["github:list_issues_by_label", "shop:refund", "notes:search"]
    outcomes = ["ok", "policy_denied", "remote_tool_failed", "backend_unavailable"]
    log = AuditLog.open(tmp_path / "a.jsonl")
    for number, outcome in enumerate(outcomes):
        caller = {"id": "ann.with-a-long-name@accounting.example.com"}
        record = {"tool": tools[number % 3], "outcome": outcome, "run_id": f"r{number}", "caller": caller}
        log.append({"kind": "call", "duration_ms": 1234.5, **record, "reason": "refunds are for people"})
    log.close()
    shown = run("tail", tmp_path / "a.jsonl", width=width).output
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert all(any(name in line for line in lines) for name in (tools if width > 60 else tools[1:]))
    assert all(any(outcome in line for line in lines) for outcome in outcomes)
    assert "Time (UTC)" in lines[0] or re.match(r"\d\d-\d\d UTC", lines[0])


def test_a_log_is_found(run: Cli, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a file the one of the environment is taken, else the one in the state directory; none is an error."""
    monkeypatch.delenv("TOOLEXEC_AUDIT", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(ConfigurationError, match=r"\.local/state/toolexec/audit\.jsonl"):
        audit_file(None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    result = run("tail")
    assert result.exit_code == 2
    assert "TOOLEXEC_AUDIT" in result.output
    monkeypatch.setenv("TOOLEXEC_AUDIT", str(path))
    assert audit_file(None) == path
    assert audit_file(path) == path


def test_verify_says_that_all_is_well(run: Cli, path: Path) -> None:
    """A log that holds together gives 0, and what is worth knowing about it."""
    result = run("verify", path)
    assert result.exit_code == 0, result.output
    assert "8 records from" in result.output
    assert "1 calls have not ended" in result.output
    data = json.loads(run("verify", path, "--json").stdout)
    assert (data["ok"], data["records"]) == (True, 8)
    assert run("verify", path, "--expect", data["lastHash"]).exit_code == 0


def test_verify_tells_what_was_changed(run: Cli, path: Path) -> None:
    """A changed log gives 1 and the lines."""
    path.write_bytes(path.read_bytes().replace(b"no-drop", b"allowed"))
    result = run("verify", path)
    assert result.exit_code == 1
    assert "audit.jsonl:5: its hash does not fit" in result.output
    result = run("verify", path, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["problems"][0]["place"] == "audit.jsonl:5"


def test_verify_uses_the_key(run: Cli, tmp_path: Path) -> None:
    """A log with a key needs it; files that were rotated away are mentioned."""
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")
    path = tmp_path / "keyed.jsonl"
    log = AuditLog.open(path, key=b"0123456789abcdef", max_bytes=1000, keep=1)
    for n in range(20):
        log.append({"note": str(n)})
    log.close()
    assert run("verify", path).exit_code == 1
    result = run("verify", path, "--key-file", key)
    assert result.exit_code == 0, result.output
    assert "older log files are missing" in result.output
    assert run("verify", path, "--key-file", tmp_path / "none").exit_code == 2


@pytest.mark.full
@pytest.mark.parametrize("as_json", [False, True])
def test_follow_shows_what_comes(path: Path, as_json: bool) -> None:
    """With --follow later calls are shown as they come, until Ctrl-C."""
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        "audit",
        "tail",
        str(path),
        "-f",
        "-n",
        "1",
        *(["--json"] if as_json else []),
    ]
    environment = {**server_environment(), "COLUMNS": "200"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "a torn line was moved" in line:
                break
        log = AuditLog.open(path)
        write(log, kind="start", what="call", tool="x:y")
        write(log, kind="call", tool="x:y", caller={"id": "bob"})
        log.close()
        line = process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        process.stdout.read()
        assert process.wait(timeout=20) == 130
    if as_json:
        assert json.loads(line)["tool"] == "x:y"
    else:
        assert "bob  x:y  ok  1.5 ms" in line
