"""Python that is written wrongly: names, methods and operators of other languages, forms, marks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from benchmarks.mutants.model import Change, Right, change, changes, operator

_NAME = r"(?<![\w.])[A-Za-z_]\w*"


def _tree(right: Right) -> ast.Module | None:
    try:
        return compile(right.code, "code", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError:
        return None


def _nodes(right: Right) -> Iterator[tuple[ast.expr, int, int]]:
    """Yield each expression with where it stands."""
    tree = _tree(right)
    lines = [0]
    for line in right.code.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    if tree is None or not right.code.isascii():
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and node.end_lineno is not None and node.end_col_offset is not None:
            yield node, lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset


def _called(right: Right, *names: str) -> Iterator[tuple[ast.Call, int, int, str]]:
    """Yield each call of a function of these names with one argument: where it stands, and what it is given."""
    for node, start, end in _nodes(right):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id in names and len(node.args) == 1 and not node.keywords:
            yield node, start, end, right.code[start + len(node.func.id) + 1 : end - 1]


@operator("python")
def length_as_attribute(right: Right) -> Iterator[Change]:
    """`len(x)` as `x.length`."""
    for _, start, end, inner in _called(right, "len"):
        yield Change(start, end, f"{inner}.length", (f"len({inner})", "len("))


@operator("python")
def conversion_left_out(right: Right) -> Iterator[Change]:
    """`float(x)` as `x`."""
    for node, start, end, inner in _called(right, "float", "int", "str"):
        yield Change(start, end, inner, (right.code[start:end], f"{ast.unparse(node.func)}("))


@operator("python")
def function_of_javascript(right: Right) -> Iterator[Change]:
    """`str(x)` as `String(x)`, `float(x)` as `Number(x)`."""
    names = {"str": "String", "float": "Number", "int": "parseInt", "bool": "Boolean"}
    for node, start, end, inner in _called(right, *names):
        name = ast.unparse(node.func)
        yield Change(start, end, f"{names[name]}({inner})", (f"{name}({inner})", f"{name}("))


@operator("python")
def function_as_method(right: Right) -> Iterator[Change]:
    """`sum(x)` as `x.sum()`, `max(x)` as `x.max()`."""
    for node, start, end, inner in _called(right, "sum", "max", "min", "sorted", "len", "set"):
        if re.fullmatch(r"[\w.]+", inner):
            name = ast.unparse(node.func)
            yield Change(start, end, f"{inner}.{name}()", (f"{name}({inner})", f"{name}("))


@operator("python")
def sorted_in_place(right: Right) -> Iterator[Change]:
    """`sorted(x)` as `x.sort()`, which gives None."""
    for node, start, end in _nodes(right):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sorted" and isinstance(node.args[0], ast.Name):
            rest = ", ".join(ast.unparse(each) for each in node.keywords)
            yield Change(start, end, f"{ast.unparse(node.args[0])}.sort({rest})", ("sorted(",))


@operator("python")
def key_of_fold_left_out(right: Right) -> Iterator[Change]:
    """`max(rows, key=...)` without its key."""
    for node, start, end in _nodes(right):
        is_fold = isinstance(node, ast.Call) and ast.unparse(node.func) in ("max", "min", "sorted")
        if isinstance(node, ast.Call) and is_fold and any(each.arg == "key" for each in node.keywords):
            yield Change(start, end, f"{ast.unparse(node.func)}({ast.unparse(node.args[0])})", ("key=",))


@operator("python")
def sum_of_objects(right: Right) -> Iterator[Change]:
    """`sum(row["n"] for row in rows)` as `sum(rows)`."""
    for node, start, end in _nodes(right):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sum" and len(node.args) == 1:
            made = node.args[0]
            if isinstance(made, ast.GeneratorExp) and len(made.generators) == 1:
                item, of = ast.unparse(made.elt), ast.unparse(made.generators[0].iter)
                key = re.search(r"\['(\w+)'\]", item)
                yield Change(start, end, f"sum({of})", (key[1] if key is not None else item,))


@operator("python")
def loop_over_number(right: Right) -> Iterator[Change]:
    """`for i in range(len(x))` as `for i in len(x)`."""
    yield from changes(right, r"in range\(([^(),\n]*(?:\([^()\n]*\))?)\)", r"in \1", r"range(\1)", "range(")


@operator("python")
def enumerate_left_out(right: Right) -> Iterator[Change]:
    """`for i, x in enumerate(xs)` without `enumerate`."""
    yield from changes(right, r"in enumerate\(([\w.\[\]\"']+)\)", r"in \1", "enumerate")


@operator("python")
def method_of_javascript(right: Right) -> Iterator[Change]:
    """`.append` as `.push`, `.lower` as `.toLowerCase`."""
    names = {
        "append": "push",
        "lower": "toLowerCase",
        "upper": "toUpperCase",
        "strip": "trim",
        "startswith": "startsWith",
        "endswith": "endsWith",
        "items": "entries",
        "extend": "concat",
        "get": "getOrDefault",
    }
    for old, new in names.items():
        yield from changes(right, rf"(?<=\.){old}(?=\()", new, old)


@operator("python")
def method_misspelt(right: Right) -> Iterator[Change]:
    """`.splitlines` as `.split_lines`, `.setdefault` as `.set_default`."""
    names = {
        "splitlines": "split_lines",
        "setdefault": "set_default",
        "startswith": "starts_with",
        "endswith": "ends_with",
        "append": "add",
        "most_common": "mostCommon",
        "fromisoformat": "from_iso_format",
        "isoformat": "to_iso",
        "total_seconds": "totalSeconds",
        "items": "iteritems",
        "strftime": "format",
    }
    for old, new in names.items():
        yield from changes(right, rf"(?<=\.){old}(?=\()", new, old)


@operator("python")
def library_misremembered(right: Right) -> Iterator[Change]:
    """`json.loads` as `json.parse`, `statistics.mean` as `statistics.average`."""
    names = {
        r"json\.loads": "json.parse",
        r"json\.dumps": "json.stringify",
        r"statistics\.mean": "statistics.average",
        r"statistics\.median": "statistics.med",
        r"math\.ceil": "math.ceiling",
        r"math\.sqrt": "math.squareroot",
        r"asyncio\.gather": "asyncio.all",
        r"asyncio\.sleep": "asyncio.delay",
        r"datetime\.fromisoformat": "datetime.parse",
        r"collections\.Counter": "collections.counter",
        r"collections\.defaultdict": "collections.DefaultDict",
        r"re\.findall": "re.find_all",
        r"re\.sub": "re.replace",
        r"itertools\.groupby": "itertools.group_by",
    }
    for old, new in names.items():
        name = old.rpartition(".")[2]
        yield from changes(right, rf"\b{old}\b", new, name)


@operator("python")
def import_left_out(right: Right) -> Iterator[Change]:
    """A module is used that is not imported."""
    for found in re.finditer(r"^(?:import (\w+)|from (\w+) import (\w+))\n", right.code, re.MULTILINE):
        yield change(found, "", found[0].strip(), f"import {found[1] or found[2]}", f"from {found[2]} import")


@operator("python")
def imported_from_elsewhere(right: Right) -> Iterator[Change]:
    """`from datetime import ...` as from another module."""
    for found in re.finditer(
        r"^from (datetime|collections|statistics|itertools|math) import (\w+)", right.code, re.MULTILINE
    ):
        other = {"datetime": "time", "collections": "itertools", "statistics": "math", "itertools": "functools"}
        yield change(
            found, f"from {other.get(found[1], 'numbers')} import {found[2]}", f"from {found[1]} import", found[1]
        )


@operator("python")
def package_imported(right: Right) -> Iterator[Change]:
    """A package is imported that the sandbox has not, and is not used."""
    if "pandas" not in right.code:
        yield Change(0, 0, "import pandas as pd\n", ("leave `import pandas as pd", "import pandas as pd"))


@operator("python")
def word_of_javascript(right: Right) -> Iterator[Change]:
    """`True` as `true`, `None` as `null`."""
    for old, new in (("True", "true"), ("False", "false"), ("None", "null")):
        yield from changes(right, rf"(?<![\w.'\"]){old}(?![\w'\"])", new, old)


@operator("python")
def operator_of_javascript(right: Right) -> Iterator[Change]:
    """`and` as `&&`, `==` as `===`."""
    for old, new in (
        (r" and ", " && "),
        (r" or ", " || "),
        (r" == ", " === "),
        (r" not (?!in)", " !"),
        (r" != ", " !== "),
    ):
        yield from changes(right, old, new, old.replace("(?!in)", "").strip())


@operator("python")
def elif_as_else_if(right: Right) -> Iterator[Change]:
    """`elif` as `else if`."""
    yield from changes(right, r"^(\s*)elif ", r"\1else if ", "elif")


@operator("python")
def template_of_javascript(right: Right) -> Iterator[Change]:
    """An f-string as a template in backticks."""
    yield from changes(
        right, r"(?<!\w)f\"([^\"{}\n]*)\{([^{}\n\"]+)\}([^\"{}\n]*)\"", r"`\1${\2}\3`", r'f"\1{\2}\3"', 'f"'
    )


@operator("python")
def text_joined_with_number(right: Right) -> Iterator[Change]:
    """An f-string as a sum of text and a number."""
    yield from changes(right, r"(?<!\w)f\"([^\"{}\n]*)\{([\w.\[\]']+)\}\"", r'"\1" + \2', r"str(\2)")


@operator("python")
def formatted_wrongly(right: Right) -> Iterator[Change]:
    """A mark of a format is one that there is not."""
    yield from changes(right, r"(?<=\{)([\w.\[\]']+):\.(\d)f(?=\})", r"\1:.\2d", ".2f", "f}", r".\2f")


@operator("python")
def colon_left_out(right: Right) -> Iterator[Change]:
    """A block begins without a colon."""
    for found in re.finditer(
        r"^(\s*(?:if|for|def|while|else|try|with|elif|async def)\b.*):$", right.code, re.MULTILINE
    ):
        yield change(found, found[1], found[0].strip())


@operator("python")
def bracket_left_out(right: Right) -> Iterator[Change]:
    """The last bracket of a line is left out."""
    for found in re.finditer(r"^(.*[^\s\])}])([\])}]+)$", right.code, re.MULTILINE):
        yield change(found, found[0][:-1], found[0].strip())


@operator("python")
def bracket_added(right: Right) -> Iterator[Change]:
    """A line has a bracket too many at its end."""
    for found in re.finditer(r"^.*\)$", right.code, re.MULTILINE):
        yield change(found, f"{found[0]})", found[0].strip())


@operator("python")
def quote_left_out(right: Right) -> Iterator[Change]:
    """A text has no end."""
    for found in re.finditer(r"^([^\"\n]*\"\w+)\"([^\"\n]*)$", right.code, re.MULTILINE):
        yield change(found, found[1] + found[2], found[0].strip())


@operator("python")
def comma_left_out(right: Right) -> Iterator[Change]:
    """Two items have no comma between them."""
    for found in re.finditer(r"^.*[\w\"')\]], (?=[\w\"'\[({]).*$", right.code, re.MULTILINE):
        at = [each.start() for each in re.finditer(r"(?<=[\w\"')\]]), (?=[\w\"'\[({])", found[0])]
        yield change(found, found[0][: at[0]] + found[0][at[0] + 1 :], found[0].strip())


@operator("python")
def indented_too_far(right: Right) -> Iterator[Change]:
    """A line has one space too many."""
    for found in re.finditer(r"(?<=[^:,(\[{\n]\n)([ ]*)(\w.*)$", right.code, re.MULTILINE):
        yield change(found, f" {found[0]}", found[2], "indent")


@operator("python")
def block_in_braces(right: Right) -> Iterator[Change]:
    """`if x:` as `if (x) {`."""
    yield from changes(right, r"^(\s*if )(.*):$", r"\1(\2) {", r"if (\2):", r"if \2:")


@operator("python")
def variable_declared(right: Right) -> Iterator[Change]:
    """`x = 1` as `const x = 1`."""
    for found in re.finditer(r"^([A-Za-z_]\w*) = (.+)$", right.code, re.MULTILINE):
        yield change(found, f"const {found[0]}", found[0])


@operator("python")
def equals_for_compare(right: Right) -> Iterator[Change]:
    """`if x == y` as `if x = y`."""
    yield from changes(right, r"^(\s*if [^=\n]*) == ([^\n]*)$", r"\1 = \2", "==")


@operator("python")
def variable_of_other_number(right: Right) -> Iterator[Change]:
    """A name is read as its singular, or its plural."""
    stored = dict.fromkeys(re.findall(r"^\s*([A-Za-z_]\w{2,}) = ", right.code, re.MULTILINE))
    for name in stored:
        new = name[:-1] if name.endswith("s") else f"{name}s"
        if re.search(rf"(?<!\w){new}(?!\w)", right.code):
            continue
        for found in re.finditer(rf"(?<![\w.\"']){name}(?![\w\"'])(?! = |=)", right.code):
            yield change(found, new, name)


@operator("python")
def variable_misspelt(right: Right) -> Iterator[Change]:
    """Two letters of a name in the other order."""
    for name in dict.fromkeys(re.findall(r"^\s*([A-Za-z_]\w{3,}) = ", right.code, re.MULTILINE)):
        new = f"{name[:2]}{name[3]}{name[2]}{name[4:]}"
        for found in re.finditer(rf"(?<![\w.\"']){name}(?![\w\"'])(?! = |=)", right.code):
            yield change(found, new, name)


@operator("python")
def await_left_out(right: Right) -> Iterator[Change]:
    """A function of the program that is awaited is called without."""
    yield from changes(right, r"\bawait (?=(?!tools|asyncio)[a-z_]\w*\()", "", "await")


@operator("python")
def gather_without_await(right: Right) -> Iterator[Change]:
    """`await asyncio.gather` without `await`."""
    yield from changes(right, r"\bawait (?=asyncio\.gather)", "", "await")


@operator("python")
def list_to_gather(right: Right) -> Iterator[Change]:
    """`gather(*calls)` without the star."""
    yield from changes(right, r"(asyncio\.gather\()\*", r"\1", "gather(*", "*")


@operator("python")
def await_of_value(right: Right) -> Iterator[Change]:
    """What is no call of a tool is awaited."""
    yield from changes(right, r"(?<== )((?:sum|len|sorted|max|min|sum|set|list)\([^\n]*)$", r"await \1", r"\1", "await")


@operator("python")
def json_of_value(right: Right) -> Iterator[Change]:
    """The result of a tool is read as JSON."""
    yield from changes(right, r"(?<== )((?:await )?tools\.[\w.]+\([^()\n]*\))$", r"json.loads(\1)", r"\1")


@operator("python")
def default_left_out(right: Right) -> Iterator[Change]:
    """`counts.get(key, 0)` without its default."""
    yield from changes(right, r"\.get\(([^(),\n]+), ([^(),\n]+)\)", r".get(\1)", r".get(\1, \2)", "None")


@operator("python")
def counted_from_nothing(right: Right) -> Iterator[Change]:
    """`counts[key] = counts.get(key, 0) + 1` as `counts[key] += 1`."""
    yield from changes(
        right, r"^(\s*)(\w+)\[([^\]\n]+)\] = \2\.get\(\3, ([^)\n]+)\) \+ ", r"\1\2[\3] += ", r"\2.get(\3, \4)", "get("
    )


@operator("python")
def appended_to_nothing(right: Right) -> Iterator[Change]:
    """`groups.setdefault(key, []).append(x)` as `groups[key].append(x)`."""
    yield from changes(right, r"\.setdefault\(([^(),\n]+(?:\[[^\]]*\])?), (\[\]|\{\})\)", r"[\1]", "setdefault")
    yield from changes(right, r"defaultdict\((?:int|list|float)\)", "{}", "defaultdict")


@operator("python")
def attribute_of_object(right: Right) -> Iterator[Change]:
    """`order["id"]` as `order->id`."""
    yield from changes(right, r"\b(\w+)\[\"([a-z_]+)\"\]", r"\1->\2", r'\1["\2"]', r"\1.\2")


@operator("python")
def joined_by_list(right: Right) -> Iterator[Change]:
    """`", ".join(names)` as `names.join(", ")`."""
    yield from changes(right, r"(\"[^\"\n]*\")\.join\((\w+)\)", r"\2.join(\1)", r"\1.join(\2)")


@operator("python")
def class_attribute_missing(right: Right) -> Iterator[Change]:
    """`datetime.now()` of the module, not the class."""
    yield from changes(
        right,
        r"from datetime import (?=[^\n]*\bdatetime\b)[^\n]*",
        "import datetime",
        "datetime.datetime",
        "from datetime import",
    )


@operator("python")
def time_without_zone(right: Right) -> Iterator[Change]:
    """A time is compared with one that has no zone."""
    yield from changes(
        right,
        r"datetime\.fromisoformat\(([^()\n]+)\)",
        r"datetime.fromisoformat(\1).replace(tzinfo=None)",
        "tzinfo",
        "zone",
    )


@operator("python")
def slice_with_real_number(right: Right) -> Iterator[Change]:
    """A place that is a float."""
    yield from changes(right, r"\[:(\d)\]", r"[:\1 / 1]", "int(", "//")


@operator("python")
def comprehension_as_map(right: Right) -> Iterator[Change]:
    """`[f(x) for x in xs]` as `xs.map(lambda x: f(x))`."""
    yield from changes(
        right,
        r"\[([^\[\]\n]+(?:\[[^\[\]]*\])?) for (\w+) in (\w+)\]",
        r"\3.map(lambda \2: \1)",
        r"for \2 in",
        "for each in",
    )


@operator("python")
def set_of_objects(right: Right) -> Iterator[Change]:
    """`{row["k"] for row in rows}` as `{row for row in rows}`."""
    yield from changes(right, r"(?<=\{)(\w+)\[\"(\w+)\"\](?= for)", r"\1", r"\2")


@operator("python")
def unpacked_short(right: Right) -> Iterator[Change]:
    """`for key, value in ...` with a name more."""
    yield from changes(right, r"for (\w+), (\w+) in", r"for \1, \2, rest in", r"for \1, \2 in", "2 items", "two")


@operator("python")
def called_list(right: Right) -> Iterator[Change]:
    """`rows[0]` as `rows(0)`."""
    yield from changes(right, r"(?<=\w)\[(0|-1)\]", r"(\1)", r"[\1]")
