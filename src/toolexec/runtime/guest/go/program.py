"""A Go program as its author wrote it, made compilable: a file for the package of the guest. Pure: text in, text out.

There are three shapes: a complete program with `package` and `func main`; statements that assign `__out`; statements
with a `return` of one value at the top. Line directives keep the author's own line numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

CODE_FILE: Final = "code.go"
"""What the author's text is called in messages."""

_IMPORTED: Final = {
    "encoding/json": "json.Marshal",
    "errors": "errors.New",
    "fmt": "fmt.Sprint",
    "math": "math.Abs",
    "os": "os.Getenv",
    "sort": "sort.Ints",
    "strconv": "strconv.Itoa",
    "strings": "strings.ToUpper",
    "time": "time.Now",
}
"""Packages that statements may use without importing them, and a use of each, as Go refuses unused imports."""

_PACKAGE: Final = re.compile(r"^\s*package\s+(\w+)", re.MULTILINE)
_MAIN: Final = re.compile(r"^func\s+main\s*\(\s*\)", re.MULTILINE)
_IMPORT: Final = re.compile(
    r'\s*(?://[^\n]*\n\s*)*import\s*(?:\((?P<many>[^)]*)\)|(?P<one>(?:[\w.]+\s+)?"[^"\n]+"))[;\s]*?(?=\n|;|$)'
)
_SPEC: Final = re.compile(r'(?:([\w.]+)\s+)?"([^"\n]+)"')
_NAMES: Final = (("tools", "toolexecTheTools"), ("ctx", "toolexecContext"))


def program_file(code: str) -> str:
    """Return the text of a file of package main that defines `toolexecProgram`."""
    if _PACKAGE.search(code) and _MAIN.search(code):
        return _complete(code)
    return _statements(code)


def _complete(code: str) -> str:
    """The program itself; what it declares under the names that others get from us, it keeps."""
    text = _PACKAGE.sub("package main", code, count=1)
    text = _MAIN.sub("func toolexecUserMain()", text, count=1)
    names = [
        f"var {name} = {ours}"
        for name, ours in _NAMES
        if not re.search(rf"^(?:var|func|const|type)\s+{name}\b", code, re.MULTILINE)
    ]
    # initialised at the call: the guest makes its tools in main, and package variables are made before that
    names = [line.replace("toolexecTheTools", "&toolexecTools{}") for line in names]
    fill = "*tools = *toolexecTheTools; " if any("toolexecTools{}" in line for line in names) else ""
    wrapper = f"func toolexecProgram() any {{ {fill}toolexecUserMain(); return nil }}"
    return "\n".join([f"//line {CODE_FILE}:1:1", text, "//line toolexec.go:1", *names, wrapper, ""])


def _statements(code: str) -> str:
    imports, body = _hoist(code)
    used = {path: use for path, use in _IMPORTED.items() if ("", path) not in imports}
    lines = ["package main", "import ("]
    lines += [f"\t{name} {path!r}".replace("'", '"') for name, path in sorted(imports)]
    lines += [f'\t"{path}"' for path in used]
    lines += [")", *(f"var _ = {use}" for use in used.values())]
    lines += ["func toolexecProgram() any {", "\tvar __out any"]
    lines += [f"\t{name} := {ours}; _ = {name}" for name, ours in _NAMES]
    lines += [f"//line {CODE_FILE}:1:1", body, "//line toolexec.go:1", "\treturn __out", "}", ""]
    return "\n".join(lines)


def _hoist(code: str) -> tuple[set[tuple[str, str]], str]:
    """The imports at the start of statements (name, path), and the statements with blanks in their place."""
    imports: set[tuple[str, str]] = set()
    position = 0
    while (found := _IMPORT.match(code, position)) is not None:
        imports |= {(name, path) for name, path in _SPEC.findall(found["many"] or found["one"])}
        position = found.end()
    return imports, re.sub(r"[^\n]", " ", code[:position]) + code[position:]


def compile_error(said: str, code: str) -> dict[str, Any]:
    """Return the failure that the compiler's messages describe; the first one in the author's own text says where."""
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith("#")]
    found = re.search(rf"{re.escape(CODE_FILE)}:(\d+)(?::(\d+))?: (.*)", said)
    error: dict[str, Any] = {
        "kind": "CompileError",
        "message": "\n".join(lines)[:2000] or "the program does not compile",
    }
    if found is not None:
        error |= {
            "message": found[3],
            "line": int(found[1]),
            "column": int(found[2] or 0),
            "traceback": "\n".join(lines),
        }
    return with_source(error, code)


def crash_error(stderr: str, code: str) -> dict[str, Any] | None:
    """Return the failure of a program that Go has ended, such as for a panic in a goroutine; None if it says nothing of
    it.
    """
    crash = re.search(r"^(?:panic|fatal error): .*", stderr, re.MULTILINE)
    if crash is None:
        return None
    error: dict[str, Any] = {
        "kind": crash[0].partition(":")[0],
        "message": crash[0][:2000],
        "traceback": stderr[crash.start() :],
    }
    place = re.search(rf"{re.escape(CODE_FILE)}:(\d+)", stderr[crash.start() :])
    if place is not None:
        error["line"] = int(place[1])
    return with_source(error, code)


def with_source(error: Mapping[str, Any], code: str) -> dict[str, Any]:
    """Return *error* with the line of the author's text that it names, as the compiled program has no such text."""
    number = error.get("line")
    return {**error, "source": _line(code, number)} if isinstance(number, int) and "source" not in error else {**error}


def _line(code: str, number: int) -> str:
    lines = code.splitlines()
    return lines[number - 1] if 0 < number <= len(lines) else ""
