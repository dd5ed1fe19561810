"""What people and models write by habit, from other languages, and what to write instead."""

# ruff: noqa: RUF001 - lookalikes of characters are the subject

from __future__ import annotations

from typing import Final

INSTEAD_OF_NAMES: Final = {
    "None": "write `null`",
    "nil": "write `null`",
    "NULL": "write `null`",
    "Null": "write `null`",
    "undefined": "write `null`",
    "True": "write `true`",
    "TRUE": "write `true`",
    "False": "write `false`",
    "FALSE": "write `false`",
    "NaN": "a number is always a number; write `null` for a missing one",
    "Infinity": "write a large number",
}
"""Names that other languages have for constants."""

INSTEAD_OF_MEMBERS: Final = {
    "length": "len({x})",
    "size": "len({x})",
    "count": "len({x})",
    "keys": "keys({x})",
    "values": "values({x})",
    "first": "{x}[0]",
    "last": "{x}[-1]",
}
"""Members that values have in other languages; `{x}` is the value."""

INSTEAD_OF_METHODS: Final = {
    **INSTEAD_OF_MEMBERS,
    **dict.fromkeys(("push", "append", "add"), "{x} = {x} + [value]"),
    **dict.fromkeys(("extend", "concat"), "{x} = {x} + more"),
    **dict.fromkeys(("map", "flatMap"), "collect item in {x} {{ ... }}"),
    **dict.fromkeys(("filter", "select"), "collect item in {x} where ... {{ item }}"),
    **dict.fromkeys(("forEach", "each"), "for item in {x} {{ ... }}"),
    **dict.fromkeys(("reduce", "some", "every"), "a `for` loop over {x}"),
    **dict.fromkeys(("includes", "include", "has", "contains", "has_key", "hasOwnProperty"), "value in {x}"),
    **dict.fromkeys(("indexOf", "index", "find"), "index_of({x}, value)"),
    **dict.fromkeys(("strip", "trim"), "trim({x})"),
    **dict.fromkeys(("lower", "toLowerCase", "lowercase"), "lower({x})"),
    **dict.fromkeys(("upper", "toUpperCase", "uppercase"), "upper({x})"),
    **dict.fromkeys(("startswith", "startsWith", "starts_with"), 'starts_with({x}, "...")'),
    **dict.fromkeys(("endswith", "endsWith", "ends_with"), 'ends_with({x}, "...")'),
    **dict.fromkeys(("items", "entries"), "entries({x})"),
    **dict.fromkeys(("slice", "substring", "substr"), "{x}[start:stop]"),
    **dict.fromkeys(("toString", "to_string", "str"), "string({x})"),
    **dict.fromkeys(("sort", "sorted", "sort_by"), "sort({x})"),
    **dict.fromkeys(("reverse", "reversed"), "reverse({x})"),
    **dict.fromkeys(("update", "merge", "assign"), "merge({x}, more)"),
    **dict.fromkeys(("pop", "shift"), "{x}[0:-1], a list without its last item"),
    "join": 'join({x}, ", ")',
    "split": 'split({x}, ",")',
    "replace": 'replace({x}, "old", "new")',
    "get": '{x}.key ?? default, or get({x}, "key", default)',
    "flat": "flatten({x})",
    "format": 'an insert, as in "... ${{{x}}} ..."',
    "json": "parse_json({x})",
    "trimEnd": "trim({x})",
}
"""Methods that values have in other languages; `{x}` is the value."""

INSTEAD_OF_CALLS: Final = {
    "JSON.stringify": "json(value)",
    "JSON.parse": "parse_json(string)",
    "json.dumps": "json(value)",
    "json.loads": "parse_json(string)",
    "console.log": "print(value)",
    "Object.keys": "keys(value)",
    "Object.values": "values(value)",
    "Object.entries": "entries(value)",
    "Object.assign": "merge(a, b)",
    "Math.max": "max(a, b)",
    "Math.min": "min(a, b)",
    "Math.round": "round(number)",
    "Math.floor": "floor(number)",
    "Math.ceil": "ceil(number)",
    "Math.abs": "abs(number)",
    "Date.now": "now()",
    "datetime.now": "now()",
    "Array.isArray": 'type(value) == "list"',
    "Promise.all": "parallel { ... }",
    "asyncio.gather": "parallel { ... }",
}

