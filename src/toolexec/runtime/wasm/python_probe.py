"""Stops a program in its guest and reports what is there: position, variables, the value of an expression.

This file runs in guests only, never on the host: it is sent there before a program that is made again. What it is asked
for is a dict with these keys:

- `anchor`, the ID of a call, and `ticks`: where to begin to look, so many lines after that call was made ("": the
  beginning of the program);
- `goal`: `here`, the next `step` or the next call (`next`), the `line` or the `call` with that ID, or the `end`;
- `line` and `call` for these, `expression` to evaluate where it stops, `most` for how long the repr of a value may be.
"""

from __future__ import annotations

import json
import os
import reprlib
import sys
from typing import Any

_CALLS = ("run_tool", "run_chain")
_READ = "read_result"
_MOST_NAMES = 100
_MOST_FRAMES = 50
_MOST_PENDING = 1 << 20


class _Repr(reprlib.Repr):
    """A repr that is short, and that waits for no tool, but reads of large results what it shows."""

    def __init__(self, most: int, deferred: Any) -> None:
        super().__init__()
        self.maxlevel = 5
        self.maxstring = self.maxother = self.maxlong = most
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = self.maxdeque = 50
        self._deferred = deferred

    def repr1(self, x: Any, level: int) -> str:
        """Return the repr of a part."""
        if isinstance(x, self._deferred):
            if not x.done() or x.cancelled() or x.exception() is not None:
                return f"<the result of call {x.__toolexec_number__}>"
            x = x.result()
        return super().repr1(x, level)


