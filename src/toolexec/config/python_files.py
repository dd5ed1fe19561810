"""Tools from Python: files and modules, loaded with their mistakes reported by line."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.exec import Exec

_PREFERRED_NAMES: Final = ("ex", "app")


class PythonTools:
    """What Python files and modules define; names that end with `.py` are files.

    `ex` is the module-level Exec of one of them (named `ex`, `app`, or the only one) and `place` where it is, or None.
    Raises ConfigurationError: one cannot be read, fails, or two have an Exec.
    """

    def __init__(self, names: Sequence[str]) -> None:
        unique = {str(Path(name).resolve()) if name.endswith(".py") else name: name for name in names}
        self._modules = [(name, _load(name)) for name in unique.values()]
        found = [(name, ex) for name, module in self._modules if (ex := _exec_of(name, module)) is not None]
        if len(found) > 1:
            raise ConfigurationError(
                f"{found[0][0]} and {found[1][0]} both have an Exec, and only one can be used; "
                "let the other file only declare tools"
            )
        self.place: str = found[0][0] if found else ""
        self.ex: Exec | None = found[0][1] if found else None

    def add_to(self, ex: Exec) -> None:
        """Add every tool declared with `@tool`, and every Tool, of the others to *ex*.

        Raises ConfigurationError: one defines nothing, or clashes with another.
        """
        for name, module in self._modules:
            if self.ex is None or name != self.place:
                located(name, _add_tools, ex, name, module)


def located(place: object, add: Any, *args: Any) -> None:
    """Call *add*; what clashes in *place* is a mistake in the configuration, reported with the file's name."""
    try:
        add(*args)
    except ConfigurationError:
        raise
    except ToolExecError as error:
        raise ConfigurationError(f"{place}: {error}", tool_id=error.tool_id, backend=error.backend) from error


def _load(name: str) -> ModuleType:
    return _load_file(Path(name)) if name.endswith(".py") else _load_module(name)


def _load_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise ConfigurationError(
                f"there is no Python module {name}; a file's name ends with .py, a module must be importable"
            ) from error
        raise _explained(name, "", error) from error
    except BaseException as error:
        raise _explained(name, "", error) from error


def _exec_of(path: str, module: ModuleType) -> Exec | None:
    from toolexec.exec import Exec

    named = {name: value for name, value in vars(module).items() if isinstance(value, Exec)}
    different = list({id(ex): ex for ex in named.values()}.values())
    if len(different) > 1:
        for name in _PREFERRED_NAMES:
            if name in named:
                return named[name]
        raise ConfigurationError(f"{path} has several Execs ({', '.join(named)}); name the one to use `ex` or `app`")
    return different[0] if different else None


def _add_tools(ex: Exec, path: str, module: ModuleType) -> None:
    from toolexec.model import FunctionTool, LocalBinding, Tool

    values = {id(value): value for value in vars(module).values() if isinstance(value, FunctionTool | Tool)}
    if not values:
        raise ConfigurationError(
            f"{path} defines neither an Exec nor a tool; put @tool above a function, or `ex = Exec()` at the top level"
        )
    for value in values.values():
        if isinstance(value, Tool):
            ex.add(value, binding=LocalBinding(value.id))  # a definition to read; running it says that nothing hosts it
        else:
            ex.add(value)


def _load_file(path: Path) -> ModuleType:
    """Run a Python file as an importable module; whatever it raises comes back with the file's own line."""
    file = path.resolve()
    if not file.is_file():
        raise ConfigurationError(f"cannot read {path}: {'it is a directory' if file.is_dir() else 'no such file'}")
    # A worker process imports killable handlers by the module's name, from the same directory.
    usable = file.stem.isidentifier() and file.stem not in sys.modules
    name = file.stem if usable else f"toolexec_config_{abs(hash(file))}"
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:  # pragma: no cover - a .py file always has a loader
        raise ConfigurationError(f"cannot load {path}")
    module = module_from_spec(spec)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        del sys.modules[name]
        raise _explained(str(path), str(file), error) from error
    return module


def _explained(path: str, file: str, error: BaseException) -> ConfigurationError:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line, source = None, ""
    if isinstance(error, SyntaxError) and error.filename == file:
        line, source, text = error.lineno, (error.text or "").strip(), f"{type(error).__name__}: {error.msg}"
    else:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        if own:
            line, source = own[-1].lineno, own[-1].line or ""
    where = f"{path}, line {line}" if line else str(path)
    return ConfigurationError(
        f"{where}: {text}{f' (in: {source})' if source else ''}",
        details={"file": path, "line": line, "type": type(error).__name__},
    )
