"""What each instruction does to the thread that executes it.

An instruction gets the run, the thread and its argument. It gives None to go on, or says what else: the thread is
blocked, has ended, or the work takes too long for the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, Protocol, TypeAlias

from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.run.large import Budget, is_small
from toolexec.workflow.functions import FUNCTIONS
from toolexec.workflow.library.function import Context
from toolexec.workflow.library.lists import range_of
from toolexec.workflow.thread import Entry, Thread
from toolexec.workflow.values import (
    OPERATORS,
    OperationError,
    Value,
    bounded,
    described,
    equal,
    extended,
    index,
    is_in,
    is_number,
    listed,
    member,
    negative,
    part,
    replaced,
    text_of,
    whole,
)

OUT: Final = "__out"
_MAX_BRANCHES: Final = 1000
_DEFAULT_BRANCHES: Final = 16
_MAX_ATTEMPTS: Final = 20
_MAX_PAUSE: Final = 60

Signal: TypeAlias = Literal["blocked", "long", "end", "skip", "finish", "return"] | None


class Run(Protocol):
    """What instructions know of the run."""

    given: dict[str, Value]
    context: Context
    budget: Budget | None
    steps: int

    def write(self, text: str) -> None:
        """Print *text*."""
        ...

    def ask(self, thread: Thread, request: JSONDict) -> None:
        """Let the thread wait for the answer to a request."""
        ...

    def fork(self, thread: Thread, entry: Entry) -> bool:
        """Start the first branches of a group; returns whether there are any."""
        ...


Handler: TypeAlias = Callable[[Run, Thread, JSONValue], Signal]


def _const(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.stack.append(arg)


def _load(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    owner = thread
    for _ in range(arg[1]):
        assert owner.parent is not None
        owner = owner.parent
    thread.stack.append(owner.names[arg[0]])


def _load_out(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    owner = thread
    while owner.parent is not None:
        owner = owner.parent
    thread.stack.append(owner.names.get(OUT))


def _bind(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.names[arg] = thread.stack.pop()


def _pop(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.stack.pop()


def _dup(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.stack.append(thread.stack[-1])


def _input(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    if arg[1] in run.given:
        thread.names[arg[1]] = run.given[arg[1]]
        thread.pc = arg[0]


# -- values -----------------------------------------------------------------------------------------------------


def _operate(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    stack = thread.stack
    right = stack.pop()
    made = stack[-1] = OPERATORS[arg](stack[-1], right)
    if type(made) is str or type(made) is list:
        run.steps += len(made) >> 6


def _compare(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    left, right = thread.stack[-2:]
    kind = type(right)
    is_quick = type(left) is str or (kind is not list and kind is not dict)
    if run.budget is None and not is_quick and not is_small(right):
        return "long"
    test = equal if arg == "==" or arg == "!=" else is_in
    found = test(left, right, run.budget)

    thread.stack.pop()
    thread.stack[-1] = found if arg == "==" or arg == "in" else not found
    return None


def _not(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.stack[-1] = not thread.stack[-1]


def _negative(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.stack[-1] = negative(thread.stack[-1])


def _member(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.stack[-1] = member(thread.stack[-1], arg[0], safe=arg[1])


def _index(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    at = thread.stack.pop()
    thread.stack[-1] = index(thread.stack[-1], at, safe=arg)


def _slice(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    start, stop = thread.stack[-2:]
    del thread.stack[-2:]
    made = thread.stack[-1] = part(thread.stack[-1], start, stop)
    run.steps += len(made) >> 6


def _taken(thread: Thread, count: int) -> list[Value]:
    taken = thread.stack[len(thread.stack) - count :]
    del thread.stack[len(thread.stack) - count :]
    return taken


def _list(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    items = _taken(thread, len(arg))
    if True in arg:
        made: list[Value] = []
        for item, spread in zip(items, arg, strict=True):
            if spread:
                extended(made, item)
            else:
                made.append(item)
        items = made
        run.steps += len(made) >> 6
    thread.stack.append(listed(items))


def _object(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    made: dict[str, Value] = {}
    for key, value in zip(arg, _taken(thread, len(arg)), strict=True):
        if key is not None:
            made[key] = value
        elif type(value) is dict:
            made |= value
            run.steps += len(value) >> 6
        else:
            raise OperationError(f"... in an object takes an object, not {described(value)}")
    thread.stack.append(listed(made))


def _text(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    count = arg.count(None)
    if run.budget is None and not all(map(is_small, thread.stack[len(thread.stack) - count :])):
        return "long"
    values = iter(_taken(thread, count))
    parts = [text_of(next(values), run.budget) if part is None else part for part in arg]
    size = sum(map(len, parts))
    bounded(size, "string")
    run.steps += size >> 6
    thread.stack.append("".join(parts))
    return None


def _call(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    name, count = arg
    function = FUNCTIONS.get(name)
    if function is None:
        raise OperationError(f"there is no function {name}", "missing")
    stack = thread.stack
    arguments = stack[len(stack) - count :] if count else []
    if run.budget is None and function.is_long(arguments):
        return "long"
    made = function.call(arguments, run.context)
    if count:
        del stack[len(stack) - count :]
    stack.append(made)
    for value in (*arguments, made):
        kind = type(value)
        if kind is str or kind is list or kind is dict:
            run.steps += len(value) >> 6
    return None


def _range(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    numbers = [whole(value) for value in _taken(thread, arg)]
    if None in numbers:
        raise OperationError("range takes integers")
    thread.stack.append(range_of(*numbers))  # pyright: ignore[reportArgumentType]


def _store_part(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    value = thread.stack.pop()
    made = thread.names[arg[0]] = replaced(thread.names[arg[0]], _taken(thread, arg[1]), value)
    run.steps += len(made) >> 6


def _print(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    if run.budget is None and not all(map(is_small, thread.stack[len(thread.stack) - arg :])):
        return "long"
    run.write(" ".join([text_of(value, run.budget) for value in _taken(thread, arg)]) + "\n")
    return None


# -- jumps ------------------------------------------------------------------------------------------------------


def _jump(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.pc = arg


def _jump_if_false(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    if not thread.stack.pop():
        thread.pc = arg


def _and(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    if thread.stack[-1]:
        thread.stack.pop()
    else:
        thread.pc = arg


def _or(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    if thread.stack[-1]:
        thread.pc = arg
    else:
        thread.stack.pop()


def _coalesce(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    if thread.stack[-1] is not None:
        thread.pc = arg
    else:
        thread.stack.pop()


# -- loops ------------------------------------------------------------------------------------------------------


def _gone_over(value: Value) -> Entry:
    """Return what a loop needs to go over a value: its items, and the object whose keys they are."""
    kind = type(value)
    if kind is list or kind is range:
        return {"values": value, "object": None}
    if kind is dict:
        return {"values": [*value], "object": value}
    if kind is str:
        raise OperationError("a loop goes over a list or an object, not a string; write lines(text) or split(text)")
    hint = "; write xs ?? [] where it may be null" if value is None else ""
    raise OperationError(f"a loop goes over a list or an object, not {described(value)}{hint}")


def _for(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    entry = _gone_over(thread.stack.pop())
    entry |= {"kind": "for", "height": len(thread.stack), "at": 0, "out": [] if arg else None}
    thread.blocks.append(entry)


def _next(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    entry = thread.blocks[-1]
    at = entry["at"]
    values = entry["values"]
    if at >= len(values):
        thread.blocks.pop()
        thread.stack.append(entry["out"])
        thread.pc = arg[0]
        return
    entry["at"] = at + 1
    names = arg[1]
    if len(names) == 1:
        thread.names[names[0]] = values[at]
    else:
        thread.names |= zip(names, _pair(entry, at), strict=True)


def _pair(entry: Entry, at: int) -> tuple[Value, Value]:
    value = entry["values"][at]
    return (at, value) if entry["object"] is None else (value, entry["object"][value])


def _collected(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    out: list[Value] = thread.blocks[-1]["out"]
    bounded(len(out) + 1)
    out.append(thread.stack.pop())


def _while(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    limit = thread.stack.pop()
    if limit is not None:
        limit = _integer("limit", limit, 1, 1 << 53)
    thread.blocks.append({"kind": "while", "height": len(thread.stack), "at": 0, "limit": limit, "out": None})


def _round(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    entry = thread.blocks[-1]
    if not thread.stack.pop():
        thread.blocks.pop()
        thread.stack.append(None)
        thread.pc = arg
        return
    entry["at"] += 1
    if entry["limit"] is not None and entry["at"] > entry["limit"]:
        raise OperationError(f"while goes on after its limit of {entry['limit']} rounds", "rounds")


def _leave(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    entry = thread.blocks[arg[1] - 1]
    del thread.blocks[arg[1] - 1 :]
    del thread.stack[entry["height"] :]
    thread.stack.append(entry["out"])
    thread.pc = arg[0]


def _again(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    entry = thread.blocks[arg[1] - 1]
    del thread.blocks[arg[1] :]
    del thread.stack[entry["height"] :]
    thread.pc = arg[0]


# -- failures ---------------------------------------------------------------------------------------------------


def _try(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.blocks.append({"kind": "try", "height": len(thread.stack), "to": arg})


def _end_block(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    thread.blocks.pop()


def _retry(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    attempts, delay, backoff = _taken(thread, 3)
    entry: Entry = {"kind": "retry", "height": len(thread.stack), "to": thread.pc, "unsafe": False}
    entry["left"] = _integer("retry", attempts, 1, _MAX_ATTEMPTS) - 1
    entry["delay"] = _seconds("delay", delay)
    if not is_number(backoff) or backoff < 1:
        raise OperationError(f"backoff takes a number of 1 or more, not {described(backoff)}")
    entry["backoff"] = backoff
    thread.blocks.append(entry)


def _integer(what: str, value: Value, least: int, most: int) -> int:
    found = whole(value)
    if found is None or not least <= found <= most:
        raise OperationError(f"{what} takes an integer from {least} to {most}, not {described(value)}")
    return found


def _seconds(what: str, value: Value) -> float:
    if not is_number(value) or value < 0:
        raise OperationError(f"{what} takes a duration such as 500ms, not {described(value)}")
    return min(value, _MAX_PAUSE)


def _fail(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    raise OperationError(text_of(thread.stack.pop(), run.budget), "fail")


# -- tools and branches -----------------------------------------------------------------------------------------


def _tool(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    tool, args, timeout = _taken(thread, 3)
    if type(tool) is not str:
        raise OperationError(f"run takes the ID of a tool, not {described(tool)}")
    if args is not None and type(args) is not dict:
        raise OperationError(f"run takes the tool's arguments as an object, not {described(args)}")
    if timeout is not None and (not is_number(timeout) or timeout <= 0):
        raise OperationError(f"timeout takes a duration such as 5s, not {described(timeout)}")
    run.ask(thread, {"kind": "call", "tool": tool, "args": args or {}, "timeout": timeout})
    return "blocked"


def _branches(limit: Value) -> int:
    return _DEFAULT_BRANCHES if limit is None else _integer("limit", limit, 1, _MAX_BRANCHES)


def _fork(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    limit = thread.stack.pop()
    entry: Entry = {"values": None, "object": None, "names": arg[2], "starts": arg[1], "pairs": False}
    return _forked(run, thread, entry, len(arg[1]) if limit is None else _branches(limit), len(arg[1]), arg[0])


def _fork_each(run: Run, thread: Thread, arg: JSONValue) -> Signal:
    limit = thread.stack.pop()
    entry = _gone_over(thread.stack.pop())
    entry |= {"names": arg[1], "starts": None, "start": thread.pc, "pairs": arg[2]}
    return _forked(run, thread, entry, _branches(limit), len(entry["values"]), arg[0])


def _forked(run: Run, thread: Thread, entry: Entry, limit: int, count: int, end: int) -> Signal:
    thread.number += 1
    entry |= {"kind": "group", "height": len(thread.stack), "number": thread.number, "limit": limit}
    entry |= {"next": 0, "results": [None] * count, "skipped": []}
    thread.pc = end
    thread.blocks.append(entry)
    return "blocked" if run.fork(thread, entry) else None


def _ends(signal: Signal) -> Handler:
    def end(run: Run, thread: Thread, arg: JSONValue) -> Signal:
        return signal

    return end


INSTRUCTIONS: Final[dict[str, Handler]] = {
    "again": _again,
    "and": _and,
    "bind": _bind,
    "call": _call,
    "coalesce": _coalesce,
    "collected": _collected,
    "compare": _compare,
    "const": _const,
    "dup": _dup,
    "end": _ends("end"),
    "end_block": _end_block,
    "fail": _fail,
    "finish": _ends("finish"),
    "for": _for,
    "fork": _fork,
    "fork_each": _fork_each,
    "index": _index,
    "input": _input,
    "jump": _jump,
    "jump_if_false": _jump_if_false,
    "leave": _leave,
    "list": _list,
    "load": _load,
    "load_out": _load_out,
    "member": _member,
    "negative": _negative,
    "next": _next,
    "not": _not,
    "object": _object,
    "operate": _operate,
    "or": _or,
    "pop": _pop,
    "print": _print,
    "range": _range,
    "retry": _retry,
    "return": _ends("return"),
    "round": _round,
    "skip": _ends("skip"),
    "slice": _slice,
    "store_part": _store_part,
    "text": _text,
    "tool": _tool,
    "try": _try,
    "while": _while,
}
"""The operations by name."""
