"""The parser of workflows: small sources and their trees."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.depth import examples
from tests.workflow.running import run
from tests.workflow.trees import workflows

from toolexec.errors import WorkflowSyntaxError
from toolexec.workflow import nodes as n
from toolexec.workflow.checker import check
from toolexec.workflow.formatter import format_tree
from toolexec.workflow.graph import graph_of
from toolexec.workflow.parser import parse
from toolexec.workflow.tokens import MAX_BLOCKS, MAX_DEPTH

SEEDS = """\
issue := run("github:create_issue", {title: "Bug fix"})
run("github:add_labels", {issue: issue.number, labels: ["bug"]})
"""


def c(value: bool | float | str | None) -> n.Constant:
    return n.Constant(value)


def name(text: str) -> n.Name:
    return n.Name(text)


A, B, X, XS = name("a"), name("b"), name("x"), name("xs")
ONE, TWO = c(1), c(2)


def block(*values: n.Expression) -> n.Block:
    return n.Block(tuple(n.ExpressionStatement(value) for value in values))


EXPRESSIONS: list[tuple[str, n.Value]] = [
    ("null", c(None)),
    ("true", c(True)),
    ("false", c(False)),
    ("12", c(12)),
    ("-3", c(-3)),
    ("- 3", c(-3)),
    ("1.5e3", c(1500.0)),
    ("500ms", n.Duration(0.5, "500ms")),
    ("1.5h", n.Duration(5400.0, "1.5h")),
    (r'"a\n\"\u00e9\${x}$y"', c('a\n"é${x}$y')),
    (r'"\ud83d\ude00"', c("😀")),
    ("'a ${b} \"'", c('a ${b} "')),
    ('"""\n    a\n      b\n    """', c("a\n  b\n")),
    ('"""\n    a\n  b"""', c("  a\nb")),
    ('"""a\n   b\n   """', c("a\nb\n")),
    ('"${a}"', n.Interpolation((A,))),
    ('"1${a}2${b}"', n.Interpolation(("1", A, "2", B))),
    ('"${"${a}" + {a}.a}"', n.Interpolation((n.Binary("+", n.Interpolation((A,)), n.Member(n.ObjectLiteral((n.Entry("a", A),)), "a")),))),
    ('"""\n  x ${a}\n    ${b}\n  """', n.Interpolation(("x ", A, "\n  ", B, "\n"))),
    ("[]", n.ListLiteral(())),
    ("[1, ...xs, 2,]", n.ListLiteral((ONE, n.Spread(XS), TWO))),
    ("[\n1,\n2\n]", n.ListLiteral((ONE, TWO))),
    ("{}", n.ObjectLiteral(())),
    ('{a: 1, "b c": 2, x, ...xs, in: 1, limit: 2,}', n.ObjectLiteral((n.Entry("a", ONE), n.Entry("b c", TWO), n.Entry("x", X), n.Spread(XS), n.Entry("in", ONE), n.Entry("limit", TWO)))),
    ("a.b?.c", n.Member(n.Member(A, "b"), "c", True)),
    ("a.limit.if", n.Member(n.Member(A, "limit"), "if")),
    ("a[1]?[2]", n.Index(n.Index(A, ONE), TWO, True)),
    ("a[1:2]", n.Slice(A, ONE, TWO)),
    ("a[:]", n.Slice(A, None, None)),
    ("a[1:]", n.Slice(A, ONE, None)),
    ("len(xs)", n.Call("len", (XS,))),
    ("now()", n.Call("now", ())),
    ("max(1, 2,)", n.Call("max", (ONE, TWO))),
    ("a + b * 2 - 1", n.Binary("-", n.Binary("+", A, n.Binary("*", B, TWO)), ONE)),
    ("(a + b) * 2", n.Binary("*", n.Binary("+", A, B), TWO)),
    ("a - 1", n.Binary("-", A, ONE)),
    ("a -1", n.Binary("-", A, ONE)),
    ("-a.b * 2", n.Binary("*", n.Unary("-", n.Member(A, "b")), TWO)),
    ("not a == b and x", n.Binary("and", n.Unary("not", n.Binary("==", A, B)), X)),
    ("!a || b && x", n.Binary("or", n.Unary("not", A), n.Binary("and", B, X))),
    ("a or b ?? x", n.Binary("or", A, n.Binary("??", B, X))),
    ("a in xs", n.Binary("in", A, XS)),
    ("a not in xs", n.Binary("not in", A, XS)),
    ("not a in xs", n.Unary("not", n.Binary("in", A, XS))),
    ("a ? b : x ? 1 : 2", n.Conditional(A, B, n.Conditional(X, ONE, TWO))),
    ("a ? [1] : {b: 2}", n.Conditional(A, n.ListLiteral((ONE,)), n.ObjectLiteral((n.Entry("b", TWO),)))),
    ('run("m:t")', n.ToolRun(c("m:t"))),
    ('run("m:t", {a})', n.ToolRun(c("m:t"), n.ObjectLiteral((n.Entry("a", A),)))),
    ('run("m:t", {}) timeout 5s', n.ToolRun(c("m:t"), n.ObjectLiteral(()), n.Duration(5.0, "5s"))),
    ('1 + run("m:t") timeout a.b + 2', n.Binary("+", n.Binary("+", ONE, n.ToolRun(c("m:t"), None, n.Member(A, "b"))), TWO)),
    ("do { a }", n.Do(block(A))),
    ("if a { 1 }", n.If(A, block(ONE))),
    ("if a { 1 } else { 2 }", n.If(A, block(ONE), block(TWO))),
    ("if a { 1 }\nelse if b { 2 }\nelse { x }", n.If(A, block(ONE), n.If(B, block(TWO), block(X)))),
    ("if a { 1 } else if b { 2 }", n.If(A, block(ONE), n.If(B, block(TWO)))),
    ("if {a} == b { 1 }", n.If(n.Binary("==", n.ObjectLiteral((n.Entry("a", A),)), B), block(ONE))),
    ("for x in xs { }", n.For(("x",), XS, block())),
    ("for a, b in xs where a { b }", n.For(("a", "b"), XS, block(B), A)),
    ("collect x in xs { {x} }", n.Collect(("x",), XS, block(n.ObjectLiteral((n.Entry("x", X),))))),
    ("collect for x in xs where a { x }", n.Collect(("x",), XS, block(X), A)),
    ("while a { b }", n.While(A, block(B))),
    ("while a limit 20 { b }", n.While(A, block(B), c(20))),
    ("parallel { a: 1, b := 2\nx; do { 1 } }", n.Parallel((n.Branch("a", ONE), n.Branch("b", TWO, True), n.Branch(None, X), n.Branch(None, n.Do(block(ONE)))))),
    ("parallel limit 2 { in: 1\n}", n.Parallel((n.Branch("in", ONE),), TWO)),
    ("parallel for x in xs { x }", n.ParallelFor(("x",), XS, block(X))),
    ("parallel for a, b in xs where a limit 2 { b }", n.ParallelFor(("a", "b"), XS, block(B), A, TWO)),
    ("retry 3 { a }", n.Retry(c(3), block(A))),
    ("retry 3 delay 1s backoff 2 { a }", n.Retry(c(3), block(A), n.Duration(1.0, "1s"), TWO)),
    ("retry 3 1s 2 { a }", n.Retry(c(3), block(A), n.Duration(1.0, "1s"), TWO)),
    ("retry(3, 1s, 2) { a }", n.Retry(c(3), block(A), n.Duration(1.0, "1s"), TWO)),
    ("retry(3, 1s) { a }", n.Retry(c(3), block(A), n.Duration(1.0, "1s"))),
    ("retry (3) { a }", n.Retry(c(3), block(A))),
    ("try { a } catch { b }", n.Try(block(A), None, block(B))),
    ("try { a }\ncatch x { b }", n.Try(block(A), "x", block(B))),
]  # fmt: skip

STATEMENTS: list[tuple[str, n.Statement]] = [
    ("a := 1", n.Bind("a", ONE)),
    ("a :=\n  1 +\n  2", n.Bind("a", n.Binary("+", ONE, TWO))),
    ("a := b\n  .x\n\n  # why\n  ?.y", n.Bind("a", n.Member(n.Member(B, "x"), "y", True))),
    ("a := collect x in xs { x }", n.Bind("a", n.Collect(("x",), XS, block(X)))),
    ("a = 1", n.Assign(A, ONE)),
    ("a.b[1] = 2", n.Assign(n.Index(n.Member(A, "b"), ONE), TWO)),
    ("print()", n.Print(())),
    ("print(a, 1)", n.Print((A, ONE))),
    ("return", n.Return()),
    ("return {a}", n.Return(n.ObjectLiteral((n.Entry("a", A),)))),
    ("return if a { 1 }", n.Return(n.If(A, block(ONE)))),
    ('fail "no"', n.Fail(c("no"))),
    ("break", n.Break()),
    ("continue", n.Continue()),
    ("a", n.ExpressionStatement(A)),
    ("a;;", n.ExpressionStatement(A)),
]

INPUTS: list[tuple[str, n.Input]] = [
    ("input a: string", n.Input("a", n.TypeName("string"))),
    ("input a: integer? = 1 'How many'", n.Input("a", n.TypeName("integer", nullable=True), ONE, "How many")),
    ("input a: list[list[number?]]", n.Input("a", n.TypeName("list", n.TypeName("list", n.TypeName("number", nullable=True))))),
    ('input a: "x" | "y"?', n.Input("a", n.TypeName("choice", None, ("x", "y"), True))),
]  # fmt: skip


@pytest.mark.parametrize(("source", "value"), EXPRESSIONS, ids=[source for source, _ in EXPRESSIONS])
def test_a_value_alone_is_a_statement(source: str, value: n.Value) -> None:
    """Values are parsed as they are drawn in the table."""
    assert parse(source).statements == (n.ExpressionStatement(value),)


@pytest.mark.parametrize(("source", "statement"), STATEMENTS, ids=[source for source, _ in STATEMENTS])
def test_statements(source: str, statement: n.Statement) -> None:
    """A statement ends with its line."""
    assert parse(source).statements == (statement,)
    assert parse(f"{source}\nb;x").statements == (statement, n.ExpressionStatement(B), n.ExpressionStatement(X))


@pytest.mark.parametrize(("source", "declared"), INPUTS, ids=[source for source, _ in INPUTS])
def test_inputs(source: str, declared: n.Input) -> None:
    """An input ends with its line, with a `?` too."""
    assert parse(source) == n.Workflow((declared,), ())
    assert parse(f"{source}\nb").statements == (n.ExpressionStatement(B),)


def test_the_lines_of_the_index_page() -> None:
    """Both lines are parsed as they stand."""
    first, second = parse(SEEDS).statements
    assert first == n.Bind(
        "issue", n.ToolRun(c("github:create_issue"), n.ObjectLiteral((n.Entry("title", c("Bug fix")),)))
    )
    labels = (n.Entry("issue", n.Member(name("issue"), "number")), n.Entry("labels", n.ListLiteral((c("bug"),))))
    assert second == n.ExpressionStatement(n.ToolRun(c("github:add_labels"), n.ObjectLiteral(labels)))


@pytest.mark.parametrize("source", ["", "\n", "# only this", " ;; \n"])
def test_nothing_is_a_workflow(source: str) -> None:
    """An empty workflow has no statements."""
    assert parse(source) == n.Workflow((), ())


def test_front_matter_and_comments() -> None:
    """Front matter is kept as it was written; comments have their places and begin with `#`."""
    workflow = parse('+++\nname = "x"\n\n+++\n# one\na // two\n  //three\n')
    assert workflow.front_matter == n.FrontMatter('name = "x"\n')
    assert workflow.comments == (
        (n.Position(5, 1, 5, 6), "# one"),
        (n.Position(6, 3, 6, 9), "# two"),
        (n.Position(7, 3, 7, 10), "#three"),
    )
    assert parse("+++\n+++").front_matter == n.FrontMatter("")


def test_nodes_know_their_places() -> None:
    """Lines and columns begin at 1, and an end is the column after; parentheses count."""
    bind, run = parse('a := (1 +\n  b).c\nrun("""\nx""", {\n  a: 1}) timeout 5s').statements
    assert bind.at == n.Position(1, 1, 2, 7)
    assert isinstance(bind, n.Bind)
    assert isinstance(bind.value, n.Member)
    assert bind.value.at == n.Position(1, 6, 2, 7)
    assert isinstance(bind.value.value, n.Binary)
    assert bind.value.value.right.at == n.Position(2, 3, 2, 4)
    assert isinstance(run, n.ExpressionStatement)
    assert isinstance(run.value, n.ToolRun)
    assert run.at == n.Position(3, 1, 5, 20)
    assert run.value.tool.at == n.Position(3, 5, 4, 5)


def test_line_breaks_of_other_systems() -> None:
    """CR LF and CR are line breaks, and a byte order mark is nothing."""
    assert parse("\ufeffa\r\nb\rx") == parse("a\nb\nx")


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(workflows())
def test_every_place_is_that_of_its_text(tree: n.Workflow) -> None:
    """The text at the place of an expression is that expression."""
    source = format_tree(tree)
    lines = source.split("\n")
    for node in n.walk(parse(source)):
        if isinstance(node, n.Expression) and node.at.line == node.at.end_line:
            text = lines[node.at.line - 1][node.at.column - 1 : node.at.end_column - 1]
            assert parse(text).statements == (n.ExpressionStatement(node),)


def test_long_and_flat() -> None:
    """A thousand operators side by side and hundreds of `else if` are parsed, checked, formatted, drawn and compiled."""
    total = " + ".join(["x.a"] * 1001)
    choice = " ".join(f"else if total == {number} {{ {number} }}" for number in range(200))
    source = f"x := {{a: 1}}\ntotal := {total}\nif total == 0 {{ 0 }} {choice} else {{ total }}\n"
    tree = parse(source)
    assert [each for each in check(tree) if each.severity == "error"] == []
    assert f"total := {total}\n" in format_tree(tree)
    assert [*n.walk(parse(format_tree(tree)))][-1] == [*n.walk(tree)][-1]
    assert len([node for node in graph_of(tree, source).nodes if node.kind == "choice"]) == 201
    assert run(source) == 1001


def test_the_deepest_tree() -> None:
    """The deepest expression in the deepest block is parsed and checked."""
    source = "".join(f"y{depth} := collect z{depth} in [1] {{\n" for depth in range(MAX_BLOCKS))
    source += "[" * (MAX_DEPTH - 1) + "{}" + "]" * (MAX_DEPTH - 1) + "\n}" * MAX_BLOCKS
    assert [each for each in check(parse(source)) if each.severity == "error"] == []


@pytest.mark.parametrize(
    "source", ["{a: 1, a: 2}", '{a: 1, "a": 2}', "{a, a: 2}", "{a: 1, ...b, a: 2}", "{c: {a: 1, a: 2}}"]
)
def test_an_object_has_each_key_once(source: str) -> None:
    """A key that is written twice in an object is a mistake, and not the last of its values."""
    with pytest.raises(WorkflowSyntaxError, match="the key 'a' is there twice"):
        parse(source)
