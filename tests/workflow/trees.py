"""Random workflows as trees, for tests of what reads, writes and runs them.

`workflows()` draws whole workflows that the parser could have made: `parse(format_tree(tree)) == tree`. Names come from a
few, and functions and tools are any names; what a tree does when it runs is up to the test.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from toolexec.workflow import nodes as n
from toolexec.workflow.tokens import KEYWORDS

NAMES = ("a", "b", "item", "limit_", "x1", "_y")
KEYS = ("a", "title", "in", "limit", "two words", "", "é", 'q"', "if")
OPERATORS = ("or", "and", "??", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "+", "-", "*", "/", "%")
DURATIONS = ((0.5, "500ms"), (2.0, "2s"), (300.0, "5m"), (5400.0, "1.5h"))

names = st.sampled_from(NAMES)
strings = st.one_of(
    st.sampled_from(
        [
            "",
            "plain",
            "${",
            "$",
            '"""',
            "a\\b",
            "one\ntwo\nthree\n",
            "  one\n two\n\n   three, and more",
            "\t",
            "\u202e",
            "日本",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
numbers = st.one_of(
    st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False).map(lambda value: value or 0.0)
)
constants = st.builds(n.Constant, st.one_of(st.none(), st.booleans(), numbers, strings))
durations = st.sampled_from(DURATIONS).map(lambda pair: n.Duration(*pair))
references = st.builds(n.Name, names)
atoms = st.one_of(constants, durations, references)


def _interpolations(inner: st.SearchStrategy[n.Expression]) -> st.SearchStrategy[n.Interpolation]:
    """Draw strings with inserts: no two strings side by side, none empty, at least one insert."""
    piece = st.tuples(st.one_of(st.just(""), strings), inner)

    def join(pieces: list[tuple[str, n.Expression]], last: str) -> n.Interpolation:
        parts = [part for text, value in pieces for part in (text, value)]
        return n.Interpolation(tuple(part for part in [*parts, last] if part != ""))

    return st.builds(join, st.lists(piece, min_size=1, max_size=3), st.one_of(st.just(""), strings))


def _key(entry: n.Entry | n.Spread) -> object:
    """Return what an object has once."""
    return entry.key if isinstance(entry, n.Entry) else id(entry)


def _compound(inner: st.SearchStrategy[n.Expression]) -> st.SearchStrategy[n.Expression]:
    optional = st.none() | inner
    spread = st.builds(n.Spread, inner)
    entry = st.builds(n.Entry, st.sampled_from(KEYS), inner)
    return st.one_of(
        _interpolations(inner),
        st.builds(n.Member, inner, st.sampled_from(["a", "limit", "if", "e5"]), st.booleans()),
        st.builds(n.Index, inner, inner, st.booleans()),
        st.builds(n.Slice, inner, optional, optional),
        st.builds(n.Unary, st.sampled_from(["not", "-"]), inner),
        st.builds(n.Binary, st.sampled_from(OPERATORS), inner, inner),
        st.builds(n.Conditional, inner, inner, inner),
        st.lists(inner | spread, max_size=4).map(lambda items: n.ListLiteral(tuple(items))),
        st.lists(entry | spread, max_size=4, unique_by=_key).map(lambda entries: n.ObjectLiteral(tuple(entries))),
        st.builds(n.Call, names, st.lists(inner, max_size=3).map(tuple)),
        st.builds(n.ToolRun, inner, optional, optional),
    )


_expressions = st.recursive(atoms, _compound, max_leaves=8)


class _Hidden(list[st.SearchStrategy[Any]]):
    """A strategy that is not shown."""

    def __repr__(self) -> str:
        return "..."


@st.composite
def _one(draw: st.DrawFn, strategy: _Hidden) -> Any:
    """Draw from a strategy whose representation would fill pages."""
    return draw(strategy[0])


expressions: st.SearchStrategy[n.Expression] = _one(_Hidden([_expressions]))
targets = st.recursive(
    references,
    lambda inner: st.builds(n.Member, inner, names) | st.builds(n.Index, inner, atoms),
    max_leaves=3,
)
_loop_names = st.lists(names, min_size=1, max_size=2, unique=True).map(tuple)
_optional = st.none() | expressions


def _block_expressions(
    block: st.SearchStrategy[n.Block], value: st.SearchStrategy[n.Value]
) -> st.SearchStrategy[n.BlockExpression]:
    ifs = st.recursive(
        st.builds(n.If, expressions, block, st.none() | block),
        lambda inner: st.builds(n.If, expressions, block, inner),
        max_leaves=2,
    )
    branch = st.one_of(
        st.builds(n.Branch, st.none(), value),
        st.builds(n.Branch, names | st.sampled_from(["in", "limit"]), value),
        st.builds(n.Branch, names, value, st.just(True)),
    )
    return st.one_of(
        st.builds(n.Do, block),
        ifs,
        st.builds(n.For, _loop_names, expressions, block, _optional),
        st.builds(n.Collect, _loop_names, expressions, block, _optional),
        st.builds(n.While, expressions, block, _optional),
        st.builds(n.Parallel, st.lists(branch, max_size=3).map(tuple), _optional),
        st.builds(n.ParallelFor, _loop_names, expressions, block, _optional, _optional),
        st.builds(n.Retry, expressions, block, _optional, _optional),
        st.builds(n.Try, block, st.none() | names, block),
    )


def _statements(value: st.SearchStrategy[n.Value]) -> st.SearchStrategy[n.Statement]:
    return st.one_of(
        st.builds(n.Bind, names, value),
        st.builds(n.Assign, targets, value),
        st.builds(n.ExpressionStatement, value),
        st.builds(n.Print, st.lists(expressions, max_size=3).map(tuple)),
        st.builds(n.Return, st.none() | value),
        st.builds(n.Fail, expressions),
        st.just(n.Break()),
        st.just(n.Continue()),
    )


def _blocks(statement: st.SearchStrategy[n.Statement]) -> st.SearchStrategy[n.Block]:
    return st.lists(statement, max_size=3).map(lambda found: n.Block(tuple(found)))


_some_statements = st.recursive(
    _statements(expressions),
    lambda inner: _statements(_block_expressions(_one(_Hidden([_blocks(inner)])), expressions)),
    max_leaves=6,
)

statements: st.SearchStrategy[n.Statement] = _one(_Hidden([_some_statements]))

_plain_types = st.sampled_from(["string", "integer", "number", "boolean", "object", "list", "any"])
types = st.one_of(
    st.builds(n.TypeName, _plain_types, nullable=st.booleans()),
    st.builds(n.TypeName, st.just("list"), st.builds(n.TypeName, _plain_types, nullable=st.booleans())),
    st.builds(
        n.TypeName, st.just("choice"), st.none(), st.lists(strings, min_size=1, max_size=3).map(tuple), st.booleans()
    ),
)
inputs = st.builds(n.Input, names, types, _optional, strings)
front_matters = st.none() | st.sampled_from(["", 'name = "x"', 'name = "x"\n\n[limits]\ncalls = 3\n']).map(
    n.FrontMatter
)


def workflows() -> st.SearchStrategy[n.Workflow]:
    """Draw whole workflows."""
    return st.builds(
        n.Workflow,
        st.lists(inputs, max_size=2).map(tuple),
        st.lists(statements, max_size=4).map(tuple),
        front_matters,
    )


assert not KEYWORDS & set(NAMES)
