"""The page of the command line, from its app."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from toolexec.cli.app import app
from toolexec.cli.exit_codes import TABLE

_HEAD = """\
# Commands

Look up a command, its arguments and its options. `toolexec COMMAND --help` prints the same.

```sh
toolexec --help
```
"""


def each_command() -> Iterator[tuple[str, Any, Any]]:
    """Yield each command and group that comes with toolexec: its words, the command, its context."""
    command: Any = typer.main.get_command(app)
    yield from _below(command, typer.Context(command, info_name="toolexec"))


def _below(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    if getattr(command, "hidden", False):
        return
    yield context.command_path, command, context
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, typer.Context(inner, info_name=name, parent=context))


def commands_page() -> str:
    """Return the page: exit codes, then a section for each command."""
    lines = [_HEAD, "## Exit codes", "", "| Code | Meaning |", "|---|---|"]
    lines += [f"| {code} | {text} |" for code, text in TABLE]
    for words, command, context in each_command():
        depth = "##" if words.count(" ") < 2 else "###"
        usage = " ".join(command.collect_usage_pieces(context)).replace("{", "").replace("}", "")
        lines += ["", f"{depth} {words}", "", _text(command.help), "", "```text", f"{words} {usage}".rstrip(), "```"]
        groups = [f"[`{words} {name}`](#{anchor(f'{words} {name}')})" for name in getattr(command, "commands", {})]
        lines += ["", f"Commands: {', '.join(groups)}."] if groups and words != "toolexec" else []
        records = [record for param in command.params if (record := param.get_help_record(context)) is not None]
        if records:
            lines += ["", "| Argument or option | What it does |", "|---|---|"]
            lines += [f"| `{_cell(name)}` | {_cell(_text(help))} |" for name, help in records]
    return "\n".join(lines) + "\n"


def anchor(words: str) -> str:
    """Return the anchor of the section of a command."""
    return words.replace(" ", "-")


def _text(help: str | None) -> str:
    """Return a help string without what is markup for terminals; its paragraphs stay."""
    paragraphs = re.split(r"\n\s*\n", (help or "").replace("\b", "").strip())
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n\n", " ")
