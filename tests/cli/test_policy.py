"""`toolexec policy`: tests of a policy, and rules that are suggested by the audit log."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolexec.cli.policy_diff import policy_diff

Cli = Callable[..., Any]
APP = '''
from toolexec import tool

@tool(namespace="files")
async def read(path: str) -> str:
    """Reads a file."""
    return path
'''
SETTINGS = """# mine
[policy]
remote_destructive = "deny"  # none of them

[[policy.rules]]
effect = "deny"
callers = ["guest-*"]
name = "guests"

[audit]
path = "audit.jsonl"
args = "redacted"

[sources]
python = ["app.py"]
"""
TESTS = """
tools: {"files:read": {backend: local}}
tests:
  - {name: guests may not, caller: guest-1, tool: "files:read", expect: deny, rule: guests}
  - {tool: "files:read", expect: allow}
"""
RULE = {"effect": "allow", "tools": ["a:b"], "callers": ['"ann"\n\x1b\u202e😀']}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with settings, a tool and tests."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "toolexec.toml").write_text(SETTINGS)
    (tmp_path / "policy_tests.yaml").write_text(TESTS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_tests_pass_and_fail(cli: Cli, place: Path) -> None:
    """The output has a dot or an F for each, what is wrong, and which rules no test is about."""
    done = cli("policy", "test")
    assert (done.exit_code, done.stdout) == (0, "..\n\n2 passed\n")
    (place / "more.toml").write_text(
        '[tools."files:read"]\nbackend = "mcp:x"\n[[tests]]\ntool = "files:read"\nexpect = "allow"\n'
    )
    done = cli("policy", "test", "more.toml")
    assert done.exit_code == 1
    assert "FAILED more.toml, 1. files:read\nexpected allow, but it is deny by remote_destructive" in done.stdout
    assert "rules that no test reached: guests" in done.stderr
    found = json.loads(cli("policy", "test", "policy_tests.yaml", "more.toml", "--json").stdout)
    assert (found["passed"], found["failed"], found["rules_without_test"]) == (2, 1, [])


def test_missing_and_wrong_tests_are_named(cli: Cli, place: Path) -> None:
    """The error says whether a file is missing, cannot be read, or does not say where a tool runs."""
    (place / "toolexec.toml").write_text("")
    assert "the settings have no [policy]" in cli("policy", "test").stderr
    (place / "policy_tests.yaml").unlink()
    assert "there are no policy tests: write policy_tests.yaml" in cli("policy", "test").stderr
    (place / "policy_tests.json").write_text('{"tests": [')
    done = cli("policy", "test")
    assert (done.exit_code, "policy_tests.json is not JSON" in done.stderr) == (2, True)
    (place / "policy_tests.json").write_text('{"tests": [{"tool": "files:read", "expect": "ask"}]}')
    assert "policy_tests.json: test 1: where does files:read run?" in cli("policy", "test").stderr


ENDPOINTS = """
[toolsets.reading]
allow = ["files:read"]

[[auth.api_keys]]
id = "ops"
sha256 = "49915e0d7d4b402e3017d010bc1c0e83cac6c797d6c16e66340fe3268693a6a1"

[endpoints.team]
toolsets = ["reading"]

[[endpoints.team.auth.api_keys]]
id = "ann"
sha256 = "59915e0d7d4b402e3017d010bc1c0e83cac6c797d6c16e66340fe3268693a6a1"

[[endpoints.team.policy.rules]]
name = "team reads"
effect = "ask"
tools = ["files:*"]
"""
AT_ENDPOINTS = """
tools: {"files:read": {backend: local}, "files:drop": {backend: local}}
tests:
  - {tool: "files:drop", expect: allow}
  - {endpoint: team, tool: "files:read", expect: ask, rule: team reads}
  - {endpoint: team, tool: "files:drop", expect: deny, rule: endpoint}
  - {endpoint: team, run: workflow, expect: allow}
  - {endpoint: team, caller: guest-1, tool: "files:read", expect: deny, rule: guests}
