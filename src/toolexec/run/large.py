"""Work on large values: encoding them and selecting from them in short steps, off the event loop, within a budget.

A thread cannot be killed, and one call into C may hold the interpreter for seconds. So everything here goes in steps of
about a millisecond, and asks between them whether it may go on. Small values are not worth a thread.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from time import monotonic
from typing import Any, Final, TypeVar

from toolexec.backend.here import here
from toolexec.process.threads import NoThreadError, WorkerThreads

T = TypeVar("T")
ON_LOOP: ContextVar[bool] = ContextVar("toolexec_on_loop", default=False)
"""True where the same must happen in every run, whatever the time: no threads, and no slices by the clock."""
MAX_STEPS: Final = 20_000_000
"""How many steps one selection may take: some seconds, enough for a plain filter of a million rows."""
_SMALL_NODES: Final = 2000
_QUICK_NODES: Final = 16
_SMALL_CHARS: Final = 1 << 16
_PLAIN: Final = frozenset({int, float, bool, type(None)})
_BATCH: Final = 64
_STEPS_BETWEEN_LOOKS: Final = 1000
_SORTED_AT_ONCE: Final = 10_000
_THREADS: Final = 2

_encode = json.JSONEncoder(allow_nan=False).encode
COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
"""Writes JSON without blanks and escapes, and what JSON does not have as text."""
_threads = WorkerThreads(_THREADS)


class BudgetExceededError(Exception):
    """The work took more than its budget, or no one waits for it any more."""


class Budget:
    """What a piece of work may take: *seconds* from now on, and *steps* (None: no limit). Any thread may stop it, by
    `stop` or because *is_over* says so."""

    def __init__(
        self, seconds: float | None = None, *, steps: int | None = None, is_over: Callable[[], bool] | None = None
    ) -> None:
        self._ends = None if seconds is None else monotonic() + seconds
        self._steps = steps
        self._is_over = is_over
        self._stopped = False
        self._done = 0
        self._look_at = 0 if steps is None else min(steps, _STEPS_BETWEEN_LOOKS)

    def stop(self) -> None:
        """End the work at its next step."""
        self._stopped = True
        self._look_at = 0

    def spend(self, steps: int = 1) -> None:
        """Count *steps*; raises BudgetExceededError when that is too much, or the time is over."""
        self._done += steps
        if self._done >= self._look_at:
            self._look()

    def _look(self) -> None:
        if self._steps is not None and self._done > self._steps:
            raise BudgetExceededError("it takes too many steps; select a smaller part first")
        if self._stopped or (self._is_over is not None and self._is_over()):
            raise BudgetExceededError("it was stopped")
        if self._ends is not None and monotonic() > self._ends:
            raise BudgetExceededError("it takes too long; select a smaller part first")
        self._look_at = self._done + _STEPS_BETWEEN_LOOKS
        if self._steps is not None:
            self._look_at = min(self._look_at, self._steps + 1)


async def off_loop(work: Callable[[Budget], T], budget: Budget) -> T:
    """Do *work* in one of two threads for this; raises what it raises. Cancelling stops it. Under `ON_LOOP` it is done
    at once."""
    if ON_LOOP.get():
        return work(budget)
    try:
        return await _threads.run(work, budget)
    except asyncio.CancelledError:
        budget.stop()
        raise


async def walked(walk: Callable[[], T]) -> T:
    """Return what *walk*, a walk over a large value, gives; done off the event loop, where there is one.

    The value may change meanwhile, and a dict that grows cannot be walked: then it is done at once. So it is where
    every thread hangs: the value may be that of a call that was made, and an error would say that it was not.
    """
    if here.wait is not None:
        return walk()
    try:
        return await off_loop(lambda _: walk(), Budget())
    except (RuntimeError, NoThreadError):
        return walk()


def surely_fits(value: Any, limit: int) -> bool:
    """Return whether *value* is so small that it certainly takes at most *limit* bytes, without encoding it."""
    stack = [value]
    for _ in range(_QUICK_NODES):
        node = stack.pop()
        if type(node) is str:
            limit -= len(node) * 6 + 3
        elif type(node) is int:
            limit -= node.bit_length() // 3 + 3
        elif type(node) is dict:
            limit -= 3
            for key in node:
                limit -= len(key) * 6 + 4 if type(key) is str else limit + 1
            stack += node.values()
        elif type(node) is list:
            limit -= 3
            stack += node
        elif node is None or type(node) in (bool, float):
            limit -= 26
        else:
            return False
        if limit < 0:
            return False
        if not stack:
            return True
    return False


def is_small(value: Any) -> bool:
    """Return whether work on a JSON value is done in a millisecond: it has few parts and little text. Looks at no more
    than that many parts.
    """
    if type(value) is str:
        return len(value) <= _SMALL_CHARS
    nodes, chars = _SMALL_NODES, _SMALL_CHARS
    stack = [value]
    while stack:
        node = stack.pop()
        if type(node) in _PLAIN:
            continue
        if isinstance(node, str):
            chars -= len(node)
        elif isinstance(node, Mapping):
            nodes -= len(node)
            if nodes < 0:
                return False
            for key, item in node.items():
                chars -= len(key) if isinstance(key, str) else 1
                stack.append(item)
        elif isinstance(node, list | tuple):
            nodes -= len(node)
            if nodes < 0:
                return False
            stack += node
        if chars < 0:
            return False
    return True


def json_pieces(value: Any, budget: Budget | None = None, encode: Callable[[Any], str] = _encode) -> Iterator[str]:
    """Yield the JSON text of *value*, as *encode* writes it (`json.dumps`), in pieces, none of which takes long.

    Raises TypeError, ValueError and RecursionError as *encode* does, and BudgetExceededError.
    """
    comma = encode([0, 0])[2:-2]
    if budget is not None:
        budget.spend(_BATCH)
    if is_small(value):
        yield encode(value)
    elif isinstance(value, str):
        yield '"'
        for at in range(0, len(value), _SMALL_CHARS):
            if budget is not None:
                budget.spend(_BATCH)
            yield encode(value[at : at + _SMALL_CHARS])[1:-1]
        yield '"'
    elif isinstance(value, dict):
        yield "{"
        before = ""
        for key, item in value.items():
            yield before + encode({key: None})[1:-5]
            yield from json_pieces(item, budget, encode)
            before = comma
        yield "}"
    elif isinstance(value, list | tuple):
        yield "["
        before = ""
        for at in range(0, len(value), _BATCH):
            batch = [*value[at : at + _BATCH]]
            if is_small(batch):
                if budget is not None:
                    budget.spend(_BATCH)
                yield before + encode(batch)[1:-1]
                before = comma
                continue
            for item in batch:
                yield before
                yield from json_pieces(item, budget, encode)
                before = comma
        yield "]"
    else:
        yield encode(value)


def encode_large(value: Any, budget: Budget | None = None) -> str:
    """*value* as JSON text, like `json.dumps`; raises as `json_pieces` does."""
    return "".join(json_pieces(value, budget))


def search(parsed: Any, value: Any, budget: Budget) -> Any:
    """Return what a parsed JMESPath selects from *value*.

    Raises BudgetExceededError, and what jmespath raises: JMESPathError, ValueError, TypeError, RecursionError.
    """
    return _interpreter()(budget).visit(parsed, value)


def spend_on(value: Any, budget: Budget) -> None:
    """Spend a step for each part of *value*, as often as it is in there: a few parts, each twice in the next one, are
    soon more than one can write down. Raises BudgetExceededError."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            budget.spend(len(node))
            stack.extend(node.values())
        elif isinstance(node, list | tuple):
            budget.spend(len(node))
            stack += node


