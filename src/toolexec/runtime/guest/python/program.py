"""A program that was compiled: it runs in a namespace, and has a value; see `compiling`."""

from __future__ import annotations

from typing import Any

NOTHING: Any = type("Nothing", (), {"__repr__": lambda self: "NOTHING", "__doc__": "No value: the end was reached."})()
LAST = "__toolexec_last__"
MAIN = "__toolexec_main__"
STAR = "__toolexec_star__"
NOTHING_NAME = "__toolexec_nothing__"
_COROUTINE = 0x80  # CO_COROUTINE; `inspect` has it, and takes long to import


class Program:
    """A compiled program: `run(namespace)` gives its value, or a coroutine of it when `is_async`."""

    def __init__(self, body: Any, last: Any = None, *, calls_main: bool = False) -> None:
        """*body* is the code of the statements, *last* that of a final expression; or *body* defines a function."""
        self._body = body
        self._last = last
        self._calls_main = calls_main
        flags = (body.co_flags if body is not None else 0) | (last.co_flags if last is not None else 0)
        self.is_async = bool(flags & _COROUTINE)

    def run(self, namespace: dict[str, Any]) -> Any:
        """Run it in *namespace*; NOTHING when it ended without `return`. The value of a final expression is in the
        namespace, as LAST."""
        namespace[LAST] = NOTHING
        if self._calls_main:
            namespace[NOTHING_NAME] = NOTHING
            namespace[STAR] = _import_star
            exec(self._body, namespace)  # noqa: S102 - to run code is what a sandbox is for
            value = namespace.pop(MAIN)()
            self.is_async: bool = hasattr(value, "__await__")
            return value
        if self.is_async:
            return self._run_async(namespace)
        if self._body is not None:
            exec(self._body, namespace)  # noqa: S102
        if self._last is not None:
            namespace[LAST] = eval(self._last, namespace)  # noqa: S307
        return NOTHING

    async def _run_async(self, namespace: dict[str, Any]) -> Any:
        for code in (self._body, self._last):
            if code is not None:
                value = eval(code, namespace)  # noqa: S307
                if code.co_flags & _COROUTINE:
                    value = await value
                if code is self._last:
                    namespace[LAST] = value
        return NOTHING


def _import_star(name: str, namespace: dict[str, Any]) -> None:
    """`from name import *`."""
    import importlib

    module = importlib.import_module(name)
    exported = getattr(module, "__all__", None)
    names = exported if exported is not None else [key for key in vars(module) if not key.startswith("_")]
    namespace.update({key: getattr(module, key) for key in names})
