"""The commands that do: run and chain."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from rich.text import Text

from toolexec.cli.arguments import read_args, read_chain
from toolexec.cli.exit_codes import FAILED, OK, code_of_run
from toolexec.cli.finding import connect, connect_for
from toolexec.cli.progress import watch
from toolexec.cli.session import Session
from toolexec.cli.tables import chain_table, content_lines, duration_text, show_undone, value_text
from toolexec.errors import ToolExecError
from toolexec.model.call import Progress
from toolexec.model.json_value import JSONDict

if TYPE_CHECKING:
    from toolexec.run import Result, StreamEvent
    from toolexec.run.types import OnError


async def run(session: Session, tool_id: str, words: Sequence[str], *, timeout: float | None, raw: bool) -> int:
    """`toolexec run`: one tool, its value on stdout."""
    args = await _arguments(session, tool_id, words)
    with watch(session.screen, tool_id) as report:
        result = await session.ex.run_tool(tool_id, args, timeout=timeout, on_progress=report)
    if session.screen.as_json:
        session.screen.document(result.to_dict())
    elif result.error is not None:
        if result.value is not None:  # it ran, and broke its output schema
            _show(session, result, raw=raw)
        session.screen.error(result.error)
    else:
        _show(session, result, raw=raw)
    return OK if result.ok else FAILED


async def _arguments(session: Session, tool_id: str, words: Sequence[str]) -> JSONDict:
    await connect_for(session, tool_id)
    found = session.ex.index.find(tool_id)
    return read_args(words, found.tool.input_schema.to_json() if found is not None else {})


def _show(session: Session, result: Result, *, raw: bool) -> None:
    screen = session.screen
    other = content_lines(result.content)
    if raw:
        value = result.value
        screen.exact(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        return
    if result.value is not None or not other:
        screen.value(value_text(result.value))
    for line in other:
        screen.value(Text(line, style="magenta"))
    for violation in result.warnings:
        place = violation.path or "(root)"
        screen.note(f"warning: does not match its output schema: {place}: {violation.message}", style="yellow")
    if screen.err.is_terminal:
        where = f" · {result.binding.kind} {result.binding.backend}" if result.binding is not None else ""
        screen.note(f"✓ {result.tool_id}{where} · {duration_text(result.duration)}")


async def stream(session: Session, tool_id: str, words: Sequence[str], *, timeout: float | None) -> int:
    """`toolexec run --stream`: what the tool says while it runs, piece by piece."""
    args = await _arguments(session, tool_id, words)
    screen = session.screen
    error: ToolExecError | None = None
    chunks = 0
    with watch(screen, tool_id) as report:
        async with aclosing(session.ex.stream_tool(tool_id, args, timeout=timeout)) as events:
            async for event in events:
                error = error or event.error
                if screen.as_json:
                    screen.json_line(event.to_dict())
                elif event.kind == "progress" and report is not None:
                    report(_progress(event))
                elif event.kind == "chunk" or (event.kind == "done" and not chunks):
                    chunks += 1
                    screen.value(value_text(event.data) if event.kind == "done" else _line(event.data))
    if error is not None and not screen.as_json:
        screen.error(error)
    return FAILED if error is not None else OK


def _line(chunk: object) -> Text:
    """Return a chunk on one line, unless it is text with lines of its own."""
    return value_text(chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=False))


def _progress(event: StreamEvent) -> Progress:
    data = event.data if isinstance(event.data, Mapping) else {}
    return Progress(done=data.get("progress", 0), total=data.get("total"), message=str(data.get("message", "")))


async def chain(session: Session, source: str, *, on_error: OnError, dry_run: bool, durable: str | None = None) -> int:
    """`toolexec chain`: the steps of a file, one after the other."""
    steps = read_chain(source)
    await connect(session)
    if durable is not None:
        from toolexec.cli.journal import use_journal

        use_journal(session.ex)
    with watch(session.screen, "chain") as report:
        result = await session.ex.run_chain(
            steps, on_progress=report, on_error=on_error, dry_run=dry_run, durable=durable
        )
    screen = session.screen
    if screen.as_json:
        screen.document(result.to_dict())
    else:
        screen.show(chain_table(result))
        if result.value is not None and result.error is not None:
            screen.value(value_text(result.value))
        if result.error is not None:
            for failed in (step for step in result.steps if step.error is result.error):
                screen.note(f"stopped at step {failed.index}")
            screen.error(result.error)
            show_undone(screen, result.undone)
        else:
            screen.show(Text())
            screen.value(value_text(result.value))
    return code_of_run(result.error)