class _Probe:
    def __init__(self, wanted: dict[str, Any]) -> None:
        self.wanted = wanted
        self.goal: str = wanted["goal"]
        self.anchor: str = wanted["anchor"]
        self.skip: int = wanted["ticks"]
        self.ticks = 0
        self.position = self.anchor, 0
        self.active = not self.anchor
        self.over = self.looking = False
        guest: Any = sys.modules["toolexec_guest.main"]._guests[0]  # type: ignore[attr-defined]  # noqa: SLF001
        self.guest, self.channel = guest, guest._channel  # noqa: SLF001
        is_first = guest._runs == 1  # noqa: SLF001
        self.file = "<code>" if is_first else f"<code {guest._runs}>"  # noqa: SLF001
        self.known = dict(guest._namespace) if is_first else {}  # noqa: SLF001 - of a session, all is shown
        self.queue = self.channel._queue  # noqa: SLF001
        self.describe = guest._describe  # noqa: SLF001

    def install(self) -> None:
        """Take part in the next program, for which this one must leave no trace."""
        guest = self.guest
        guest._runs -= 1  # noqa: SLF001
        guest._files.discard(self.file)  # noqa: SLF001
        here = os.getcwd()  # noqa: PTH109
        if not guest._runs and sys.path and sys.path[-1] == here:  # noqa: SLF001
            sys.path.pop()
        self.channel._queue = self.on_queue  # noqa: SLF001
        guest._describe = self.on_error  # noqa: SLF001
        if self.active:
            self.trace()

    def trace(self) -> None:
        """Follow the lines, where that is needed: it takes time."""
        if self.skip or self.goal in ("step", "line"):
            sys.settrace(self.on_call)

    # -- what happens -------------------------------------------------------------------------------------------

    def on_call(self, frame: Any, event: str, argument: Any) -> Any:
        """Follow the lines of the program, and of nothing else."""
        return self.on_line if frame.f_code.co_filename == self.file else None

    def on_line(self, frame: Any, event: str, argument: Any) -> Any:
        """Stop at a line that was asked for."""
        if event != "line" or self.over or not self.active:
            return self.on_line
        self.ticks += 1
        is_there = self.ticks == self.skip if self.goal == "here" else self.ticks > self.skip
        if is_there and (
            self.goal in ("here", "step") or (self.goal == "line" and frame.f_lineno == self.wanted["line"])
        ):
            self.stop("line", frame)
        return self.on_line

    def on_queue(self, kind: str, text: str) -> str:
        """Stop at a call that was asked for."""
        if self.over and not (self.looking and kind == _READ):
            raise sys.modules["toolexec_guest.errors"].ToolError(  # type: ignore[attr-defined]
                "nothing is called while a replay has stopped", code="replay"
            )
        if kind in _CALLS:
            step = str(self.channel._last_id + 1)  # noqa: SLF001
            if self.active and self.ticks >= self.skip and self.goal in ("next", "call"):
                if self.goal == "next" or step == self.wanted["call"]:
                    self.stop_at_call(step, kind, text)
            elif not self.active and step == self.anchor:
                self.active = True
                if self.goal == "here" and not self.skip:
                    self.stop_at_call(step, kind, text)
                self.trace()
                frame = self.program_frame(_here(1))
                while frame is not None:
                    frame.f_trace = self.on_line
                    frame = self.program_frame(frame.f_back)
        return self.queue(kind, text)

    def on_error(self, error: BaseException, source: str, filename: str) -> Any:
        """Report the failure of the program."""
        if not self.over:
            found, trace = None, error.__traceback__
            while trace is not None:
                if trace.tb_frame.f_code.co_filename == self.file:
                    found = trace
                trace = trace.tb_next
            self.stop(
                "error", found.tb_frame if found is not None else None, found.tb_lineno if found is not None else 0
            )
        return self.describe(error, source, filename)

    def program_frame(self, frame: Any) -> Any:
        """Return the frame, or the next one around it that is of this very program."""
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        return frame

    def stack(self, frame: Any) -> list[dict[str, Any]]:
        """Return the functions of the program that are under way."""
        found: list[dict[str, Any]] = []
        while frame is not None and len(found) < _MOST_FRAMES:
            if frame.f_code.co_filename == self.file:
                name = frame.f_code.co_name
                shown = "<module>" if name.startswith("__toolexec") else name
                found.append({"function": shown, "line": frame.f_lineno})
            frame = frame.f_back
        return found

    # -- what is reported ---------------------------------------------------------------------------------------

    def stop_at_call(self, step: str, kind: str, text: str) -> None:
        """Report the call that is about to be made."""
        self.anchor, self.ticks = step, 0
        self.stop("call", self.program_frame(_here(2)), call={"id": step, "type": kind, "payload": text})

    def stop(self, reason: str, frame: Any, line: int = 0, call: Any = None) -> None:
        """Report; the host ends the guest then, but after a failure."""
        sys.settrace(None)
        self.over = True
        pending: list[str] = []
        for message in self.channel._outbox:  # noqa: SLF001
            if sum(map(len, pending)) + len(message) < _MOST_PENDING:
                pending.append(message)
        most = self.wanted["most"]
        shown = _Repr(most, sys.modules["toolexec_guest.deferred"].Deferred)  # type: ignore[attr-defined]
        found: dict[str, Any] = {
            "reason": reason,
            "anchor": self.anchor,
            "ticks": self.ticks,
            "line": line or (frame.f_lineno if frame is not None else 0),
            "call": call,
            "pending": pending,
            "stack": self.stack(frame),
            **self.look(frame, shown, most),
        }
        self.channel._post_frame('[{"type":"probe","id":"0","payload":' + json.dumps(found) + "}]")  # noqa: SLF001

    def look(self, frame: Any, shown: _Repr, most: int) -> dict[str, Any]:
        """Return the variables, and the value of the expression. Pages of large results are read for that; no call is
        sent with them, and no answer that comes with them is taken before it is over."""
        channel, late = self.channel, list[Any]()
        waiting, channel._outbox = channel._outbox, []  # noqa: SLF001
        deliver, channel._deliver = channel._deliver, late.append  # noqa: SLF001
        self.looking = True
        found: dict[str, Any] = {"variables": self.variables(frame, shown, most)}
        if self.wanted.get("expression") is not None:
            found["evaluated"] = self.evaluated(frame, shown, most)
        self.looking = False
        channel._outbox, channel._deliver = waiting, deliver  # noqa: SLF001
        for answer in late:
            deliver(answer)
        return found

    def variables(self, frame: Any, shown: _Repr, most: int) -> dict[str, str]:
        """Return what the innermost frame of the program knows, but for modules, functions and classes."""
        found: dict[str, str] = {}
        names: dict[str, Any] = dict(frame.f_locals) if frame is not None else {}
        if frame is not None and frame.f_code.co_name.startswith("__toolexec"):  # the program itself, as a function
            names = {**frame.f_globals, **names}
        for name, value in names.items():
            skipped = name.startswith("__") or name == "tools" or isinstance(value, (type, type(sys)))
            if skipped or type(value).__name__ == "function" or self.known.get(name, found) is value:
                continue
            if len(found) < _MOST_NAMES:
                found[str(name)] = _text(shown, value, most)
        return found

    def evaluated(self, frame: Any, shown: _Repr, most: int) -> dict[str, str]:
        """Return the repr of the expression's value, or how it failed."""
        try:
            code = compile(self.wanted["expression"], "<expression>", "eval")
            spaces = (frame.f_globals, frame.f_locals) if frame is not None else (self.guest._namespace, {})  # noqa: SLF001
            return {"value": _text(shown, eval(code, *spaces), most)}  # noqa: S307 - to run code is what a sandbox is for
        except BaseException as error:
            return {"error": f"{type(error).__name__}: {_message(error)}"[:most]}


_here: Any = sys._getframe  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _text(shown: _Repr, value: Any, most: int) -> str:
    try:
        return shown.repr(value)[:most].encode("utf-8", "backslashreplace").decode()
    except BaseException as error:
        return f"<{type(value).__name__}: its repr fails: {type(error).__name__}>"


def _message(error: BaseException) -> str:
    try:
        return str(error).encode("utf-8", "backslashreplace").decode()
    except BaseException:
        return ""


def install(wanted: dict[str, Any]) -> None:
    """Stop the next program of this guest where it is wanted."""
    _Probe(wanted).install()
