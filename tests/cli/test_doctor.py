"""The command that says what can run code here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
OWN = """
from toolexec import Exec
from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend
from toolexec.runtime.wasm.backend import WasmBackend

class Few(WasmBackend):
    languages = frozenset({"python", "wasm"})

class Bash(UnsafeHostBackend):
    languages = frozenset({"bash"})

ex = Exec(runtime_backends=[Few(), Bash()])
"""


def test_a_look_around(cli: Cli, sandbox: None) -> None:
    """Sandboxes, profiles, packages, cache; nothing has run."""
    done = cli("doctor", "--quick")
    assert done.exit_code == 0
    assert done.stderr == ""
    for word in ("python-science", "unsafe_host", "Security profiles", "wasmtime", "owner"):
        assert word in done.stdout
    assert "qemu" in done.stdout
    assert " ms" not in done.stdout


def test_json_has_it_all(cli: Cli, sandbox: None) -> None:
    """One document."""
    data = json.loads(cli("doctor", "--quick", "--json").stdout)
    assert data["ok"] is True
    kinds = {(entry["kind"], entry["language"]): entry for entry in data["sandboxes"]}
    assert kinds["wasm", "python"]["state"] == "ready"
    assert kinds["unsafe_host", "python"]["profiles"] == ["dev"]
    assert kinds["firecracker", ""]["state"] == "not_set_up"
    served = {entry["profile"]: entry["languages"] for entry in data["profiles"]}
    assert served["standard"]["python"] == "wasm"
    assert data["packages"]["wasmtime"]
    assert (data["cache"]["exists"], data["cache"]["problem"]) == (True, "")


@pytest.mark.full
def test_what_is_there_is_tried(cli: Cli, sandbox: None, tmp_path: Path) -> None:
    """A program runs in each, and the times are those to its result; an unsafe one warns of nothing then."""
    (tmp_path / "own.py").write_text(OWN)
    done = cli("doctor", "--json", "-c", "own.py")
    assert (done.exit_code, done.stderr) == (0, "")
    entries = {(entry["kind"], entry["language"]): entry for entry in json.loads(done.stdout)["sandboxes"]}
    for key in (("wasm", "python"), ("wasm", "wasm"), ("unsafe_host", "bash")):
        assert entries[key]["state"] == "ready"
        assert entries[key]["againMs"] > 0
    assert entries["wasm", "python"]["readiness"] == entries["wasm", "wasm"]["readiness"] == "prod"
    assert entries["wasm", "python"]["measured"]["limits"]["memory"] is True
    assert entries["unsafe_host", "bash"]["readiness"] == "beta"
    assert entries["unsafe_host", "bash"]["reasons"] == ["it isolates nothing"]
    done = cli("doctor", "-c", "own.py", FORCE_COLOR="1", COLUMNS="140")
    assert "trying wasm python ..." in done.stderr
    assert "needs --unsafe" in done.stdout
    assert "Readiness" in done.stdout
    assert "prod" in done.stdout
    assert "unsafe_host (bash) is beta: " in done.stdout
    assert "it isolates nothing" in done.stdout


def test_without_a_sandbox_it_is_not_well(cli: Cli, tmp_path: Path) -> None:
    """Nothing serves the default profile: exit code 1, and what is missing."""
    (tmp_path / "own.py").write_text("from toolexec import Exec\nex = Exec(runtime_backends=[])\n")
    done = cli("doctor", "-c", "own.py")
    assert done.exit_code == 1
    assert "nothing here: such code is refused" in done.stdout
    assert "not set up: unsafe_host, wasm, bubblewrap" in done.stdout.replace("\n", " ")


def test_the_names_of_sandboxes_are_whole_on_a_narrow_screen(cli: Cli) -> None:
    """A name that a user has to write elsewhere is not cut off."""
    table = cli("doctor", "--quick", COLUMNS="40").stdout.partition("Security profiles")[0]
    rows = [line.split()[0] for line in table.splitlines() if "●" in line or "…" in line]
    assert "wasm" in rows
    assert not [name for name in rows if "…" in name]


def test_a_directory_that_cannot_be_used(cli: Cli, tmp_path: Path) -> None:
    """The reason stands at the sandbox and at the cache."""
    (tmp_path / "file").write_text("")
    done = cli("doctor", "--quick", TOOLEXEC_CACHE=str(tmp_path / "file"))
    assert "● unavailable" in done.stdout
    assert "set TOOLEXEC_CACHE to a directory of your own" in " ".join(done.stdout.split())


def test_a_directory_that_is_not_there_yet(cli: Cli, tmp_path: Path) -> None:
    """That is no problem: it is made at the first use."""
    cache = json.loads(cli("doctor", "--quick", "--json", TOOLEXEC_CACHE=str(tmp_path / "new")).stdout)["cache"]
    assert cache["directory"] == str(tmp_path / "new" / "sandbox")
    assert (cache["problem"], cache["writable"], cache["bytes"]) == ("", True, 0)


def test_missing_packages_come_with_what_installs_them(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra of each."""
    monkeypatch.setattr("toolexec.cli.doctor._version", lambda name: None)
    done = cli("doctor", "--quick", COLUMNS="160")
    for extra in ("sandbox-build", "javascript", "science", "mcp"):
        assert f"pip install 'toolexec[{extra}]'" in done.stdout
    assert "pip install 'wasmtime'" in done.stdout
