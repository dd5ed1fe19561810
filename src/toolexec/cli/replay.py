"""The command that makes a recorded run again, step by step: `toolexec replay`."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError, RunError, ToolExecError

if TYPE_CHECKING:
    from toolexec.cli.session import Session
    from toolexec.exec.debug import DebugSession
    from toolexec.exec.stops import Stop
    from toolexec.model.json_value import JSONDict

_PARTS: Final = ("source", "vars", "calls", "stack")
_AROUND: Final = 4
_MOST_CALLS: Final = 12
_HELP: Final = """\
s, step         go on to the next line         b, back        go back to the stop before
n, next         go on to the next call         v, vars        the variables here
c, continue     go on to the end               a, calls       all calls so far
call N          go to call N (or its step)     l, list        the source around here
line N          go on to line N                w, where       the functions under way
error           go to where the run failed     q, quit        end
p EXPRESSION    the value of an expression here (so does any other line)"""


def replay(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The ID of the run.", show_default=False)],
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to", metavar="WHERE", help="call:N, call:STEP, line:N, error, end, next or step; repeat to go on."
        ),
    ] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option(
            "--print", metavar="PART", help="source, vars, calls or stack: what to print; repeat for several."
        ),
    ] = None,
    expression: Annotated[
        list[str] | None, typer.Option("--eval", "-e", metavar="EXPRESSION", help="Print its value there.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Replay a recorded run offline, and inspect it where it stops.

    Nothing is called: every answer is a recorded one. In a terminal, without --to, it asks what to do; h lists that.
    """
    wrong = [part for part in parts or () if part not in _PARTS]
    if wrong:
        raise typer.BadParameter(f"{wrong[0]!r} is not one of {', '.join(_PARTS)}", param_hint="--print")
    wants = _Wants(to or [], parts or [], expression or [])
    perform_command(context, lambda s: _replay(s, run, wants), config, as_json, tools_needed=False)


class _Wants:
    def __init__(self, to: list[str], parts: list[str], expressions: list[str]) -> None:
        self.to = to
        self.parts: Sequence[str] = parts or _PARTS
        self.expressions = expressions

    @property
    def asks(self) -> bool:
        return not self.to and not self.expressions


async def _replay(session: Session, run_id: str, wants: _Wants) -> int:
    from toolexec.cli.journal import use_journal

    use_journal(session.ex)
    async with session.ex.runs.debug(run_id) as debug:
        if wants.asks and not session.screen.as_json and _is_terminal():
            await _converse(session, debug)
            return OK
        for place in wants.to or ["error"]:
            await _go(debug, place.replace(":", " ", 1))
        values = {each: await debug.evaluate(each) for each in wants.expressions}
        if session.screen.as_json:
            session.screen.document(_document(debug, wants.parts, values))
        else:
            _show(session, debug, wants.parts)
            for expression, value in values.items():
                session.screen.exact(f"{expression} = {value}")
        return _code(debug)


def _code(debug: DebugSession) -> int:
    """Return FAILED where the program cannot be made again, or does something else than is recorded."""
    return FAILED if isinstance(debug.error, RunError) else OK


async def _go(debug: DebugSession, words: str) -> None:
    """Move as a command says. Raises ConfigurationError for one that is not there."""
    name, _, rest = words.strip().partition(" ")
    moves: dict[str, Callable[[], Awaitable[Stop]]] = {
        "s": debug.step,
        "step": debug.step,
        "n": debug.next_call,
        "next": debug.next_call,
        "c": debug.to_end,
        "continue": debug.to_end,
        "end": debug.to_end,
        "error": debug.to_error,
        "b": debug.back,
        "back": debug.back,
    }
    rest = rest.strip()
    if name in moves and not rest:
        await moves[name]()
    elif name == "call" and rest:
        await debug.to_call(rest)
    elif name == "line" and rest.isdigit():
        await debug.to_line(int(rest))
    else:
        raise ConfigurationError(
            f"a replay goes to call:N, call:STEP, line:N, error, end, next or step, not to {words.strip()!r}"
        )


