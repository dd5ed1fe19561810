"""The tools in a Python module, or in what it holds under a name."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any, Final

from toolexec.backend.providers.python.foreign import foreign_tool
from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.declare import FunctionTool, declare

_HOLDERS: Final = ("tools", "get_tools", "to_tool_list")
"""Where objects keep their tools: attributes with them, or methods without arguments that return them."""


class FoundTools:
    """The tools of one target: `tools`, and what could not become one by its name with the reason."""

    def __init__(self) -> None:
        self.tools: list[FunctionTool[..., Any]] = []
        self.skipped: dict[str, str] = {}


def load_target(target: str, where: str) -> Any:
    """Import `package.module` or `package.module:name` and return the module or what it holds.

    Raises ConfigurationError, which begins with *where*, for what is not there or fails.
    """
    name, _, path = target.partition(":")
    try:
        value: Any = importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        lacking = error.name if isinstance(error, ModuleNotFoundError) else None
        if lacking and (name == lacking or name.startswith(f"{lacking}.")):
            raise ConfigurationError(f"{where}: there is no Python module {name}") from error
        raise ConfigurationError(f"{where}: {name} cannot be imported: {_described(error)}") from error
    for part in path.split(".") if path else ():
        try:
            value = getattr(value, part)
        except AttributeError as error:
            raise ConfigurationError(f"{where}: {name} has no {path!r}") from error
    return value


def is_exec(value: Any) -> bool:
    """Return whether this is an `Exec`, whose calls go through its own gate."""
    return not isinstance(value, type) and all(hasattr(value, name) for name in ("run_tool", "stream_tool", "index"))


def find_tools(value: Any, where: str) -> FoundTools:
    """Return the tools of a module, a function, a tool of any framework, or an object or collection that has tools.

    Raises ConfigurationError for what has none.
    """
    found = FoundTools()
    if isinstance(value, ModuleType):
        members = {id(each): (name, each) for name, each in vars(value).items() if not name.startswith("_")}
        for name, each in members.values():
            _take(found, name, partial(_as_tool, each))
    elif (made := _tool_or_none(found, where, value)) is not None:
        found.tools.append(made)
    elif callable(value) and not isinstance(value, type):
        _take(found, getattr(value, "__name__", where), partial(declare, value))
    else:
        for number, each in enumerate(_held(value, where)):
            _take(found, getattr(each, "name", None) or str(number), partial(_as_tool, each, functions=True))
    if not found.tools and not found.skipped:
        raise ConfigurationError(f"{where}: {_kind(value)} has no tools; name a function or tool in it: module:name")
    return found


def _tool_or_none(found: FoundTools, where: str, value: Any) -> FunctionTool[..., Any] | None:
    try:
        return _as_tool(value)
    except ToolExecError as error:
        raise ConfigurationError(f"{where}: {error.message}") from error


def _take(found: FoundTools, name: str, make: Callable[[], FunctionTool[..., Any] | None]) -> None:
    try:
        tool = make()
    except ToolExecError as error:
        found.skipped[str(name)[:128]] = error.message
    except Exception as error:  # whatever a framework does
        found.skipped[str(name)[:128]] = _described(error)
    else:
        if tool is not None:
            found.tools.append(tool)


def _as_tool(value: Any, *, functions: bool = False) -> FunctionTool[..., Any] | None:
    """Return a value as a tool, None for what is not one; plain *functions* are tools only where they are listed."""
    if isinstance(value, FunctionTool):
        return value
    made = foreign_tool(value)
    if made is None and functions and callable(value):
        return declare(value)
    return made


def _held(value: Any, where: str) -> Iterator[Any]:
    """Yield what an object or a collection holds."""
    for name in _HOLDERS:
        if not isinstance(value, Mapping | list | tuple | set) and hasattr(value, name):
            held: Any = getattr(value, name)
            try:
                value = held() if callable(held) else held
            except Exception as error:
                raise ConfigurationError(f"{where}: its {name} failed: {_described(error)}") from error
            break
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value


def _kind(value: Any) -> str:
    return f"module {value.__name__}" if isinstance(value, ModuleType) else f"{type(value).__name__}"


def _described(error: BaseException) -> str:
    """Return type and message of an exception, and the line where it came from."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    line = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{text[:1000]}{line}"
