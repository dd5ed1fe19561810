"""Where tools come from: `mcpServers` JSON files and Python files, merged into one `Exec`."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.exec import Exec

__all__ = ["DEFAULT_FILES", "VARIABLE", "Sources", "find_sources", "load_exec"]

VARIABLE: Final = "TOOLEXEC_CONFIG"
DEFAULT_FILES: Final = ("toolexec.json", "mcp.json", ".mcp.json")
_PREFERRED_NAMES: Final = ("ex", "app")


@dataclass(frozen=True, slots=True)
class Sources:
    """The files that tools come from; `implied` when nobody named them and they were found in the current folder."""

    files: tuple[Path, ...]
    implied: bool = False


def find_sources(given: Sequence[Path]) -> Sources:
    """The files given, else those of $TOOLEXEC_CONFIG, else the first of `DEFAULT_FILES` in the current folder.

    Raises ConfigurationError when there is none.
    """
    if given:
        return Sources(tuple(given))
    listed = [part for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    if listed:
        return Sources(tuple(map(Path, listed)))
    for name in DEFAULT_FILES:
        if Path(name).is_file():
            return Sources((Path(name),), implied=True)
    raise ConfigurationError(
        "no tools: say where they come from with -c app.py (Python functions) or -c mcp.json (MCP servers), set "
        f"{VARIABLE}, or put one of {', '.join(DEFAULT_FILES)} into the current folder; toolexec demo needs none of it"
    )


def load_exec(files: Sequence[Path]) -> Exec:
    """An Exec with everything that *files* define.

    A JSON file's servers are added. A Python file's module-level Exec is used as it is (named `ex`, `app`, or the only
    one); without one, every tool declared with `@tool` and every Tool that the module holds is added. Raises
    ConfigurationError: a file cannot be read, fails, defines nothing, or clashes with another.
    """
    from toolexec.exec import Exec

    files = list({path.resolve(): path for path in files}.values())  # naming a file twice changes nothing
    modules = [(path, _load_module(path)) for path in files if path.suffix == ".py"]
    found = [(path, ex) for path, module in modules if (ex := _exec_of(path, module)) is not None]
    if len(found) > 1:
        raise ConfigurationError(
            f"{found[0][0]} and {found[1][0]} both have an Exec, and only one can be used; "
            "let the other file only declare tools"
        )
    ex = found[0][1] if found else Exec()
    for path, module in modules:
        if not found or path != found[0][0]:
            _located(path, _add_tools, ex, path, module)
    for path in files:
        if path.suffix != ".py":
            _located(path, ex.add_config, path)
    return ex


def _located(path: Path, add: Any, *args: Any) -> None:
    """Call *add*; what clashes in *path* is a mistake in the configuration, told with the file's name."""
    try:
        add(*args)
    except ConfigurationError:
        raise
    except ToolExecError as error:
        raise ConfigurationError(f"{path}: {error}", tool_id=error.tool_id, backend=error.backend) from error


def _exec_of(path: Path, module: ModuleType) -> Exec | None:
    from toolexec.exec import Exec

    named = {name: value for name, value in vars(module).items() if isinstance(value, Exec)}
    different = list({id(ex): ex for ex in named.values()}.values())
    if len(different) > 1:
        for name in _PREFERRED_NAMES:
            if name in named:
                return named[name]
        raise ConfigurationError(f"{path} has several Execs ({', '.join(named)}); name the one to use `ex` or `app`")
    return different[0] if different else None


def _add_tools(ex: Exec, path: Path, module: ModuleType) -> None:
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


def _load_module(path: Path) -> ModuleType:
    """Run a Python file as an importable module; whatever it raises comes back with the file's own line."""
    file = path.resolve()
    if not file.is_file():
        raise ConfigurationError(f"cannot read {path}: {'it is a folder' if file.is_dir() else 'no such file'}")
    # A worker process imports killable handlers by the module's name, from the same folder.
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
        raise _explained(path, file, error) from error
    return module


def _explained(path: Path, file: Path, error: BaseException) -> ConfigurationError:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    line, source = None, ""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        line, source, text = error.lineno, (error.text or "").strip(), f"{type(error).__name__}: {error.msg}"
    else:
        own = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        if own:
            line, source = own[-1].lineno, own[-1].line or ""
    where = f"{path}, line {line}" if line else str(path)
    return ConfigurationError(
        f"{where}: {text}{f' (in: {source})' if source else ''}",
        details={"file": str(path), "line": line, "type": type(error).__name__},
    )