async def _converse(session: Session, debug: DebugSession) -> None:
    """Do what is typed, line by line, until it is enough."""
    screen = session.screen
    screen.note(f"{debug.run.id}: {debug.run.kind}, {debug.run.state}; nothing is called. h lists the commands")
    shown: dict[str, str] = {"v": "vars", "vars": "vars", "a": "calls", "calls": "calls", "l": "source"}
    shown |= {"list": "source", "w": "stack", "where": "stack"}
    while True:
        line = await asyncio.to_thread(_typed)
        words = line.strip()
        if line == "" or words in ("q", "quit", "exit"):
            return
        name = words.partition(" ")[0]
        try:
            if not words:
                continue
            if words in ("h", "help", "?"):
                screen.exact(_HELP)
            elif words in shown:
                _show(session, debug, [shown[words]])
            elif name in ("p", "print") and " " in words:
                screen.exact(await debug.evaluate(words.partition(" ")[2]))
            elif _is_move(words):
                await _go(debug, words)
                _show(session, debug, ["source"])
            else:
                screen.exact(await debug.evaluate(words))
        except ToolExecError as error:
            screen.error(error)


def _is_move(words: str) -> bool:
    try:
        parts = shlex.split(words)
    except ValueError:
        return False
    alone = {"s", "step", "n", "next", "c", "continue", "end", "error", "b", "back"}
    return (len(parts) == 1 and parts[0] in alone) or (len(parts) == 2 and parts[0] in ("call", "line"))


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _typed() -> str:
    sys.stderr.write("(replay) ")
    sys.stderr.flush()
    return sys.stdin.readline()


def _show(session: Session, debug: DebugSession, parts: Sequence[str]) -> None:
    screen, stop = session.screen, debug.stop
    screen.note(_headline(debug), style="bold")
    if "source" in parts:
        screen.exact("\n".join(_source_lines(debug)))
    if "stack" in parts and len(stop.stack) > 1:
        screen.exact("\n".join(f"in {frame.function}, line {frame.line}" for frame in stop.stack))
    if "vars" in parts:
        screen.exact("\n".join(f"{name} = {text}" for name, text in stop.variables.items()) or "no variables")
    if "calls" in parts:
        _show_calls(session, debug)


def _headline(debug: DebugSession) -> str:
    stop = debug.stop
    where = f" in line {stop.line}" if stop.line else ""
    if stop.reason == "start":
        return "at the start: step, next, call N, line N or error"
    if stop.reason == "call":
        call = stop.calls[-1] if stop.calls else None
        return f"about to make call {call.number}, {call.tool}{where}" if call is not None else f"at a call{where}"
    if stop.reason == "error":
        return f"failed{where}: {stop.error}"
    return f"at the end, after {len(stop.calls)} calls" if stop.reason == "end" else f"before line {stop.line}"


def _source_lines(debug: DebugSession) -> list[str]:
    lines, line = debug.source.splitlines(), debug.line
    first = max(line - _AROUND, 1)
    around = [*enumerate(lines, 1)][first - 1 : first + 2 * _AROUND]
    width = len(str(around[-1][0])) if around else 1
    return [f"{'→' if number == line else ' '} {number:>{width}}  {text}" for number, text in around]


def _show_calls(session: Session, debug: DebugSession) -> None:
    from toolexec.cli.tables import plain_table
    from toolexec.exec.stops import value_text

    calls = debug.calls[-_MOST_CALLS:]
    if len(calls) < len(debug.calls):
        session.screen.note(f"{len(debug.calls) - len(calls)} earlier calls are left out; --json has all of them")
    table = plain_table(("No.", {}), ("Tool", {"overflow": "fold"}), ("Arguments", {}), ("Result", {}))
    for call in calls:
        came = "" if call.is_open else str(call.error) if call.error is not None else value_text(call.value, 60)
        table.add_row(str(call.number), call.tool, value_text(call.args, 60), came)
    session.screen.show(table)


def _document(debug: DebugSession, parts: Sequence[str], values: dict[str, str]) -> JSONDict:
    stop, lines = debug.stop, debug.source.splitlines()
    text = lines[stop.line - 1] if 0 < stop.line <= len(lines) else ""
    data: JSONDict = {"runId": debug.run.id, "kind": debug.run.kind, "reason": stop.reason, "line": stop.line}
    data["text"] = text
    if "source" in parts:
        data["source"] = debug.source
    if "vars" in parts:
        data["variables"] = dict(stop.variables)
    if "calls" in parts:
        data["calls"] = [call.to_dict() for call in stop.calls]
    if "stack" in parts:
        data["stack"] = [frame.to_dict() for frame in stop.stack]
    if values:
        data["values"] = dict(values)
    if stop.error is not None:
        data["error"] = stop.error.to_dict()
    elif stop.reason == "end":
        data["value"] = stop.value
    return data
