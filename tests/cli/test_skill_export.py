"""`toolexec skill export`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Cli = Callable[..., Any]
SKILL = '+++\nname = "Twice_over"\ndescription = "Doubles: a \\"number\\""\n+++\ninput n: integer\ninput m: integer = 1\nreturn n * 2\n'


def front_matter(file: Path) -> dict[str, Any]:
    found = re.match(r"---\n(.*?)\n---\n", file.read_text("utf-8"), re.DOTALL)
    assert found is not None
    return yaml.safe_load(found[1])


def test_the_skill_about_toolexec_is_written(cli: Cli, tmp_path: Path) -> None:
    """A directory with a SKILL.md, whose front matter has the name of the directory and a description that fits."""
    done = cli("skill", "export")
    assert done.exit_code == 0, done.output
    file = tmp_path / ".claude/skills/using-toolexec/SKILL.md"
    facts = front_matter(file)
    assert facts["name"] == "using-toolexec"
    assert 50 < len(facts["description"]) <= 1024
    assert cli("skill", "export").stdout == "kept .claude/skills/using-toolexec/SKILL.md\n"


def test_own_skills_are_written_with_their_source(cli: Cli, tmp_path: Path) -> None:
    """Each says how to run it, and what it takes."""
    (tmp_path / "twice.workflow").write_text(SKILL)
    data = json.loads(cli("skill", "export", "out", "-c", "twice.workflow", "--json").stdout)
    assert data["written"] == data["files"]
    directory = tmp_path / "out" / "twice-over"
    assert (directory / "twice-over.workflow").read_text() == SKILL
    assert front_matter(directory / "SKILL.md") == {"name": "twice-over", "description": 'Doubles: a "number"'}
    text = (directory / "SKILL.md").read_text()
    assert "toolexec skill run Twice_over n=...\n" in text
    assert "- `n`\n- `m` (may be left out)\n" in text


def test_an_edited_file_is_kept(cli: Cli, tmp_path: Path) -> None:
    """Unless --force is given; then all are as they are shipped."""
    file = tmp_path / "out/using-toolexec/SKILL.md"
    cli("skill", "export", "out")
    shipped = file.read_text()
    file.write_text("mine")
    done = cli("skill", "export", "out")
    assert done.exit_code == 2
    assert "is there already and differs" in done.stderr
    assert file.read_text() == "mine"
    assert cli("skill", "export", "out", "--force").exit_code == 0
    assert file.read_text() == shipped
