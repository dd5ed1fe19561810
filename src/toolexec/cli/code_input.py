"""From the words of `toolexec code` to a program and the settings of its run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolexec.code.limits import Limits
from toolexec.errors import ConfigurationError
from toolexec.exec.code import CodeSettings
from toolexec.model.json_value import JSONDict

_LANGUAGES: Final = {
    ".py": "python",
    ".js": "javascript",
    ".mjs": "javascript",
    ".wasm": "wasm",
    ".wat": "wasm",
    ".sh": "bash",
    ".go": "go",
    ".workflow": "workflow",
}
_MODULE: Final = b"\0asm"
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMG]?)(?:I?B)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeOptions:
    """What was said on the command line; strings are as they were typed, and `None` or empty is not said.

    The program is `text`, or what `file` has (`-`: stdin). `files` and `env` are `PATH[=NAME]` and `NAME[=VALUE]`,
    sizes are like `64M`, times in seconds and milliseconds as the names say. `packages` are those of a sandbox that
    has more than the standard library.
    """

    file: str = ""
    text: str | None = None
    language: str = ""
    timeout: float | None = None
    max_tool_calls: int = 0
    max_chain_steps: int = 0
    memory: str = ""
    disk: str = ""
    cpu_ms: int = 0
    cpus: float = 0
    pids: int = 0
    allow: Sequence[str] = ()
    env: Sequence[str] = ()
    files: Sequence[str] = ()
    out_dir: Path | None = None
    profile: str = ""
    unsafe: bool = False
    seed: int | None = None
    now: float | None = None
    best_effort: bool = False
    args: Sequence[str] = ()
    stdin: bool = False
    packages: Sequence[str] = ()
    trace: bool = False
    durable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program: its text, its language ("" for the default one), and for a WebAssembly module its metadata."""

    text: str
    language: str = ""
    metadata: Mapping[str, object] = field(default_factory=JSONDict)


def read_program(options: CodeOptions) -> Program:
    """Return the program to run, its language by the file's name unless one was given.

    Raises ConfigurationError when there is none, there are two, or it cannot be read.
    """
    if options.text is not None:
        return Program(text=options.text, language=options.language)
    if not options.file:
        raise ConfigurationError("there is no code: name a file, give - for stdin, or write it after -e")
    name = "stdin" if options.file == "-" else options.file
    if options.file == "-" and options.stdin:
        raise ConfigurationError("the code comes from stdin, so --stdin has nothing to hand on; name a file or use -e")
    data = sys.stdin.buffer.read() if options.file == "-" else _read(Path(options.file))
    language = options.language or _LANGUAGES.get(Path(options.file).suffix.lower(), "")
    if data.startswith(_MODULE):
        return Program(text="", language=language or "wasm", metadata={"wasm_module": data})
    try:
        return Program(text=data.decode("utf-8-sig"), language=language)
    except ValueError as error:
        raise ConfigurationError(f"{name} is neither UTF-8 text nor a WebAssembly module") from error


def read_settings(options: CodeOptions, program: Program) -> CodeSettings:
    """Return the settings of the run; raises ConfigurationError and InvalidLimitsError for words that make no sense."""
    settings: CodeSettings = {
        "language": program.language,
        "timeout": options.timeout,
        "allowed_tools": options.allow or None,
        "env": _environment(options.env),
        "files": _files(options.files),
        "limits": _limits(options),
        "profile": options.profile or ("dev" if options.unsafe else ""),
        "args": options.args,
        "stdin": sys.stdin.buffer.read() if options.stdin else b"",
        "seed": options.seed,
        "now": options.now,
        "best_effort": options.best_effort,
        "metadata": program.metadata,
        "unsafe_opt_in": options.unsafe,
    }
    return settings


def read_size(text: str) -> int:
    """Bytes from `"64M"` and the like (K, M and G are powers of 1024); raises ConfigurationError."""
    match = _SIZE.fullmatch(text.strip())
    size = int(float(match[1]) * _UNITS[match[2].upper()]) if match else 0
    if size < 1:
        raise ConfigurationError(f"{text!r} is not a size; write bytes, or a number with K, M or G, as in 64M")
    return size


def _limits(options: CodeOptions) -> Limits:
    return Limits(
        max_tool_calls=options.max_tool_calls,
        max_chain_steps=options.max_chain_steps,
        memory_bytes=read_size(options.memory) if options.memory else 0,
        disk_bytes=read_size(options.disk) if options.disk else 0,
        cpu_ms=options.cpu_ms,
        cpus=options.cpus,
        pids=options.pids,
    )


def _environment(words: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not name:
            raise ConfigurationError(f"cannot read the variable {word!r}; write NAME=VALUE, or NAME for the one here")
        if not equals:
            here = os.environ.get(name)
            if here is None:
                raise ConfigurationError(f"there is no variable {name} here to hand on; write {name}=VALUE")
            value = here
        found[name] = value
    return found


def _files(words: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for word in words:
        path, equals, name = word.rpartition("=")
        if not equals or Path(word).is_file():  # a path may have an equals sign of its own
            path, name = word, Path(word).name
        if not name or name in found:
            raise ConfigurationError(f"--file {word}: {'there are two' if name else 'there is no'} file named {name!r}")
        found[name] = _read(Path(path))
    return found


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror or error}") from error