_BIND: Final = "write `name := value`"
_NO_FUNCTIONS: Final = (
    "functions cannot be defined; repeat with `for` or `collect`, or make the part a workflow of its own"
)
_ELSE_IF: Final = "write `else if`"
_FAIL: Final = 'write `fail "message"`'
_CATCH: Final = "write `catch err { ... }`"
INSTEAD_OF_WORDS: Final = {
    **dict.fromkeys(("let", "const", "var", "set", "local", "val"), _BIND),
    **dict.fromkeys(("def", "function", "func", "fn", "lambda", "class", "sub"), _NO_FUNCTIONS),
    **dict.fromkeys(
        ("import", "from", "require", "using", "include"), "there is nothing to import; tools are called with run"
    ),
    **dict.fromkeys(("elif", "elsif", "elseif", "elsif"), _ELSE_IF),
    **dict.fromkeys(("raise", "throw", "error", "assert"), _FAIL),
    **dict.fromkeys(("except", "rescue"), _CATCH),
    **dict.fromkeys(("foreach", "each"), "write `for x in xs { ... }`"),
    **dict.fromkeys(("switch", "case", "match", "when"), "write `if ... { } else if ... { } else { }`"),
    **dict.fromkeys(("loop", "repeat", "until", "forever"), "write `while condition limit 100 { ... }`"),
    **dict.fromkeys(
        ("await", "async"), "leave it out: run waits for its tool; use `parallel { ... }` for calls at once"
    ),
    **dict.fromkeys(("pass", "end", "begin", "fi", "done"), "leave it out: a block is what stands in braces"),
    **dict.fromkeys(("del", "delete"), 'write x = omit(x, ["key"])'),
    "then": "a block is what stands in braces: if condition { ... }",
    "finally": "write what is to be done in any case after the `try`",
    "unless": "write `if not ... { ... }`",
    "with": "write the statements one after the other",
    "new": "values are written as literals: {key: value} or [item]",
    "yield": "write `collect x in xs { ... }`; each round gives its last value",
    "echo": "write print(...)",
    "log": "write print(...)",
    "call": 'write run("ns:tool", {key: value})',
    "pipe": "write calls one after the other",
}
"""Words that begin something in other languages."""
INSTEAD_OF_INFIX: Final = {
    "is": "write `==`",
    "eq": "write `==`",
    "equals": "write `==`",
    "isnt": "write `!=`",
    "AND": "write `and`",
    "OR": "write `or`",
    "NOT": "write `not`",
    "IN": "write `in`",
    "mod": "write `%`",
    "div": "write `/`",
    "of": "write `for x in xs`",
    "to": "write range(start, stop)",
    "as": "bind the value with `:=`",
    "xor": "write `!=`",
    "then": INSTEAD_OF_WORDS["then"],
}
INSTEAD_OF_OPERATORS: Final = {
    "===": "write `==`",
    "!==": "write `!=`",
    "<>": "write `!=`",
    "**": "multiply with `*`",
    "++": "write `x = x + 1`",
    "--": "write `x = x - 1`; a comment begins with `#`",
    "=>": _NO_FUNCTIONS,
    "->": _NO_FUNCTIONS,
    "|>": "write the call around the value: f(x)",
    "::": "write `.`",
    "/*": "a comment begins with `#` and ends with its line",
    "..": "write range(start, stop), or `...x` to spread a list",
    "<-": _BIND,
    "<<": "there are no operations on bits",
    ">>": "there are no operations on bits",
}
INSTEAD_OF_CHARACTERS: Final = {
    **dict.fromkeys("“”„‟«»″", 'write "'),
    **dict.fromkeys("‘’‚‛′´", "write '"),
    **dict.fromkeys("‐‑‒–—−", "write -"),
    "×": "write *",
    "÷": "write /",
    "≤": "write <=",
    "≥": "write >=",
    "≠": "write !=",
    "…": "write ...",
    "→": _NO_FUNCTIONS,
    "&": "write `and`",
    "^": "there are no operations on bits",
    "~": "there are no operations on bits",
    "@": "names have no `@`",
    "\\": "a line goes on after an operator, a comma, or in parentheses",
    "$": "names have no `$`, and `${ }` stands only in strings with double quotes",
    "`": 'a string with inserts is written "... ${x} ..."',
}
LOOKALIKES: Final = dict(
    zip(
        "аеорсухіјѕԁһӏԛԝвмтнкАВЕКМНОРСТХІЈЅɡαορνυικτΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
        "aeopcyxijsdhlqwbmthkABEKMHOPCTXIJSgaopvuiktABEZHIKMNOPTYX",
        strict=True,
    )
)
