"""JavaScript that is written wrongly: names and operators of Python, promises, functions, marks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.mutants.model import Change, Right, change, changes, operator

_CHAIN = r"(?<![\w$.])[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*"


@operator("javascript")
def length_as_function(right: Right) -> Iterator[Change]:
    """`x.length` as `len(x)`."""
    yield from changes(right, rf"({_CHAIN})\.length\b", r"len(\1)", r"\1.length", ".length")


@operator("javascript")
def length_called(right: Right) -> Iterator[Change]:
    """`x.length` as `x.length()` or `x.size`."""
    yield from changes(right, rf"({_CHAIN})\.length\b", r"\1.length()", r"`\1.length`", ".length`")


@operator("javascript")
def size_for_length(right: Right) -> Iterator[Change]:
    """`x.length` as `x.count()`."""
    yield from changes(right, rf"({_CHAIN})\.length\b", r"\1.count()", ".length")


@operator("javascript")
def method_of_python(right: Right) -> Iterator[Change]:
    """`.push` as `.append`, `.toLowerCase` as `.lower`."""
    names = {
        "push": "append",
        "toLowerCase": "lower",
        "toUpperCase": "upper",
        "trim": "strip",
        "includes": "contains",
        "startsWith": "startswith",
        "endsWith": "endswith",
        "indexOf": "index",
        "padStart": "rjust",
        "replaceAll": "replace_all",
    }
    for old, new in names.items():
        yield from changes(right, rf"(?<=\.){old}(?=\()", new, old)


@operator("javascript")
def method_misspelt(right: Right) -> Iterator[Change]:
    """`.forEach` as `.foreach`, `.toFixed` as `.tofixed`."""
    names = {
        "forEach": "each",
        "toFixed": "toFix",
        "filter": "where",
        "map": "select",
        "find": "findOne",
        "reduce": "fold",
        "some": "any",
        "every": "all",
        "slice": "take",
        "sort": "sortBy",
        "localeCompare": "compareTo",
        "flatMap": "flat_map",
        "padStart": "padLeft",
    }
    for old, new in names.items():
        yield from changes(right, rf"(?<=\.){old}(?=\()", new, old)


@operator("javascript")
def function_of_python(right: Right) -> Iterator[Change]:
    """`Number(x)` as `float(x)`, `Math.round(x)` as `round(x)`."""
    names = {
        "Number": "float",
        "String": "str",
        r"Math\.round": "round",
        r"Math\.abs": "abs",
        "parseInt": "int",
        r"JSON\.parse": "json.loads",
        r"JSON\.stringify": "json.dumps",
        r"Math\.floor": "math.floor",
    }
    for old, new in names.items():
        yield from changes(right, rf"(?<![\w.]){old}(?=\()", new, old.replace("\\", ""))


@operator("javascript")
def fold_of_python(right: Right) -> Iterator[Change]:
    """`Math.max(...xs)` as `max(xs)`."""
    yield from changes(right, r"Math\.(max|min)\(\.\.\.(\w+)\)", r"\1(\2)", r"Math.\1(...\2)", r"Math.\1")
    yield from changes(right, rf"({_CHAIN})\.reduce\(\((\w+), (\w+)\) => \2 \+ \3, 0\)", r"sum(\1)", "reduce")


@operator("javascript")
def spread_left_out(right: Right) -> Iterator[Change]:
    """`Math.max(...xs)` as `Math.max(xs)`, which is NaN."""
    yield from changes(right, r"Math\.(max|min)\(\.\.\.", r"Math.\1(", "...")


@operator("javascript")
def fold_as_method(right: Right) -> Iterator[Change]:
    """`Math.max(...xs)` as `xs.max()`."""
    yield from changes(right, r"Math\.(max|min)\(\.\.\.(\w+)\)", r"\2.\1()", r"Math.\1")
    yield from changes(right, rf"({_CHAIN})\.reduce\(\((\w+), (\w+)\) => \2 \+ \3, 0\)", r"\1.sum()", "reduce")


@operator("javascript")
def entries_as_items(right: Right) -> Iterator[Change]:
    """`Object.entries(x)` as `x.items()`."""
    yield from changes(right, r"Object\.entries\(([\w.]+)\)", r"\1.items()", "Object.entries")
    yield from changes(right, r"Object\.(keys|values)\(([\w.]+)\)", r"\2.\1()", r"Object.\1")


@operator("javascript")
def word_of_python(right: Right) -> Iterator[Change]:
    """`true` as `True`, `null` as `None`."""
    for old, new in (("true", "True"), ("false", "False"), ("null", "None")):
        yield from changes(right, rf"(?<![\w.'\"]){old}(?![\w'\"])", new, old)


@operator("javascript")
def operator_of_python(right: Right) -> Iterator[Change]:
    """`&&` as `and`, `!x` as `not x`."""
    for old, new in ((r" && ", " and "), (r" \|\| ", " or "), (r" === null", " is None"), (r"!(?=[a-z(])", "not ")):
        name = old.replace("\\", "").replace("(?=[a-z(])", "").strip()
        yield from changes(right, old, new, name)


@operator("javascript")
def template_of_python(right: Right) -> Iterator[Change]:
    """A template as an f-string."""
    yield from changes(right, r"`([^`$\n]*)\$\{([^`{}\n]+)\}([^`$\n]*)`", r'f"\1{\2}\3"', r"`\1${\2}\3`", "${")


@operator("javascript")
def template_in_quotes(right: Right) -> Iterator[Change]:
    """A block is as in Python."""
    yield from changes(right, r"^(\s*)for \((?:const|let) (\w+) of ([\w.]+)\) \{$", r"\1for \2 in \3:", r"of \3", "of ")


@operator("javascript")
def await_left_out(right: Right) -> Iterator[Change]:
    """A call of a tool is not awaited."""
    yield from changes(right, r"\bawait (?=tools\.)", "", "await")


@operator("javascript")
def own_await_left_out(right: Right) -> Iterator[Change]:
    """A function of the program is not awaited."""
    yield from changes(right, r"\bawait (?=(?!tools|Promise)[a-z]\w*\()", "", "await")


@operator("javascript")
def promise_all_left_out(right: Right) -> Iterator[Change]:
    """`await Promise.all(calls)` as `await calls`."""
    yield from changes(right, r"await Promise\.all\((\w+\.map\([^\n]*\))\)", r"await \1", "Promise.all")
    yield from changes(right, r"await Promise\.all\((\w+\.map\([^\n]*\))\)", r"\1", "Promise.all")


@operator("javascript")
def await_of_all_left_out(right: Right) -> Iterator[Change]:
    """`await Promise.all` without `await`."""
    yield from changes(right, r"\bawait (?=Promise\.all)", "", "await")


@operator("javascript")
def async_left_out(right: Right) -> Iterator[Change]:
    """A function that awaits is not `async`."""
    yield from changes(right, r"\basync (?=\(|function|\w+ =>)", "", "async")


@operator("javascript")
def loop_as_for_each(right: Right) -> Iterator[Change]:
    """A loop that awaits as `forEach` with an async function."""
    for found in re.finditer(
        r"^for \((?:const|let) (\w+) of ([\w.]+)\) \{\n((?: +.*\n|\n)*)\}$", right.code, re.MULTILINE
    ):
        if "await" in found[3] and not re.search(r"\b(?:break|continue|return)\b", found[3]):
            yield change(
                found, f"{found[2]}.forEach(async ({found[1]}) => {{\n{found[3]}}});", "for (", "Promise.all", " of "
            )


@operator("javascript")
def loop_over_numbers(right: Right) -> Iterator[Change]:
    """`for (const x of xs)` as `in`."""
    yield from changes(right, r"(for \((?:const|let) \S+) of ", r"\1 in ", " of ")


@operator("javascript")
def return_left_out(right: Right) -> Iterator[Change]:
    """An arrow function in braces returns nothing."""
    yield from changes(right, r"=> ([\w.]+(?:\(\w*\))?)\)(?=[;.)\n])", r"=> { \1; })", "return")


@operator("javascript")
def value_assigned(right: Right) -> Iterator[Change]:
    """The value is bound to a name, not returned."""
    yield from changes(right, r"^return ([^;\n]+);$", r"const output = \1;", "return")


@operator("javascript")
def constant_changed(right: Right) -> Iterator[Change]:
    """`let` as `const`."""
    yield from changes(right, r"\blet (?=\w+ = )", "const ", "let")


@operator("javascript")
def conversion_left_out(right: Right) -> Iterator[Change]:
    """`Number(x)` as `x`."""
    yield from changes(right, r"\b(Number|parseFloat|String)\(([\w.]+)\)", r"\2", r"\1(\2)", r"\1(")


@operator("javascript")
def pattern_of_other_names(right: Right) -> Iterator[Change]:
    """A key is taken out of an object by another name."""
    for found in re.finditer(r"const \{ (\w+)( \}| ?,[^{}]*\}) = await tools", right.code):
        yield Change(found.start(1), found.end(1), f"{found[1]}List", (found[1],))


@operator("javascript")
def pattern_of_list(right: Right) -> Iterator[Change]:
    """`const { items } = page` as `const [items] = page`."""
    yield from changes(right, r"const \{ (\w+) \} = await", r"const [\1] = await", r"{ \1 }", r".\1", r"\1")


@operator("javascript")
def pattern_around_value(right: Right) -> Iterator[Change]:
    """`const page = await ...` as `const { data } = await ...`, with the name of before."""
    yield from changes(
        right, r"const (\w+) = (?=await tools)", r"const { data: \1 } = ", r"const \1 =", r"`\1`", "data"
    )


@operator("javascript")
def optional_read_of_other_key(right: Right) -> Iterator[Change]:
    """`a.b.c` as `a?.bs?.c`, which is undefined."""
    for found in re.finditer(r"(?<![\w.])(\w+)\.(\w+)\.(\w+)(?![\w(])", right.code):
        if isinstance(right.keys.get(found[2]), dict):
            yield change(found, f"{found[1]}?.{found[2]}Info?.{found[3]}", found[2])


@operator("javascript")
def package_required(right: Right) -> Iterator[Change]:
    """A module of Node.js is required, and is not used."""
    yield Change(0, 0, 'const _ = require("lodash");\n', ("leave `const _", "lodash"))


@operator("javascript")
def package_imported(right: Right) -> Iterator[Change]:
    """A module of npm is imported, and is not used."""
    yield Change(0, 0, 'import axios from "axios";\n', ("leave `import axios", "axios"))


@operator("javascript")
def bracket_left_out(right: Right) -> Iterator[Change]:
    """The last bracket of a line is left out."""
    for found in re.finditer(r"^(.*\))\);$", right.code, re.MULTILINE):
        yield change(found, f"{found[1]};", f"{found[0].strip()}", "`)`", "')'")


@operator("javascript")
def bracket_added(right: Right) -> Iterator[Change]:
    """A line has a bracket too many at its end."""
    for found in re.finditer(r"^(.*\));$", right.code, re.MULTILINE):
        yield change(found, f"{found[1]});", found[0].strip(), "`)`", "')'")


@operator("javascript")
def brace_left_out(right: Right) -> Iterator[Change]:
    """A block has no end."""
    for found in re.finditer(r"^\}$", right.code, re.MULTILINE):
        yield change(found, "", "`}`", "'}'", "closed")


@operator("javascript")
def quote_left_out(right: Right) -> Iterator[Change]:
    """A text has no end."""
    for found in re.finditer(r"^([^\"\n]*\"[\w-]+)\"([^\"\n]*)$", right.code, re.MULTILINE):
        yield change(found, found[1] + found[2], found[0].strip())


@operator("javascript")
def comma_left_out(right: Right) -> Iterator[Change]:
    """Two items have no comma between them."""
    for found in re.finditer(r"^.*[\w\"')\]], (?=[\w\"'\[({]).*$", right.code, re.MULTILINE):
        at = [each.start() for each in re.finditer(r"(?<=[\w\"')\]]), (?=[\w\"'\[({])", found[0])]
        yield change(found, found[0][: at[-1]] + found[0][at[-1] + 1 :], found[0].strip(), "`,`", "comma", "','")


@operator("javascript")
def variable_of_other_number(right: Right) -> Iterator[Change]:
    """A name is read as its singular, or its plural."""
    for name in dict.fromkeys(re.findall(r"\b(?:const|let) (\w{3,}) = ", right.code)):
        new = name[:-1] if name.endswith("s") else f"{name}s"
        if re.search(rf"(?<!\w){new}(?!\w)", right.code):
            continue
        for found in re.finditer(rf"(?<![\w.\"'`]){name}(?![\w\"'`:])(?! = )", right.code):
            yield change(found, new, name)


@operator("javascript")
def variable_misspelt(right: Right) -> Iterator[Change]:
    """Two letters of a name in the other order."""
    for name in dict.fromkeys(re.findall(r"\b(?:const|let) (\w{4,}) = ", right.code)):
        new = f"{name[:2]}{name[3]}{name[2]}{name[4:]}"
        for found in re.finditer(rf"(?<![\w.\"'`]){name}(?![\w\"'`:])(?! = )", right.code):
            yield change(found, new, name)


@operator("javascript")
def comprehension_of_python(right: Right) -> Iterator[Change]:
    """`xs.map((x) => f(x))` as a comprehension of Python."""
    yield from changes(right, rf"({_CHAIN})\.map\(\((\w+)\) => ([\w.]+)\)", r"[\3 for \2 in \1]", ".map(")


@operator("javascript")
def sorted_of_python(right: Right) -> Iterator[Change]:
    """`[...xs].sort()` as `sorted(xs)`."""
    yield from changes(right, rf"({_CHAIN})\.sort\(\)", r"sorted(\1)", ".sort(")


@operator("javascript")
def range_of_python(right: Right) -> Iterator[Change]:
    """A loop that counts, as one over `range`."""
    yield from changes(
        right,
        r"for \(let (\w+) = (\d); \1 <=? (\w+(?:\.length)?); \1(?:\+\+| \+= 1)\)",
        r"for (const \1 of range(\2, \3))",
        r"let \1 =",
        r"\1++",
        "Array",
    )


@operator("javascript")
def time_read_as_text(right: Right) -> Iterator[Change]:
    """`new Date(x)` as `x`."""
    yield from changes(right, r"new Date\(([\w.]+)\)\.", r"\1.", r"new Date(\1)", "new Date(")


@operator("javascript")
def call_as_attribute(right: Right) -> Iterator[Change]:
    """`rows[0]` as `rows(0)`."""
    yield from changes(right, r"(?<=\w)\[(\d)\]", r"(\1)", r"[\1]")
