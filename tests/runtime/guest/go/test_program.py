"""Go programs made compilable, and what the compiler and the runtime say; no Go is needed for these."""

from __future__ import annotations

import pytest

from toolexec.runtime.guest.go.program import compile_error, crash_error, program_file, with_source


def test_statements_become_a_function_with_its_own_line_numbers() -> None:
    """The first line of the author is line 1 of code.go."""
    lines = program_file("x := 1\nreturn x").split("\n")
    start = lines.index("//line code.go:1:1")
    assert lines[start + 1 : start + 3] == ["x := 1", "return x"]
    assert "\tvar __out any" in lines
    assert "\treturn __out" in lines[start:]


@pytest.mark.parametrize(
    ("code", "imports"),
    [
        ('import "bytes"\nx()', ['\t "bytes"']),
        ('import (\n\t"bytes"\n\tj "encoding/json"\n)\nx()', ['\t "bytes"', '\tj "encoding/json"']),
        ('// why\nimport "a/b"\nimport c "d"\nx()', ['\t "a/b"', '\tc "d"']),
    ],
)
def test_imports_of_statements_move_to_the_top(code: str, imports: list[str]) -> None:
    """Blanks take their place, so that lines stay where they are."""
    text = program_file(code)
    head, _, body = text.partition("//line code.go:1:1\n")
    for line in imports:
        assert line in head.split("\n")
    assert body.split("\n")[code.count("\n")] == "x()"
    assert "import" not in body


def test_an_import_of_what_is_there_anyway_is_made_once() -> None:
    """Go refuses a name twice."""
    assert program_file('import "fmt"\nfmt.Println()').count('"fmt"') == 1


def test_a_complete_program_keeps_its_text() -> None:
    """Only `main` gets another name, and the package is main."""
    code = '// hi\npackage demo\n\nimport "fmt"\n\nfunc main() { fmt.Println(1) }\n'
    text = program_file(code)
    assert "package main" in text
    assert "func toolexecUserMain() { fmt.Println(1) }" in text
    assert "var tools = " in text
    assert program_file(code + "var tools = 1\n").count("var tools = ") == 1


def test_a_compile_error_has_place_and_source() -> None:
    """The first message in the author's text counts."""
    said = "# module\n./code.go:2:5: undefined: x\n./code.go:3:1: more\n"
    error = compile_error(said, "a\nb := x\n")
    assert (error["line"], error["column"], error["message"], error["source"]) == (2, 5, "undefined: x", "b := x")
    assert error["traceback"] == "./code.go:2:5: undefined: x\n./code.go:3:1: more"


def test_a_compile_error_elsewhere_is_told_as_it_is() -> None:
    """With no place."""
    assert compile_error("go: no such module", "x") == {"kind": "CompileError", "message": "go: no such module"}
    assert compile_error("", "x")["message"] == "the program does not compile"


def test_a_crash_is_found_in_what_was_written_last() -> None:
    """A panic, a fatal error, or nothing of the kind."""
    error = crash_error("log\npanic: boom\n\ngoroutine 7:\n\tm/code.go:2 +0x1\n", "a\nb")
    assert error is not None
    assert (error["kind"], error["message"], error["line"], error["source"]) == ("panic", "panic: boom", 2, "b")
    error = crash_error("fatal error: all goroutines are asleep", "a")
    assert error is not None
    assert (error["kind"], "line" in error) == ("fatal error", False)
    assert crash_error("exit status 1", "a") is None


def test_a_line_beyond_the_text_has_no_source() -> None:
    """Nor has an error without a line."""
    assert with_source({"line": 9}, "a")["source"] == ""
    assert with_source({"message": "x"}, "a") == {"message": "x"}
    assert with_source({"line": 1, "source": "mine"}, "a")["source"] == "mine"