_lock = threading.Lock()
_interpreters: list[Any] = []


def _interpreter() -> Any:
    """Return the class that walks a path; made when the first path comes, as most programs never load jmespath."""
    with _lock:
        if not _interpreters:
            _interpreters.append(_make_interpreter())
    return _interpreters[0]


def _make_interpreter() -> Any:
    from jmespath import functions
    from jmespath.visitor import Options, TreeInterpreter

    plain_functions: Any = functions.Functions
    plain_interpreter: Any = TreeInterpreter

    class _Functions(plain_functions):
        """Sorts in pieces: one long sort would hold the interpreter."""

        @functions.signature({"types": ["array-string", "array-number"]})
        def _func_sort(self, arg: Any) -> Any:
            return _sorted(arg)

        @functions.signature({"types": ["array"]}, {"types": ["expref"]})
        def _func_sort_by(self, array: Any, expref: Any) -> Any:
            if len(array) <= _SORTED_AT_ONCE:
                return super()._func_sort_by(array, expref)
            super()._func_sort_by(array[:1], expref)  # checks the type that the others must have
            kind = self._convert_to_jmespath_type(type(expref.visit(expref.expression, array[0])).__name__)
            keys = [*map(self._create_key_func(expref, [kind], "sort_by"), array)]
            return [array[at] for at in _sorted(range(len(array)), keys.__getitem__)]

    class _Interpreter(plain_interpreter):
        """Spends a step for each part that it visits, and for each that it makes."""

        def __init__(self, budget: Budget) -> None:
            super().__init__(Options(custom_functions=_Functions()))
            self._spend = budget.spend

        def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
            self._spend()
            return super().visit(node, *args, **kwargs)

        def visit_flatten(self, node: Any, value: Any) -> Any:
            merged = super().visit_flatten(node, value)
            self._spend(len(merged or ()))
            return merged

        def visit_function_expression(self, node: Any, value: Any) -> Any:
            arguments = [self.visit(child, value) for child in node["children"]]
            for argument in arguments:
                self._spend(_weight(argument))
            made = self._functions.call_function(node["value"], arguments)
            self._spend(_weight(made))
            return made

    return _Interpreter


def _weight(value: Any) -> int:
    if isinstance(value, str):
        return len(value) >> 6
    return len(value) if isinstance(value, list | dict) else 0


def sorted_in_pieces(items: Iterable[Any], key: Callable[[Any], Any] | None = None) -> list[Any]:
    """Return what `sorted` does: of many, a few at a time, as one long sort would hold the interpreter."""
    return _sorted(list(items), key)


def _sorted(items: Any, key: Callable[[Any], Any] | None = None) -> list[Any]:
    if len(items) <= _SORTED_AT_ONCE:
        return sorted(items, key=key)
    starts = range(0, len(items), _SORTED_AT_ONCE)
    return [*heapq.merge(*(sorted(items[at : at + _SORTED_AT_ONCE], key=key) for at in starts), key=key)]
