"""Integrations whose frameworks are too large for this environment, in one of their own: each in its framework's own
agent loop, with a model that is scripted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.adapter.vendors.environment import ROOT, vendor_python

from toolexec import Exec
from toolexec.errors import MissingExtraError
from toolexec.integrations import claude_agent_sdk, google_adk, llama_index, smolagents

HERE = Path(__file__).parent / "frameworks"
FRAMEWORKS = ("claude_agent_sdk", "google_adk", "llama_index", "smolagents")


@pytest.fixture(scope="module")
def python(sandbox: None) -> Path:
    """The Python of that environment, made before the clock of a single test runs."""
    return vendor_python(HERE / "requirements.txt")


@pytest.mark.full
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_framework_in_an_environment_of_its_own(framework: str, python: Path, tmp_path: Path) -> None:
    """Its agents call, search and program the tools; approvals, identities, failures and the lines of the page hold."""
    kept = ("PATH", "HOME", "XDG_CACHE_HOME", "COVERAGE_PROCESS_CONFIG")
    environment = {name: value for name in kept if (value := os.environ.get(name)) is not None}
    environment |= {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = ["-q", "-c", os.devnull, "--noconftest", "--import-mode=importlib", "-p", "no:cacheprovider", "-rs"]
    done = subprocess.run(
        [str(python), "-m", "pytest", *arguments, f"--rootdir={HERE}", str(HERE / f"check_{framework}.py")],
        env=environment | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (claude_agent_sdk.options, "claude-agent-sdk"),
        (google_adk.toolset, "google-adk"),
        (llama_index.tools, "llama-index"),
        (llama_index.approval_request, "llama-index"),
        (smolagents.tools, "smolagents"),
    ],
)
def test_without_the_package_the_extra_is_named(make: Any, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the extra to install."""
    for name in ("claude_agent_sdk", "google.adk.tools.base_tool", "llama_index", "smolagents"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=re.escape(f"toolexec[{extra}]")):
        make(Exec())
