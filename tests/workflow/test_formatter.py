"""The canonical style of workflows: one tree has one text, and comments keep their places."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from tests.depth import examples
from tests.workflow.trees import workflows

from toolexec.workflow import nodes as n
from toolexec.workflow.formatter import WIDTH, format_tree, format_workflow
from toolexec.workflow.parser import parse

UNTIDY = """\
+++
name = "triage"
+++
input  repo:string="a/b"  'Which'
input n : integer?
// get it
issue:=run('github:get_issue',{'owner':"a","repo name":repo,n:n})timeout 5s;  print(issue . title)


rows := collect for x,i in issue.labels where x.name!='wontfix'&&!(i>3) { {name:x.name, ...x} }
if issue?.number==3||false { print( "issue ${ issue.number }", rows[ 1 : ] ) }  # always
else if rows[-1] not in [1,2] {
  fail "no" } else { issue.y[0] = -(n.b) * (2 + 3)
  # nothing else
}
both := parallel limit 3 { a: run("a:b"), b := retry(3, 1s) { run("c:d") } }
all := run("github:list_issues", {owner: "a rather long owner's name", state: "open", labels: [
   "bug", # the important ones
   "help wanted"], page: 1})
prompt := "one line\\nanother line of the ${issue.title}\\n  a third\\n"
x := (a # moved
  + b)
return {both, all}
# the end
"""
TIDY = '''\
+++
name = "triage"
+++

input repo: string = "a/b" "Which"
input n: integer?

# get it
issue := run("github:get_issue", {owner: "a", "repo name": repo, n}) timeout 5s
print(issue.title)

rows := collect x, i in issue.labels where x.name != "wontfix" and not i > 3 {
    {name: x.name, ...x}
}
if issue?.number == 3 or false {
    print("issue ${issue.number}", rows[1:])
} else if rows[-1] not in [1, 2] {
    # always
    fail "no"
} else {
    issue.y[0] = -n.b * (2 + 3)
    # nothing else
}
both := parallel limit 3 {
    a: run("a:b")
    b := retry 3 delay 1s {
        run("c:d")
    }
}
all := run("github:list_issues", {
    owner: "a rather long owner's name",
    state: "open",
    labels: [
        "bug",  # the important ones
        "help wanted",
    ],
    page: 1,
})
prompt := """
    one line
    another line of the ${issue.title}
      a third
    """
# moved
x := a + b
return {both, all}
# the end
'''
COMMENTS = """\
# first

# second
a := [  # after the bracket
    # before an item
    1,  # after an item
    2,
    # at the end
]  # after the list

if a {  # after the brace
    b  # after a statement
    # at the end
} else {
    # only
}

x := f(
    # before an argument
    a,
    {b: 1},  # after the last
)
y := {
    # only
}
parallel {
    # before a branch
    a: 1  # after a branch
}

# last
"""


def test_an_untidy_workflow() -> None:
    """Spaces, quotes, spellings of operators, breaks and commas become those of the one style."""
    assert format_workflow(UNTIDY) == TIDY
    assert parse(UNTIDY) == parse(TIDY)


@pytest.mark.parametrize("source", [TIDY, COMMENTS, "", "# only\n"])
def test_what_is_formatted_stays(source: str) -> None:
    """Formatting again changes nothing."""
    assert format_workflow(source) == source


@pytest.mark.parametrize(
    ("source", "formatted"),
    [
        ("-(5)", "-(5)"),
        ("- -a", "-(-a)"),
        ("-(5.a)", "-(5.a)"),
        ("a - -5", "a - -5"),
        ("(a or b) and not (x and y)", "(a or b) and not (x and y)"),
        ("a - (b - c) - d", "a - (b - c) - d"),
        ("(a == b) == c", "(a == b) == c"),
        ("(a ? b : c) ? d : e ? f : g", "(a ? b : c) ? d : e ? f : g"),
        ("(run('a') timeout 5s).x", '(run("a") timeout 5s).x'),
        ("run('a') timeout (x + 1)", 'run("a") timeout (x + 1)'),
        ("x[(a ? 1 : 2):]", "x[(a ? 1 : 2):]"),
        ('{"a b": 1, "in": 2, "c": c}', '{"a b": 1, in: 2, c}'),
        ("'a\"${b}'", '"a\\"\\${b}"'),
        ("a := b\n  .c\n  .d", "a := b.c.d"),
        ("if a {}", "if a {}"),
        ("x := do { y }", "x := do { y }"),
        ("a\n\n\n\nb", "a\n\nb"),
        ("a; b", "a\nb"),
    ],
)
def test_one_style(source: str, formatted: str) -> None:
    """Parentheses stand only where they must."""
    assert format_workflow(source) == formatted + "\n"


def test_long_lines_are_broken_where_that_is_possible() -> None:
    """Objects, lists and calls are broken; a chain of operators is not, but what is in it is."""
    item = '"an item of some length"'
    source = f"x := [{', '.join([item] * 9)}] + f({{a: [{', '.join([item] * 5)}]}}) + g(a, {{b: {item}, c: {item}, d: {item}, e: {item}}})"
    formatted = format_workflow(source)
    assert max(map(len, formatted.splitlines())) <= WIDTH
    assert parse(formatted) == parse(source)


def test_deep_workflows_are_formatted() -> None:
    """Workflows at the limits of the parser do not end the formatter."""
    lists = f"x := {'[' * 99}{']' * 99}"
    blocks = "do {\n" * 100 + "a\n" + "}\n" * 100
    both = "do {\n" * 100 + "[" * 99 + "]" * 99 + "\n" + "}\n" * 100
    objects = "do {\n" * 100 + "{a: " * 99 + "1" + "}" * 99 + "\n" + "}\n" * 100
    chain = "x := " + " + ".join(["a"] * 100)
    ifs = "if a { b }" + " else if a { b }" * 98
    for source in (lists, blocks, both, objects, chain, ifs, "x := a" + ".b" * 99, "x := " + "not " * 99 + "a"):
        formatted = format_workflow(source)
        assert format_workflow(formatted) == formatted


def test_all_comments_are_kept() -> None:
    """A comment at any line break is still there, once, also where it had to move."""
    lines = TIDY.split("\n")
    for index in range(4, len(lines)):
        if '"""' in "\n".join(lines[index:]) and "one line" not in "\n".join(lines[index:]):
            continue  # inside of the string
        source = "\n".join([*lines[:index], "# here", *lines[index:]])
        formatted = format_workflow(source)
        assert formatted.count("# here") == 1
        assert parse(formatted) == parse(source)
        assert format_workflow(formatted) == formatted


@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
@given(workflows())
def test_a_tree_survives_its_text(tree: n.Workflow) -> None:
    """Parsing what was written gives the same tree, and writing that the same text."""
    source = format_tree(tree)
    parsed = parse(source)
    assert parsed == tree
    assert format_workflow(source) == source
