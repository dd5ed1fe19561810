"""Have a context variable hold a value in a block, also in a coroutine that is dropped before the block ends."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class Bound(Generic[_Value]):
    """Has *variable* hold *value* in the block: `with Bound(CALLER, "ann"):`.

    A coroutine that nothing awaits any more is closed where it is collected, in a context that is not its own: there
    the variable is left as it is. `reset` raises ValueError there, in place of the GeneratorExit that ends coroutines.
    """

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[_Value], value: _Value) -> None:
        self._variable = variable
        self._value = value
        self._token: Token[_Value] | None = None

    def __enter__(self) -> _Value:
        self._token = self._variable.set(self._value)
        return self._value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        try:
            self._variable.reset(self._token)
        except ValueError:
            if kind is None or not issubclass(kind, GeneratorExit):
                raise