"""


def test_a_test_may_be_about_an_endpoint(cli: Cli, place: Path) -> None:
    """Its own policy and toolsets hold there, beside the general rules; an unknown one is named with the nearest."""
    (place / "toolexec.toml").write_text(SETTINGS + ENDPOINTS)
    (place / "policy_tests.yaml").write_text(AT_ENDPOINTS)
    done = cli("policy", "test")
    assert (done.exit_code, done.stdout) == (0, ".....\n\n5 passed\n"), done.stderr
    (place / "policy_tests.yaml").write_text(AT_ENDPOINTS.replace("endpoint: team, run", "endpoint: tema, run"))
    done = cli("policy", "test")
    assert (done.exit_code, "there is no endpoint 'tema'; did you mean team?" in done.stderr) == (2, True), done.stderr


@pytest.mark.skipif(shutil.which("patch") is None, reason="there is no patch here")
def test_a_suggestion_is_a_diff_that_patch_applies(cli: Cli, place: Path) -> None:
    """Calls that were made stay allowed, all else is denied, comments stay, and nothing more is suggested."""
    for name in ("a", "b"):
        assert cli("run", "files:read", f"path=/srv/data/{name}").exit_code == 0
    assert "the rules allow all" in cli("policy", "suggest", "--since", "2999-01-01").stderr
    done = cli("policy", "suggest", "--conditions", "--since", "yesterday")
    subprocess.run(["patch", "-p0"], input=done.stdout, text=True, cwd=place, check=True, stdout=subprocess.DEVNULL)
    text = (place / "toolexec.toml").read_text()
    assert text.startswith('# mine\n[policy]\ndefault = "deny"\nremote_destructive = "deny"  # none of them\n')
    assert 'when = { "path" = { "path_under" = "/srv/data" } }' in text
    assert cli("run", "files:read", "path=/srv/data/c").exit_code == 0
    assert cli("run", "files:read", "path=/etc/passwd").exit_code != 0
    assert "the rules allow all that succeeded" in cli("policy", "suggest").stderr
    assert json.loads(cli("policy", "suggest", "--json").stdout)["rules"] == []


@pytest.mark.parametrize(
    "before",
    [
        "",
        "[server]\nport = 1",
        '[policy]\ndefault="allow" # all\n[server]\n',
        '[[policy.rules]]\neffect = "ask"\n',
        '[server]\nport = 1\n\n[[policy.rules]] # one\neffect = "ask"\n',
    ],
)
def test_settings_keep_what_they_say(tmp_path: Path, before: str) -> None:
    """The diff changes nothing else of them, and strange characters are escaped."""
    file = tmp_path / "toolexec.toml"
    file.write_text(before)
    diff = policy_diff([file], [(RULE, 1)])
    assert diff.startswith(f"--- {file}\n+++ {file}\n")
    assert '+# 1 call\n+[[policy.rules]]\n+effect = "allow"\n' in diff
    assert '\\"ann\\"\\u000a\\u001b\\u202e😀' in diff


@pytest.mark.parametrize("before", ['policy = { default = "ask" }', '[policy]\nrules = [{effect = "ask"}]', "= 1"])
def test_settings_that_cannot_be_added_to_get_a_block_to_copy(tmp_path: Path, before: str) -> None:
    """The block has the new rules alone: no diff says something else."""
    file = tmp_path / "toolexec.toml"
    file.write_text(before)
    assert policy_diff([file], [(RULE, 2)]).startswith(f'# For the policy of {file}:\n[policy]\ndefault = "deny"\n')
    assert policy_diff([tmp_path / "a.yaml"], []).startswith(f"# For the policy of {tmp_path / 'a.yaml'}:\n")
    assert policy_diff([], []).startswith("# For toolexec.toml:\n")
