"""`toolexec sandbox check` on a remote runtime that the settings name: the sandbox behind it is measured from inside."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from packages.remote.tests.processes import KEY, RemoteServer
from tests.command_line import CliRunner, Result
from tests.tiers import missing

from toolexec.cli import app

pytestmark = pytest.mark.full

SOME = ("--only", "environment", "--only", "vsock", "--only", "read_host_files")
IMAGE = "toolexec-test"


def check(directory: Path, endpoint: str, sandbox: str, *words: str) -> Result:
    """Run the command with a remote runtime as the only sandbox."""
    file = directory / "toolexec.toml"
    file.write_text(
        f'[sandboxes]\nuse = ["remote"]\n[sandboxes.remote]\nendpoints = ["{endpoint}"]\nkey_id = "{KEY.id}"\n'
        f'token = "secretref:env:REMOTE_TOKEN"\nsigning_key = "secretref:env:REMOTE_SECRET"\nsandbox = "{sandbox}"\n'
    )
    runner = CliRunner(env={"REMOTE_TOKEN": KEY.token, "REMOTE_SECRET": KEY.secret})
    return runner.invoke(app.app, ["-c", str(file), "sandbox", "check", *SOME, *words])


def test_the_sandbox_behind_a_remote_runtime_is_measured(tmp_path: Path) -> None:
    """Programs run there, in containers; the report says which sandbox kept the promises. Without the runtime nothing is
    measured, and nothing takes its place."""
    if not hasattr(os, "geteuid") or os.geteuid():
        pytest.skip("the server's containers need root")
    if shutil.which("bwrap") is None:
        missing("there is no bubblewrap", "apt-get install bubblewrap")
    with RemoteServer(tmp_path, "bubblewrap", image=IMAGE) as server:
        done = check(tmp_path, server.endpoint, "bubblewrap", "--json")
        data = json.loads(done.stdout)
        assert (done.exit_code, data["ok"]) == (0, True), done.output
        [column] = data["sandboxes"]
        assert (column["kind"], column["inner"], column["isolation"]) == ("remote", "bubblewrap", "container")
        assert [each["sandboxes"] for each in data["promises"]] == [{"remote": "kept"}] * 3
        shown = check(tmp_path, server.endpoint, "bubblewrap")
        assert "held by remote (bubblewrap behind it, profile standard, " in " ".join(shown.stdout.split())
    done = check(tmp_path, server.endpoint, "bubblewrap", "--json")
    assert done.exit_code == 3
    [column] = json.loads(done.stdout)["sandboxes"]
    assert column["reason"]
    assert column["outcomes"] == []


def test_a_runtime_with_another_sandbox_is_not_measured(tmp_path: Path) -> None:
    """Another sandbox there is no substitute for the one that the settings name."""
    with RemoteServer(tmp_path) as server:
        done = check(tmp_path, server.endpoint, "gvisor", "--json")
        assert done.exit_code == 3, done.output
        [column] = json.loads(done.stdout)["sandboxes"]
        assert column["outcomes"] == []
        assert column["reason"]
