"""`toolexec sandbox check`: which sandboxes it measures, what it shows, and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.bubblewrap import require_bwrap
from tests.workspace import usable

from toolexec.cli import sandbox_check
from toolexec.testing.matrix import Matrix

Cli = Callable[..., Any]
TWO = ("--only", "environment", "--only", "vsock")


def settings(directory: Path, text: str) -> Path:
    """Return a settings file with this in its block for sandboxes."""
    path = directory / "own.toml"
    path.write_text(f"[sandboxes]\n{text}\n")
    return path


@pytest.mark.full
def test_promises_that_are_kept(cli: Cli, sandbox: None) -> None:
    """Shows them in a table, and as JSON; exit code 0."""
    done = cli("sandbox", "check", *TWO)
    assert done.exit_code == 0
    assert "✓ kept" in done.stdout
    assert "2 of 2 hostile python programs were held by wasm (profile standard, " in done.stdout
    data = json.loads(cli("sandbox", "check", *TWO, "--json").stdout)
    assert data["ok"]
    assert data["promises"][0]["sandboxes"] == {"wasm": "kept"}
    [column] = data["sandboxes"]
    assert [(outcome["name"], outcome["held"]) for outcome in column["outcomes"]] == [
        ("environment", True),
        ("vsock", True),
    ]


@pytest.mark.full
def test_all_sandboxes_of_the_file_are_measured(cli: Cli, sandbox: None, tmp_path: Path) -> None:
    """Gives each of them a column, in their order; a kind alone takes one of them."""
    require_bwrap()
    file = settings(tmp_path, 'use = ["wasm", "bubblewrap"]')
    for words in (["-c", file, "sandbox", "check"], ["sandbox", "check", "-c", file]):
        data = json.loads(cli(*words, *TWO, "--json").stdout)
        assert data["promises"][1]["sandboxes"] == {"wasm": "kept", "bubblewrap": "kept"}
    data = json.loads(cli("sandbox", "check", "-c", file, "--backend", "bubblewrap", *TWO, "--json").stdout)
    assert [(column["kind"], column["image"]) for column in data["sandboxes"]] == [("bubblewrap", "host")]


@pytest.mark.full
def test_a_weaker_sandbox(cli: Cli) -> None:
    """Shows what got out, with its evidence; exit code 1."""
    done = cli("sandbox", "check", "--backend", "unsafe_host", "--unsafe", "--only", "read_host_files")
    assert done.exit_code == 1
    assert "✗ weaker" in done.stdout
    assert "unsafe_host: read_host_files, to read a file of the host" in done.stdout
    assert "0 of 1 hostile python programs were held by unsafe_host" in done.stdout


def test_an_absent_image_is_not_measured_elsewhere(cli: Cli, tmp_path: Path) -> None:
    """Names the image that is missing, and no other sandbox takes its place; exit code 3."""
    file = settings(tmp_path, 'use = ["bubblewrap"]\nimage = "team/none"')
    done = cli("sandbox", "check", "-c", file, "--only", "vsock", TOOLEXEC_CACHE=str(tmp_path / "cache"))
    assert done.exit_code == 3
    assert "○ never measured here" in done.stdout
    assert "image team/none, " in done.stdout
    assert "held by" not in done.stdout
    data = json.loads(cli("sandbox", "check", "-c", file, "--only", "vsock", "--json").stdout)
    assert (data["ok"], data["promises"][0]["sandboxes"]) == (False, {"bubblewrap": "unmeasured"})
    assert data["sandboxes"][0]["reason"]


@pytest.mark.parametrize("command", [("sandbox", "check"), ("doctor", "--quick"), ("code", "-e", "1")])
def test_a_missing_file_is_an_error(cli: Cli, command: tuple[str, ...]) -> None:
    """Says that the file cannot be read, on every command that needs sandboxes; exit code 2."""
    for words in (["-c", "missing.toml", *command], [*command, "-c", "missing.toml"]):
        done = cli(*words)
        assert done.exit_code == 2
        assert "cannot read missing.toml" in done.stderr


@pytest.mark.skipif(usable(["qemu"]) == [], reason="the extra `microvms` is not installed")
def test_a_machine_is_checked_where_it_is_configured(cli: Cli, tmp_path: Path) -> None:
    """Finds the kind that the file names, and says what it lacks here; a kind that it does not name is refused."""
    file = settings(tmp_path, 'use = ["qemu"]\nvm_image = "team/none"\nqemu = "/missing/qemu"')
    done = cli("sandbox", "check", "-c", file, "--backend", "qemu", "--only", "vsock")
    assert done.exit_code == 3
    assert "never measured here" in done.stdout
    done = cli("sandbox", "check", "-c", file, "--backend", "wasm")
    assert done.exit_code == 2
    assert "there is no sandbox 'wasm' here to check; there is: qemu" in done.stderr


def test_hostile_programs_do_not_run_here_by_accident(cli: Cli, tmp_path: Path) -> None:
    """Refuses a sandbox without isolation that is named, and leaves out one that is among others."""
    done = cli("sandbox", "check", "--backend", "unsafe_host")
    assert done.exit_code == 2
    assert "--unsafe" in done.stderr
    done = cli("sandbox", "check", "-c", settings(tmp_path, 'use = ["unsafe_host"]'), "--only", "environment")
    assert done.exit_code == 3
    assert "it has no isolation" in done.stdout
    assert "say --unsafe" in " ".join(done.stdout.split())


def test_programs_for_the_kernel_never_run_here(cli: Cli) -> None:
    """Runs none of them without isolation, whatever is said; exit code 3."""
    done = cli("sandbox", "check", "--backend", "unsafe_host", "--unsafe", "--only", "user_namespaces")
    assert done.exit_code == 3
    assert "○ never measured here" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--backend", "remote"], "there is no sandbox 'remote' here to check; there is: wasm, bubblewrap, "),
        (["--only", "nothing"], "no python programs nothing; there are: "),
        (["--language", "cobol"], "no cobol programs"),
    ],
)
def test_what_cannot_be_checked(cli: Cli, words: list[str], message: str) -> None:
    """Refuses an unknown sandbox and names those that can be checked."""
    done = cli("sandbox", "check", *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_sandbox_that_cannot_run_is_not_checked(cli: Cli, tmp_path: Path) -> None:
    """Gives the reason; exit code 3."""
    (tmp_path / "file").write_text("")
    done = cli("sandbox", "check", "--backend", "wasm", "--only", "vsock", TOOLEXEC_CACHE=str(tmp_path / "file"))
    assert done.exit_code == 3
    assert "TOOLEXEC_CACHE" in done.stdout


def test_without_promises_nothing_is_kept() -> None:
    """A sandbox that is not measured is not one that holds."""
    matrix = Matrix(language="python", user=0, promises=[], columns=[])
    assert not matrix.is_weaker
    assert sandbox_check._table(matrix).row_count == 0
