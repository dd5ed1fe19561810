"""How the demo looks: a heading, the Python line, what came out of it; or one JSON document with all of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, TypeAlias

from rich.console import RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from toolexec.cli.demo.repository import Repository
from toolexec.cli.session import Session
from toolexec.cli.tables import duration_text
from toolexec.cli.terminal import Screen
from toolexec.exec import Exec
from toolexec.model.json_value import JSONDict

_PAUSE: Final = 1.2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step found out: as data, and as things to show."""

    data: Any
    shown: tuple[RenderableType, ...] = ()


class Stage:
    """Plays steps and keeps what came out of them."""

    def __init__(self, session: Session, repository: Repository, *, pause: bool) -> None:
        self.ex: Exec = session.ex
        self.screen: Screen = session.screen
        self.repository = repository
        self._pause = pause
        self._started = perf_counter()
        self._record: list[JSONDict] = []

    def welcome(self, steps: int) -> None:
        """Say what is going to happen."""
        if self.screen.as_json:
            return
        text = Text.assemble(
            ("toolexec", "bold"), f" in {steps} steps: Python functions, two real MCP servers, a sandbox\n"
        )
        kind = "a small repository made for this demo" if self.repository.made else "the repository around you"
        text.append(f"{kind}: {self.repository.root}", style="dim")
        self.screen.show(Text(), Panel(text, border_style="cyan", expand=False, padding=(0, 2)))

    async def act(self, number: int, title: str, code: str, step: Step) -> None:
        """Show the step's heading and code, play it, show what it gives."""
        if not self.screen.as_json:
            heading = Rule(Text.assemble((f"{number} ", "bold cyan"), (title, "bold")), align="left", style="dim")
            shown = Syntax(code, "python", theme="ansi_dark", background_color="default", word_wrap=True)
            self.screen.show(Text(), heading, Padding(shown, (0, 0, 1, 2)))
        began = perf_counter()
        outcome = await step(self)
        took = perf_counter() - began
        self._record.append(
            {"step": number, "title": title, "code": code, "durationMs": round(took * 1000, 3), "outcome": outcome.data}
        )
        if not self.screen.as_json:
            self.screen.show(*(Padding(part, (0, 0, 0, 2)) for part in outcome.shown))
            self.screen.flush()
            if self._pause:
                await asyncio.sleep(_PAUSE)

    def farewell(self) -> None:
        """Sum up, and say where to go from here."""
        took = perf_counter() - self._started
        if self.screen.as_json:
            root = {"repository": str(self.repository.root), "temporary": self.repository.made}
            self.screen.document({"ok": True, **root, "durationMs": round(took * 1000, 3), "steps": self._record})
            return
        text = Text.assemble(
            ("Done", "bold green"), (f" in {duration_text(took)}.", "dim"), " Now with your own tools:\n"
        )
        text.append("  toolexec list -c app.py          ", style="green").append("@tool functions of a Python file\n")
        text.append("  toolexec list -c mcp.json        ", style="green").append("the servers of an mcpServers file\n")
        text.append("  toolexec code -c app.py FILE     ", style="green").append("code that calls them, in a sandbox\n")
        text.append("  toolexec --help                  ", style="green").append("everything else")
        self.screen.show(Text(), Rule(style="dim"), text)


Step: TypeAlias = Callable[[Stage], Awaitable[Outcome]]
"""One step of the demo."""
