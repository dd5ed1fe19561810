"""What a program may do with results and calls that Python alone refuses, where what is meant is certain.

Each kind of leniency is reported to the host, once, for the notes of the result.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import Any

threads: list[bool] = [True]
"""Whether there are threads."""

_PLAIN = (dict, list, int, float)


class Record(dict):  # type: ignore[type-arg] # subscripting it would need typing at run time
    """A dict whose keys can be read as attributes, where a dict has no attribute of that name."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            _note[0](f'results are dicts: `.{name}` was read as `["{name}"]`')
            return self[name]
        raise AttributeError(f"'dict' object has no attribute '{name}'")


def records(value: Any) -> Any:
    """Return a JSON value with a `Record` for each of its dicts."""
    if type(value) is dict:
        return Record({key: records(part) for key, part in value.items()})
    return [records(part) for part in value] if type(value) is list else value


def take_on(source: str, note: Callable[[str], None]) -> None:
    """Make what *source* uses lenient: `json.loads`, `asyncio.gather`, and, without threads, pools of them. *note* has
    notes for the host."""
    _note[0] = note  # not an attribute of a class: each change of one slows all that use the class
    if "json" in source and "loads" in source:
        _parse_values()
    if "gather(" in source and "asyncio" in source:
        _gather_lists()
    if not threads[0] and "ThreadPoolExecutor" in source:
        _work_in_turn(note)


_note: list[Callable[[str], None]] = [lambda text: None]


def _parse_values() -> None:
    import json

    if getattr(json.loads, "is_lenient", False):
        return
    parse = json.loads

    def loads(s: Any, *args: Any, **kwargs: Any) -> Any:
        s = _settled(s)
        if s is None or isinstance(s, _PLAIN):
            _note[0]("`json.loads` was given a value that was not text, and gave it back as it is")
            return s
        return parse(s, *args, **kwargs)

    loads.is_lenient = True  # type: ignore[attr-defined]
    loads.__doc__, loads.__wrapped__ = parse.__doc__, parse  # type: ignore[attr-defined]
    json.loads = loads


def _gather_lists() -> None:
    import asyncio

    if getattr(asyncio.gather, "is_lenient", False):
        return
    gather_each = asyncio.gather

    def gather(*awaitables: Any, **kwargs: Any) -> Any:
        if len(awaitables) == 1 and type(awaitables[0]) in (list, tuple):
            _note[0]("`asyncio.gather` takes calls one by one: it was given a list, and took what is in it")
            awaitables = tuple(awaitables[0])
        return gather_each(*awaitables, **kwargs)

    gather.is_lenient = True  # type: ignore[attr-defined]
    asyncio.gather = gather  # type: ignore[assignment]


def _work_in_turn(note: Callable[[str], None]) -> None:
    from concurrent.futures import Future, ThreadPoolExecutor

    def submit(self: Any, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        note("there are no threads: what was given to the pool was done in turn")
        if self._shutdown:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Any = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(_settled(fn(*args, **kwargs)))
        except BaseException as error:
            future.set_exception(error)
        return future

    ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]


def _settled(value: Any) -> Any:
    settle = getattr(type(value), "__toolexec_value__", None)
    return settle(value) if settle is not None and hasattr(value, "_request_id") else value


class Printing:
    """A `print` that knows what it was given, if that was one thing, once."""

    def __init__(self) -> None:
        self._times = 0
        self._only: tuple[Any, ...] = ()

    def __call__(self, *values: Any, **kwargs: Any) -> None:
        """Print."""
        self._times += 1
        self._only = values if not kwargs else ()
        builtins.print(*values, **kwargs)  # noqa: T201 - that is what it is for

    def value(self, nothing: Any) -> Any:
        """Return the one thing that was printed, parsed if it is the JSON of an object or a list; else *nothing*."""
        if self._times != 1 or len(self._only) != 1:
            return nothing
        value = _settled(self._only[0])
        if isinstance(value, str) and value[:1] in ("{", "[") and "json" in sys.modules:
            try:
                return sys.modules["json"].loads(value)
            except ValueError:
                return value
        return value
