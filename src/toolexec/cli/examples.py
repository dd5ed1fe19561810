"""One line for each command, which its help ends with."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["EXAMPLES", "add_examples"]

EXAMPLES: Final = {
    "": "toolexec search 'open issues' -c mcp.json",
    "search": "toolexec search 'what does an item cost' -c app.py",
    "describe": "toolexec describe git:git_log",
    "run": "toolexec run git:git_log repo_path=. max_count=3",
    "chain": "toolexec chain order.json --dry-run",
    "list": "toolexec list --namespace git",
    "stubs": "toolexec stubs --namespace git -o tools.pyi",
    "export": "toolexec export -f openai --strict -o tools.json",
    "backends": "toolexec backends refresh git",
    "code": "toolexec code -e 'return tools.math.add(a=5, b=3)'",
    "test": "toolexec test tests/agents --strict",
    "replay": "toolexec replay nightly-42",
    "doctor": "toolexec doctor --quick",
    "check": "toolexec check release-notes.workflow",
    "serve": "toolexec serve --transport http --port 8080",
    "record": "toolexec record --to session.yaml -- python agent.py",
    "init": "toolexec init --output toolexec.toml",
    "install": "toolexec install claude --scope project",
    "client-config": "toolexec client-config cursor --transport http",
    "bench": "toolexec bench -c mcp.json",
    "demo": "toolexec demo --fast",
    "sandbox": "toolexec sandbox list",
    "sandbox build": "toolexec sandbox build --with humanize",
    "sandbox list": "toolexec sandbox list --json",
    "sandbox remove": "toolexec sandbox remove --all",
    "sandbox check": "toolexec sandbox check --backend wasm",
    "image": "toolexec image list",
    "image build": "toolexec image build --node --with humanize",
    "image import": "toolexec image import python.tar --name python",
    "image list": "toolexec image list --json",
    "image verify": "toolexec image verify toolexec-code",
    "image share": "toolexec image share toolexec-code",
    "image remove": "toolexec image remove toolexec-code",
    "workflow": "toolexec workflow check notes.workflow",
    "workflow check": "toolexec workflow check notes.workflow",
    "workflow run": "toolexec workflow run notes.workflow since=v1.0",
    "workflow fmt": "toolexec workflow fmt --check notes.workflow",
    "workflow graph": "toolexec workflow graph notes.workflow --svg -o notes.svg",
    "workflow record": "toolexec workflow record program.py -o notes.workflow",
    "workflow from-chain": "toolexec workflow from-chain order.json",
    "skill": "toolexec skill list",
    "skill list": "toolexec skill list -c notes.workflow",
    "skill plan": "toolexec skill plan notes.workflow since=v1.0",
    "skill run": "toolexec skill run notes since=v1.0",
    "skill test": "toolexec skill test notes.workflow",
    "skill add": "toolexec skill add notes.workflow --to skills",
    "skill export": "toolexec skill export .claude/skills",
    "runs": "toolexec runs list",
    "runs enqueue": "toolexec runs enqueue nightly report.workflow day=monday",
    "runs queues": "toolexec runs queues",
    "runs list": "toolexec runs list --json",
    "runs show": "toolexec runs show nightly-42",
    "runs resume": "toolexec runs resume nightly-42",
    "runs work": "toolexec runs work -c toolexec.toml",
    "runs signal": "toolexec runs signal nightly-42 approved true",
    "runs cancel": "toolexec runs cancel nightly-42",
    "runs replay": "toolexec runs replay nightly-42",
    "runs fork": "toolexec runs fork nightly-42 --at 3",
    "runs diff": "toolexec runs diff nightly-42 nightly-43",
    "runs delete": "toolexec runs delete nightly-42",
    "schedules": "toolexec schedules list",
    "schedules list": "toolexec schedules list --json",
    "schedules add": "toolexec schedules add nightly report.workflow --cron '0 3 * * *'",
    "schedules remove": "toolexec schedules remove nightly",
    "schedules pause": "toolexec schedules pause nightly",
    "config": "toolexec config show --origin",
    "config show": "toolexec config show --origin",
    "config validate": "toolexec config validate --strict",
    "config keys": "toolexec config keys --json",
    "keys": "toolexec keys new ann",
    "keys new": "toolexec keys new ann --role reader --expires 2027-01-31",
    "audit": "toolexec audit tail --follow",
    "audit tail": "toolexec audit tail --since yesterday --outcome denied",
    "audit verify": "toolexec audit verify",
    "trust": "toolexec trust list",
    "trust list": "toolexec trust list --json",
    "trust diff": "toolexec trust diff git:git_log",
    "trust accept": "toolexec trust accept git:git_log",
    "tasks": "toolexec tasks list",
    "tasks list": "toolexec tasks list --json",
    "tasks get": "toolexec tasks get 3f2a",
    "tasks cancel": "toolexec tasks cancel 3f2a",
    "runtime": "toolexec runtime serve -c runtime.toml",
}
"""The line of each command and group, by its words."""


def add_examples(command: Any, words: str) -> None:
    """Let the help of a command, and of those in it, end with their lines; one that says something else there keeps
    that."""
    line = EXAMPLES.get(words)
    if line is not None and not command.epilog:
        command.epilog = f"Example: [cyan]{line}[/cyan]"
    for name, each in getattr(command, "commands", {}).items():
        add_examples(each, f"{words} {name}".strip())
