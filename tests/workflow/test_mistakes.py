"""Wrong workflows: where each is wrong, what the error says, and what it suggests."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.depth import examples
from tests.workflow.trees import workflows

from toolexec.errors import CodeError, WorkflowSyntaxError
from toolexec.workflow import nodes as n
from toolexec.workflow.formatter import format_tree
from toolexec.workflow.parser import MAX_SOURCE, parse
from toolexec.workflow.tokens import MAX_BLOCKS, MAX_BRACKETS, MAX_DEPTH, MAX_ELSE_IFS, MAX_OPERATORS

WRONG: list[tuple[str, int, int, str, str]] = [
    ('let x = 1', 1, 1, 'there is no `let`', 'write `name := value`'),
    ('const x = 1', 1, 1, 'there is no `const`', 'write `name := value`'),
    ('var y := 2', 1, 1, 'there is no `var`', 'write `name := value`'),
    ('x := await run("a:b")', 1, 6, 'there is no `await`', 'leave it out: run waits for its tool; use `parallel { ... }`'),
    ('def f(x):', 1, 1, 'there is no `def`', 'functions cannot be defined; repeat with `for` or `collect`,'),
    ('function f(x) { }', 1, 1, 'there is no `function`', 'functions cannot be defined; repeat with `for` or `collect`,'),
    ('import json', 1, 1, 'there is no `import`', 'there is nothing to import; tools are called with run'),
    ('x := None', 1, 6, 'there is no `None`', 'write `null`'),
    ('return True', 1, 8, 'there is no `True`', 'write `true`'),
    ('x === 1', 1, 3, 'there is no operator `===`', 'write `==`'),
    ('x := a !== b', 1, 8, 'there is no operator `!==`', 'write `!=`'),
    ('i++', 1, 2, 'there is no operator `++`', 'write `x = x + 1`'),
    ('i += 1', 1, 3, 'there is no operator `+=`', 'write `x = x + ...`'),
    ('a ** b', 1, 3, 'there is no operator `**`', 'multiply with `*`'),
    ('x => x', 1, 3, 'there is no operator `=>`', 'functions cannot be defined; repeat with `for` or `collect`,'),
    ('x -> y', 1, 3, 'there is no operator `->`', 'functions cannot be defined; repeat with `for` or `collect`,'),
    ('if x:', 1, 5, 'unexpected `:`', 'a block is what stands in braces: { ... }'),
    ('if x then { }', 1, 6, 'unexpected `then`', 'a block is what stands in braces: if condition { ... }'),
    ('if x { 1 } elif y { 2 }', 1, 12, 'there is no `elif`', 'write `else if`'),
    ('if x { 1 } elseif y { 2 }', 1, 12, 'there is no `elseif`', 'write `else if`'),
    ('if x = 1 { }', 1, 6, 'unexpected `=`', 'to compare write `==`'),
    ('while (x = 1) { }', 1, 10, 'unexpected `=`', 'to compare write `==`'),
    ('for (x in xs) { }', 1, 5, 'unexpected `(`', 'write `for x in xs { ... }`'),
    ('for (let i = 0; i < 3; i++) { }', 1, 5, 'unexpected `(`', 'write `for x in xs { ... }`'),
    ('for x of xs { }', 1, 7, 'unexpected `of`', 'write `for x in xs`'),
    ('for a, b, c in xs { }', 1, 9, 'unexpected `,`', 'a loop has one or two names: for i, x in xs { ... }'),
    ('foreach x in xs { }', 1, 1, 'there is no `foreach`', 'write `for x in xs { ... }`'),
    ('switch x { }', 1, 1, 'there is no `switch`', 'write `if ... { } else if ... { } else { }`'),
    ('try { 1 }', 1, 10, 'the workflow ends too early; expected `catch`', '`try { ... }` needs `catch err { ... }`'),
    ('try { 1 } catch (e) { 2 }', 1, 17, 'unexpected `(`', 'write `catch err { ... }`'),
    ('try { 1 } except { 2 }', 1, 11, 'there is no `except`', 'write `catch err { ... }`'),
    ('try { 1 } catch e { 2 } finally { 3 }', 1, 25, 'there is no `finally`', 'write what is to be done in any case after the `try`'),
    ('try { 1 } catch e', 1, 18, 'the workflow ends too early; expected `{`', 'write `{` on the same line'),
    ('throw "x"', 1, 1, 'there is no `throw`', 'write `fail "message"`'),
    ('raise "x"', 1, 1, 'there is no `raise`', 'write `fail "message"`'),
    ('xs.push(1)', 1, 1, 'values have no methods', 'write xs = xs + [value]'),
    ('xs.map(1)', 1, 1, 'values have no methods', 'write collect item in xs { ... }'),
    ('JSON.stringify(x)', 1, 1, 'values have no methods', 'write json(value)'),
    ('tools.github.get_issue({number: 1})', 1, 1, 'values have no methods', 'write run("github:get_issue", {key: value})'),
    ('console.log(x)', 1, 1, 'values have no methods', 'write print(value)'),
    ('print "x"', 1, 7, 'unexpected string after `print`', 'write print(...)'),
    ('run "a:b"', 1, 5, 'unexpected string after `run`', 'write run("ns:tool", {key: value})'),
    ('run("a:b" {x: 1})', 1, 11, 'unexpected `{`; expected `,` or `)`', 'is a comma missing?'),
    ('run()', 1, 1, 'run takes a tool and its arguments', 'write run("ns:tool", {key: value})'),
    ('run(tool="a:b")', 1, 9, 'unexpected `=`', 'arguments have no names; a tool takes an object: run("ns:too'),
    ('run(tool: "a:b")', 1, 9, 'unexpected `:`', 'arguments have no names; a tool takes an object: run("ns:too'),
    ('f"hello {x}"', 1, 1, 'there are no `f` strings', 'inserts are written "... ${x} ..."'),
    ('x := "a" "b"', 1, 10, 'two strings stand side by side', 'join them with `+`, or separate them with a comma'),
    ('x := "abc', 1, 6, 'this string is never closed with `"`', 'for several lines write """ at both ends'),
    ("x := 'abc", 1, 6, "this string is never closed with `'`", 'for several lines write """ at both ends'),
    ('x := """abc', 1, 6, 'this string is never closed with `"""`', ''),
    ('x := "a\\d"', 1, 8, 'there is no escape `\\d`', 'for a backslash write \\\\d'),
    ('x := "a\\x41"', 1, 8, 'there is no escape `\\x`', 'write \\u00 and the two digits'),
    ('x := "a ${b"', 1, 9, 'this `${` is never closed', 'close it with `}`'),
    ('x := "a ${b} c', 1, 6, 'this string is never closed with `"`', 'for several lines write """ at both ends'),
    ('x := `a`', 1, 6, 'unexpected ```', 'a string with inserts is written "... ${x} ..."'),
    ('```workflow', 1, 1, 'unexpected ```', 'leave out the ``` of Markdown'),
    ('x := (1 + 2', 1, 6, 'this `(` is never closed', 'close it with `)`'),
    ('x := [1, 2', 1, 6, 'this `[` is never closed', 'close it with `]`'),
    ('f := {a: 1', 1, 6, 'this `{` is never closed', 'close it with `}`'),
    ('x := 1)', 1, 7, 'this `)` closes nothing', 'remove it, or open the bracket before'),
    ('x := (1]', 1, 8, 'this `]` does not close `(` at line 1, column 6', 'close that first, with `)`'),
    ('x := 1 +', 1, 9, 'the workflow ends too early; expected a value', ''),
    ('x := ', 1, 5, 'the workflow ends too early; expected a value', ''),
    ('1 2', 1, 3, 'unexpected `2`; expected an operator or the end of the line', 'write statements on lines of their own, or `;` between them'),
    ('a b', 1, 3, 'unexpected `b`; expected an operator or the end of the line', 'write statements on lines of their own, or `;` between them'),
    (':= 5', 1, 1, 'unexpected `:=`; expected a statement or the end of the line', ''),
    ('x : 5', 1, 3, 'unexpected `:`', 'write `x := value`'),
    ('limit := 5', 1, 1, '`limit` is a word of the language', 'choose another name, such as `limit_`'),
    ('for limit in xs { }', 1, 5, '`limit` is a word of the language', 'choose another name'),
    ('x := y := 3', 1, 8, 'unexpected `:=`', 'bind one name at a time'),
    ('x = y = 3', 1, 7, 'unexpected `=`', 'to compare write `==`; a value is assigned to one name at a '),
    ('{a = 1}', 1, 4, 'unexpected `=` in an object', 'write `key: value`'),
    ('{1: 2}', 1, 2, 'unexpected `1`; expected `}`, `...`, a name or a string', 'a key is a name or a plain string: {"1": value}'),
    ('{"a${b}": 2}', 1, 2, 'unexpected `"`; expected `}`, `...`, a name or a string', 'a key is a name or a plain string: {"1": value}'),
    ('{x := 1}', 1, 4, 'unexpected `:=` in an object', 'write `key: value`; for a block write `do { ... }`'),
    ('retry { run("a") }', 1, 9, 'unexpected `run`; expected `}`, `...`, a name or a string', 'say how many attempts there are: retry 3 { ... }'),
    ('retry 3 { run("a")', 1, 9, 'this `{` is never closed', 'close it with `}`'),
    ('1_000', 1, 1, '`1_000` is not a number', 'write 1000'),
    ('0x1F', 1, 1, '`0x1F` is not a number', 'numbers are decimal: write 31'),
    ('007', 1, 1, '`007` is not a number', 'write 7; only 0 itself begins with 0'),
    ('10px', 1, 1, '`10px` is not a number', 'the units of durations are ms, s, m and h; a name does not b'),
    ('1.2.3', 1, 1, '`1.2.3` is not a number', 'the units of durations are ms, s, m and h; a name does not b'),
    ('.5', 1, 1, 'a number cannot begin with `.`', 'write 0 before it'),
    ('5.', 1, 3, 'the workflow ends too early; expected a name', 'a number is written 12, 1.5 or 1e6'),
    ('x := a if b else c', 1, 8, 'unexpected `if`', 'write `condition ? a : b`'),
    ('x := [y for y in ys]', 1, 9, 'unexpected `for`', 'write `collect x in xs where ... { value }`'),
    ('x := 1 + if a { 2 }', 1, 10, '`if` cannot be a part of an expression', 'bind it first: `x := if ...`'),
    ('retrun x', 1, 1, 'there is no statement `retrun`', 'did you mean `return`?'),
    ('retunr 5', 1, 1, 'there is no statement `retunr`', 'did you mean `return`?'),
    ('x := 1 }', 1, 8, 'this `}` closes nothing', 'remove it, or open the bracket before'),
    ('if x { 1 } esle { 2 }', 1, 12, 'unexpected `esle`', 'did you mean `else`?'),
    ('a < b < c', 1, 7, 'comparisons do not chain', 'join them with `and`: a < b and b < c'),
    ('a == not b', 1, 6, '`not` binds less than `==`', 'put it in parentheses'),
    ('+ 5', 1, 1, 'a line cannot begin with `+`', 'write it at the end of the line before, or use parentheses'),
    ('and x', 1, 1, 'a line cannot begin with `and`', 'write it at the end of the line before, or use parentheses'),
    ('x := a | b', 1, 8, 'unexpected `|`', 'write `or`'),
    ('x := a & b', 1, 8, 'unexpected `&`', 'write `and`'),
    ('x is y', 1, 3, 'unexpected `is`', 'write `==`'),
    ('x := $name', 1, 6, 'unexpected `$`', 'names have no `$`, and `${ }` stands only in strings with do'),
    ('x := ${name}', 1, 6, 'unexpected `$`', 'names have no `$`, and `${ }` stands only in strings with do'),
    ('\u0430bc := 1', 1, 1, '`а` (U+0430, CYRILLIC SMALL LETTER A) cannot be a part of a ', 'write a'),
    ('x := \u201chello\u201d', 1, 6, 'unexpected character `“` (U+201C, LEFT DOUBLE QUOTATION MARK', 'write "'),
    ('x := a \u2013 b', 1, 8, 'unexpected character `–` (U+2013, EN DASH)', 'write -'),
    ('caf\xe9 := 1', 1, 4, '`é` (U+00E9, LATIN SMALL LETTER E WITH ACUTE) cannot be a pa', 'write e'),
    ('input x = 1', 1, 9, 'unexpected `=`', 'an input has a type: input name: string = ...'),
    ('input x: str', 1, 10, 'there is no type `str`', 'did you mean string?'),
    ('input x: list[int]', 1, 15, 'there is no type `int`', 'did you mean integer?'),
    ('input x: string, y: string', 1, 16, 'unexpected `,`; expected `=`, `[`, `?`, the end of the line ', 'write statements on lines of their own, or `;` between them'),
    ('a.b := 1', 1, 1, 'only a name can be bound with `:=`', 'to change a part of a value write `=`'),
    ('f(x) = 1', 1, 1, 'a value can be assigned only to a name, `name.member` or `na', ''),
    ('a?.b = 1', 1, 1, 'a value cannot be assigned through `?`', 'write it without the `?`'),
    ('run("a").x timeout 5s', 1, 12, '`timeout` stands right after run(...)', 'write run("ns:tool", {}) timeout 5s'),
    ('(f)(1)(2)', 1, 1, 'only a function can be called, by its name', ''),
    ('do { 1 } while x', 1, 10, 'unexpected `while`', 'a loop begins with its condition: while condition limit 100 '),
    ('{a: 1}[1:2:3]', 1, 11, 'unexpected `:`; expected `]`', ''),
    ('for x in xs', 1, 12, 'the workflow ends too early; expected `{` or `where`', 'write `{` on the same line'),
    ('if x', 1, 5, 'the workflow ends too early; expected `{`', 'write `{` on the same line'),
    ('/* comment */', 1, 1, 'there is no operator `/*`', 'a comment begins with `#` and ends with its line'),
    ('x := [1,,2]', 1, 9, 'unexpected `,`; expected `]`, `...` or a value', ''),
    ('f(,)', 1, 3, 'unexpected `,`; expected `)` or a value', ''),
    ('x ? y', 1, 6, 'the workflow ends too early; expected `:`', ''),
    ('...xs', 1, 1, 'unexpected `...`; expected a statement or the end of the lin', ''),
    ('break 5', 1, 7, 'unexpected `5`; expected the end of the line', 'write statements on lines of their own, or `;` between them'),
    ('return return', 1, 8, 'unexpected `return`; expected a value or the end of the line', 'write statements on lines of their own, or `;` between them'),
    ('else { }', 1, 1, 'unexpected `else`; expected a statement or the end of the li', ''),
    ('}', 1, 1, 'this `}` closes nothing', 'remove it, or open the bracket before'),
    ('x := 5\xa0+ 1', 1, 7, 'unexpected space U+00A0 (NO-BREAK SPACE)', 'write a plain space'),
    ('x := a\u200bb', 1, 7, 'invisible character U+200B (ZERO WIDTH SPACE)', 'remove it; in a string write \\u200b'),
    ('# \u202eabc', 1, 3, 'invisible character U+202E (RIGHT-TO-LEFT OVERRIDE)', 'remove it; in a string write \\u202e'),
    ('x := "\u2066abc"', 1, 7, 'invisible character U+2066 (LEFT-TO-RIGHT ISOLATE)', 'remove it; in a string write \\u2066'),
    ('x := 1 # a\u200bb', 1, 11, 'invisible character U+200B (ZERO WIDTH SPACE)', 'remove it; in a string write \\u200b'),
    ('x := \u0661', 1, 6, 'unexpected character `١` (U+0661, ARABIC-INDIC DIGIT ONE)', 'write 1'),
    ('x := "a\x00"', 1, 8, 'control character U+0000', 'remove it; in a string write \\u0000'),
    ('a\n  + b', 2, 3, 'a line cannot begin with `+`', 'write it at the end of the line before, or use parentheses'),
    ('x := foo(1,\n  2\ny := 3', 3, 1, 'unexpected `y`; expected `,`, `)` or an operator', 'the `(` at line 1, column 9 is still open'),
    ('if x\n{ 1 }', 1, 5, 'the line ends too early; expected `{`', 'write `{` on the same line'),
    ('a := 1\ninput x: string', 2, 1, 'inputs stand at the top, before all statements', 'move this line up'),
    ('x := 1\n+++\n+++', 2, 1, 'front matter stands at the very top', 'move `+++` to the first line'),
    ('+++\nname = 1', 1, 1, 'this front matter is not closed', 'end it with a line `+++`'),
    ('---\nname: x\n---', 1, 1, 'there is no operator `---`', 'front matter is TOML between two lines `+++`'),
    ('input limit: string', 1, 7, '`limit` is a word of the language', 'choose another name'),
    ('xs.foo(1)', 1, 1, 'values have no methods', 'write foo(xs), if there is such a function'),
    ('x := {a: 1; b: 2}', 1, 11, 'unexpected `;`; expected `,` or `}`', 'write a comma'),
    ('x := "\\ud83d"', 1, 7, 'this is half of a character', 'write both halves, as in \\ud83d\\ude00'),
    ("x := " + "9" * 1301, 1, 6, 'this integer has more than 4096 bits', ''),
    ('x := 1e999', 1, 6, 'this number is too large', ''),
    ('parallel { a, b: 2, 3 4 }', 1, 23, 'unexpected `4`; expected `}` or the end of the line', 'write statements on lines of their own, or `;` between them'),
    ('x := a > b ? c', 1, 15, 'the workflow ends too early; expected `:`', ''),
    ('retry 3 delay { 1 }', 1, 17, 'unexpected `1`; expected `}`, `...`, a name or a string', 'a key is a name or a plain string: {"1": value}'),
    ('x := \ta b', 1, 9, 'unexpected `b`; expected an operator or the end of the line', 'write statements on lines of their own, or `;` between them'),
    ("'''a'''", 1, 1, "`'''` is not a quote here", 'for several lines write """ at both ends'),
    ('x := a ? b : ', 1, 13, 'the workflow ends too early; expected a value', ''),
    ('for x in xs limit 5 { }', 1, 13, 'unexpected `limit`; expected `{` or `where`', 'a block is what stands in braces: { ... }'),
    ('return(1', 1, 7, 'this `(` is never closed', 'close it with `)`'),
    ('x := run("a:b", {x: 1}', 1, 9, 'this `(` is never closed', 'close it with `)`'),
    ('if (x {', 1, 7, 'unexpected `{`; expected `)`', ''),
    ('print("a" + )', 1, 13, 'unexpected `)`; expected a value', ''),
]  # fmt: skip

