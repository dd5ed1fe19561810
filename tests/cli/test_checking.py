"""`toolexec check`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
SKILL = """+++
name = "twice"
description = "Doubles a number"
+++
input n: integer
return n * 2

# test: two
#   inputs := {n: 2}
#   returns := 4
"""


def checks(done: Any) -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in json.loads(done.stdout)["checks"]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which tools were seen before is not known."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("TOOLEXEC_CACHE", raising=False)


def test_it_checks_all_that_the_settings_name(cli: Cli, tmp_path: Path) -> None:
    """Settings, policy, skills and the sandbox of the profile, each with what it has."""
    (tmp_path / "skills").mkdir()
    (tmp_path / "skills" / "twice.workflow").write_text(SKILL)
    (tmp_path / "toolexec.toml").write_text(
        '[sources]\nskills = ["skills"]\n[[policy.rules]]\neffect = "deny"\ntools = ["x:*"]\n'
        '[mcpServers.a]\ncommand = "a"\n'
    )
    done = cli("check", "--json")
    found = checks(done)
    assert done.exit_code == 0
    assert {kind: each["state"] for kind, each in found.items()} == dict.fromkeys(
        ("settings", "policy", "skill", "sandboxes"), "ok"
    )
    assert found["skill"]["detail"] == "1 test"
    assert found["policy"]["detail"] == "1 rule, else allow; tool names: not known before toolexec list"
    assert "wasm" in found["sandboxes"]["detail"]
    lines = cli("check", COLUMNS="80")
    assert max(map(len, lines.stdout.splitlines())) <= 80
    assert "0 errors, 0 warnings" in lines.stderr


def test_mistakes_of_the_settings_are_listed(cli: Cli, tmp_path: Path) -> None:
    """All at once, with exit code 2; nothing else is checked, as it would follow from them."""
    (tmp_path / "toolexec.toml").write_text("[server]\nport = 'x'\nhots = 1\n")
    done = cli("check", "--json")
    assert done.exit_code == 2
    assert len(checks(done)["settings"]["errors"]) == 2
    assert "✗" in cli("check").stdout


def test_what_is_missing_here_is_a_warning(cli: Cli, tmp_path: Path) -> None:
    """A variable that is not set fails only with --strict."""
    (tmp_path / "toolexec.toml").write_text('[mcpServers.a]\ncommand = "a"\nenv = { K = "${NO_SUCH_KEY}" }\n')
    done = cli("check", "--json")
    assert done.exit_code == 0
    assert "NO_SUCH_KEY is not set here" in checks(done)["settings"]["warnings"][0]
    assert cli("check", "--strict").exit_code == 1


def test_a_rule_about_no_tool_is_a_warning(cli: Cli, tmp_path: Path, tools_file: Path) -> None:
    """A misspelt tool in a rule would be allowed; it shows once the tools are known. Prompts and resources are not tools."""
    (tmp_path / "toolexec.toml").write_text(
        f'[sources]\npython = ["{tools_file.name}"]\n[[policy.rules]]\neffect = "deny"\n'
        'tools = ["odd:fial", "math:*", "*:+prompt", "docs:a:+resource"]\n'
    )
    before = checks(cli("check", "--json"))["policy"]
    assert before["warnings"] == []
    assert "tool names: not known before toolexec list" in before["detail"]
    assert cli("list").exit_code == 0
    after = checks(cli("check", "--json"))["policy"]
    (warning,) = after["warnings"]
    assert warning.endswith("no tool is named odd:fial, so it has no effect; did you mean odd:fail?")
    assert "tool names" not in after["detail"]


def test_a_rule_about_no_tool_is_a_warning_while_a_server_is_away(cli: Cli, tmp_path: Path, tools_file: Path) -> None:
    """Only what may be about the tools of that server, by its name or namespace, or in any namespace, is left out; a
    tool in another spelling is named."""
    (tmp_path / "toolexec.toml").write_text(
        f'[sources]\npython = ["{tools_file.name}"]\n[mcpServers.gone]\ncommand = "no-such-command"\n'
        'namespace = "lost-ns"\n[[policy.rules]]\neffect = "deny"\n'
        'tools = ["math.add", "Gone:drop", "lost_ns:*", "*:drop", "math:add"]\n'
    )
    assert cli("list").exit_code == 0
    (warning,) = checks(cli("check", "--json"))["policy"]["warnings"]
    assert warning.endswith("no tool is named math.add, so it has no effect; did you mean math:add?")


def test_files_are_checked_by_what_they_are(cli: Cli, tmp_path: Path) -> None:
    """A workflow, a skill and its tests, a directory of them, and a file of settings."""
    (tmp_path / "good.workflow").write_text(SKILL)
    (tmp_path / "bad.workflow").write_text(SKILL.replace("returns := 4", "returns := 5"))
    (tmp_path / "broken.workflow").write_text("return nothing_like_this\n")
    (tmp_path / "other.toml").write_text("[server]\nport = 9\n")
    assert cli("check", "good.workflow").exit_code == 0
    done = cli("check", "bad.workflow", "--json")
    assert done.exit_code == 1
    assert "its test two fails" in checks(done)["skill"]["errors"][0]
    done = cli("check", "broken.workflow", "--json")
    assert done.exit_code == 1
    assert checks(done)["workflow"]["errors"][0].startswith("1:8: ")
    assert len(json.loads(cli("check", ".", "--json").stdout)["checks"]) == 3
    assert checks(cli("check", "other.toml", "--json"))["settings"]["name"] == "other.toml"
    done = cli("check", "none.workflow")
    assert done.exit_code == 2
    assert "there is no file none.workflow" in done.stderr
