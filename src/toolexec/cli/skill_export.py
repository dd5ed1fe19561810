"""`toolexec skill export`: write skills as coding agents read them, each a directory with a SKILL.md."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.cli.exit_codes import OK
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.workflow.skill import Skill

_SHIPPED: Final = "using-toolexec"
_FILE: Final = "SKILL.md"
_MOST_NAME: Final = 64
_MOST_DESCRIPTION: Final = 1024


async def export_skills(session: Session, to: Path, *, force: bool) -> int:
    """Write the skill about toolexec, and one for each skill of the configuration, below a directory.

    What is there and says the same stays. Raises ConfigurationError for a file that says something else, unless *force*
    is set, and for a directory that cannot be written; then nothing was written.
    """
    from toolexec.process.atomic import replace_files

    wanted = {to / _SHIPPED / _FILE: shipped_skill()}
    for skill in session.ex.skills.values():
        wanted |= {to / _directory(skill) / name: text for name, text in _skill_files(skill).items()}
    try:
        differing = [path for path, text in wanted.items() if path.exists() and path.read_text("utf-8") != text]
        if differing and not force:
            raise ConfigurationError(f"{differing[0]} is there already and differs; --force writes over it")
        new = {path: text for path, text in wanted.items() if not path.exists() or path in differing}
        for path in new:
            path.parent.mkdir(parents=True, exist_ok=True)
        replace_files(new)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot write into {to}: {error}") from error
    if session.screen.as_json:
        session.screen.document({"directory": str(to), "files": [*map(str, wanted)], "written": [*map(str, new)]})
        return OK
    for path in wanted:
        session.screen.exact(f"{'wrote' if path in new else 'kept'} {path}")
    return OK


def shipped_skill() -> str:
    """Return the skill about toolexec that the package has."""
    return (files("toolexec.cli") / "agent_skills" / _SHIPPED / _FILE).read_text("utf-8")


def _directory(skill: Skill) -> str:
    return re.sub(r"[^a-z0-9]+", "-", skill.header.name.lower()).strip("-")[:_MOST_NAME].strip("-") or "skill"


def _skill_files(skill: Skill) -> dict[str, str]:
    """Return the files of one skill: how to run it, and its source."""
    name = _directory(skill)
    source = f"{name}.workflow"
    inputs = [
        f"- `{each.name}`{'' if each.default is None else ' (may be left out)'}" for each in skill.workflow.inputs
    ]
    words = " ".join(f"{each.name}=..." for each in skill.workflow.inputs if each.default is None)
    more = (
        f"`toolexec skill plan {skill.header.name}` prints the tool calls that it would make, and makes none. Its "
        f"source is in `{source}`."
    )
    lines = [
        "---",
        f"name: {name}",
        f"description: {_one_line(skill.header.description)}",
        "---",
        "",
        f"# {skill.header.name}",
        "",
        "Run it with toolexec, in the directory of its configuration:",
        "",
        "```sh",
        f"toolexec skill run {skill.header.name} {words}".rstrip(),
        "```",
        "",
        *(["Inputs:", "", *inputs, ""] if inputs else []),
        more,
    ]
    return {_FILE: "\n".join(lines) + "\n", source: skill.source}


def _one_line(text: str) -> str:
    """Return a description as YAML: a string in quotes, on one line."""
    from toolexec.model.visible import visible_line

    return json.dumps(visible_line(text, _MOST_DESCRIPTION), ensure_ascii=False)