MEGA = 1024 * 1024


def wrong(source: str) -> WorkflowSyntaxError:
    """Parse what cannot be parsed."""
    with pytest.raises(WorkflowSyntaxError) as caught:
        parse(source)
    return caught.value


@pytest.mark.parametrize(("source", "line", "column", "message", "suggestion"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_workflow(source: str, line: int, column: int, message: str, suggestion: str) -> None:
    """The error has the place, says what is wrong there, and what to write."""
    error = wrong(source)
    assert (error.line, error.column) == (line, column)
    assert message in error.message
    assert error.suggestion.startswith(suggestion)
    assert error.suggestion in error.message


def mistake(source: str) -> WorkflowSyntaxError | None:
    """Parse what may be right or wrong."""
    try:
        parse(source)
    except WorkflowSyntaxError as error:
        return error
    return None


def test_an_error_shows_its_line() -> None:
    """The message has the place, the line, a caret below the column, what was expected and the suggestion."""
    error = wrong("a := 1\nb := foo(a\tc)")
    assert isinstance(error, CodeError)
    assert str(error).split("\n") == [
        "line 2, column 12: unexpected `c`; expected `,`, `)` or an operator",
        "  2 | b := foo(a c)",
        "    |            ^",
        "is a comma missing?",
    ]
    assert error.expected == ("`,`", "`)`", "an operator")
    assert error.source == "b := foo(a\tc)"
    assert error.to_dict()["details"] == {
        "line": 2,
        "column": 12,
        "source": "b := foo(a\tc)",
        "expected": ["`,`", "`)`", "an operator"],
        "suggestion": "is a comma missing?",
    }
    assert json.loads(json.dumps(error.to_dict())) == error.to_dict()


def test_a_long_line_is_cut() -> None:
    """A message stays short, and the caret is right."""
    error = wrong(f'x := "{"a" * 5000}" ? "{"b" * 5000}"')
    shown, caret = error.message.split("\n")[1:3]
    assert len(error.message) < 500
    assert len(shown) < 120
    assert caret.endswith("^")
    assert shown.endswith('b"')


@pytest.mark.parametrize(
    ("source", "line", "column", "message"),
    [
        ("x" * (10 * MEGA), 1, 1, f"{MAX_SOURCE} bytes"),
        ("é" * (MAX_SOURCE // 2 + 1), 1, 1, f"{MAX_SOURCE} bytes"),
        ("x := " + "[" * 10_000, 1, 6 + MAX_BRACKETS, "brackets are open"),
        ("x := " + "(" * 10_000, 1, 6 + MAX_BRACKETS, "brackets are open"),
        ("x := " + "{a:" * 10_000, 1, 6 + 3 * MAX_BRACKETS, "brackets are open"),
        ("x := " + '"${' * 10_000, 1, 7 + 3 * MAX_BRACKETS, "brackets are open"),
        ("do {\n" * 10_000, MAX_BLOCKS + 1, 4, "blocks are nested"),
        ("if a {} " + "else if a {} " * 10_000, 1, 14 + 13 * MAX_ELSE_IFS, "`else if`"),
        ("x := " + "-" + " -" * 10_000 + "a", 1, 6 + 2 * MAX_DEPTH, "nested more than"),
        ("x := " + "not " * 10_000 + "a", 1, 6 + 4 * MAX_DEPTH, "nested more than"),
        ("x := a" + ".a" * 10_000, 1, 7 + 2 * MAX_DEPTH, "nested more than"),
        ("x := a" + "[0]" * 10_000, 1, 0, "nested more than"),
        ("x := a" + " + a" * 10_000, 1, 8 + 4 * MAX_OPERATORS, "side by side"),
        ("x := " + "a ? b : " * 10_000 + "c", 1, 8 + 8 * MAX_DEPTH, "nested more than"),
        ("x := " + "[" * 150 + "]" * 150, 1, 0, "nested more than"),
    ],
    ids=range(15),
)
def test_hostile_sources(source: str, line: int, column: int, message: str) -> None:
    """Sources that are too large or too deep are refused at their place."""
    error = wrong(source)
    assert message in error.message
    assert error.line == line
    assert column in (0, error.column)


def test_what_is_deep_but_fine() -> None:
    """The limits themselves are allowed, and neighbours do not add up."""
    parse("x := " + "[" * 99 + "1" + "]" * 99)
    parse("do {\n" * MAX_BLOCKS + "}\n" * MAX_BLOCKS)
    parse("x := [" + ", ".join(["a + a.a[0]"] * 1000) + "]")
    parse("x := a" + " + a.a" * MAX_OPERATORS)
    parse("if a {} " + "else if a {} " * MAX_ELSE_IFS + "else {}")
    parse("\n".join(["if a.b.c { x = x + 1 } else if b { x = f(1) }"] * 1000))


PIECES = st.sampled_from(
    ["a", "run", '"', "'", '"""', "${", "{", "}", "(", ")", "[", "]", ":=", "=", ":", ",", ".", "?.", "?", "...", "-"]
    + [
        "\n",
        " ",
        ";",
        "#",
        "//",
        "1",
        "5s",
        "1.5",
        "\\",
        "if",
        "else",
        "for",
        "in",
        "parallel",
        "limit",
        "retry",
        "try",
    ]
    + [
        "catch",
        "do",
        "while",
        "input",
        "return",
        "not",
        "and",
        "timeout",
        "+++\n",
        "é",
        "\u202e",
        "\x00",
        "|",
        "&",
        "@",
    ]
)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.text(max_size=60), st.lists(PIECES, max_size=25).map("".join), st.lists(PIECES, max_size=25).map(" ".join)
    )
)
@example("...x")
@example("else {}")
@example(";")
def test_any_text_is_a_workflow_or_a_syntax_error(source: str) -> None:
    """Nothing but a WorkflowSyntaxError ever comes out, and its place is in the source."""
    error = mistake(source)
    if error is not None:
        lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        assert 1 <= error.line <= len(lines)
        assert 1 <= error.column <= len(lines[error.line - 1]) + 2
        assert str(error).startswith(f"line {error.line}, column {error.column}: ")


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(workflows(), st.integers(0, 2**32))
def test_a_mutated_workflow_is_a_workflow_or_a_syntax_error(tree: n.Workflow, seed: int) -> None:
    """Removing, doubling or moving characters and words never gives anything else."""
    chance = random.Random(seed)
    source = format_tree(tree)
    for _ in range(5):
        begin = chance.randrange(len(source) + 1)
        end = min(len(source), begin + chance.randrange(6))
        place = chance.randrange(len(source) + 1)
        piece = source[begin:end]
        kept = source[:begin] + source[end:] if chance.random() < 0.6 else source
        mutated = kept[:place] + piece * chance.randrange(3) + kept[place:]
        error = mistake(mutated)
        assert error is None or error.line >= 1
