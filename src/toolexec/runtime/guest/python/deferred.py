"""Results of tool calls that are still on their way."""

from __future__ import annotations

import asyncio
import operator
from typing import Any

from .channel import Channel, answer_value

_WAITS = ("run:sleep", "run:signal", "run:input")


class Deferred(asyncio.Future):  # type: ignore[type-arg]
    """The result of a tool call in a program that uses `await`: await it, gather it, or use it like the result itself.

    The call starts at once. Any use other than those of asyncio waits for the result first.
    """

    def __init__(self, channel: Channel, kind: str, payload: Any, convert: Any) -> None:
        super().__init__()
        self._channel = channel
        self._convert = convert
        self._payload = payload  # the host must not forget a large result in it before it has received the call
        self._is_wait = kind == "run_tool" and payload.get("id") in _WAITS
        self._is_used = False
        self._request_id = channel.submit(kind, payload, self._hear)
        self.__toolexec_number__ = int(self._request_id)
        unfinished.add(self)

    def add_done_callback(self, fn: Any, *, context: Any = None) -> None:
        """Notify *fn* of the end, as for any future: a task, a shield or a gather waits for it."""
        self._is_used = True
        super().add_done_callback(fn, context=context)

    def _hear(self, message: Any) -> None:
        unfinished.discard(self)
        self._payload = None
        if self.done():
            return
        try:
            self.set_result(self._convert(answer_value(message)))
        except Exception as error:
            self.set_exception(error)

    def __await__(self) -> Any:
        if not self.done() and len(unfinished) == 1 and self in unfinished and _is_alone(self.get_loop()):
            self._channel.settle(self._request_id)
        return super().__await__()

    def __toolexec_left__(self) -> bool:
        """Return whether it is a wait of a durable run that the program has given to asyncio."""
        return self._is_wait and self._is_used

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the call."""
        if self in unfinished:
            unfinished.discard(self)
            _cancelled[:] = [self._channel]
        self._channel.forget(self._request_id)
        return super().cancel(msg)

    def __toolexec_value__(self) -> Any:
        if not self.done():
            self._channel.settle(self._request_id)
        return self.result()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.__toolexec_value__(), name)

    def __iter__(self) -> Any:
        return iter(self.__toolexec_value__())

    def __eq__(self, other: object) -> Any:
        return self is other or self.__toolexec_value__() == _settled(other)

    def __hash__(self) -> int:
        return id(self)


def _is_alone(loop: Any) -> bool:
    """Whether nothing else could run while the current task waits: then it may as well block, which is quicker."""
    return getattr(loop, "may_block", None) is not None and loop.may_block()


unfinished: set[Deferred] = set()
"""Calls that were started and neither answered nor cancelled."""


_cancelled: list[Channel] = []  # that of a call which was cancelled: the host may not know yet


def end_calls(loop: Any) -> None:
    """Finish the calls of a program that has ended, in the order in which they were made.

    What only a durable run can wait for is called off where the program has given it to asyncio, as a shield does, and
    waits for it no longer; so is it recorded. Without that it is a call like any other, whose `await` was forgotten.
    """
    for call in _in_order():
        if call.__toolexec_left__():
            call.cancel()
    while _cancelled:
        _cancelled.pop().flush()
    if unfinished:
        loop.run_until_complete(asyncio.gather(*_in_order()))


def _in_order() -> list[Deferred]:
    return sorted(unfinished, key=lambda call: call.__toolexec_number__)


def _settled(value: Any) -> Any:
    return value.__toolexec_value__() if isinstance(value, Deferred) else value


def _forward(name: str, function: Any) -> None:
    def method(self: Any, *args: Any) -> Any:
        return function(self.__toolexec_value__(), *map(_settled, args))

    setattr(Deferred, name, method)


for _name in ("lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod", "getitem", "contains", "neg"):
    _forward(f"__{_name}__", getattr(operator, _name))


def _swapped(function: Any) -> Any:
    return lambda value, other: function(other, value)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
    _forward(f"__r{_name}__", _swapped(getattr(operator, _name)))
for _name, _function in (
    ("len", len),
    ("bool", bool),
    ("str", str),
    ("int", int),
    ("float", float),
    ("repr", repr),
    ("index", operator.index),
    ("format", format),
):
    _forward(f"__{_name}__", _function)
