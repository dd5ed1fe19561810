"""The rules for names, and for break, continue and return."""

from __future__ import annotations

from toolexec.workflow.names import resolve_names
from toolexec.workflow.nodes import (
    Assign,
    Bind,
    Block,
    Branch,
    Break,
    Call,
    Collect,
    Constant,
    Continue,
    Do,
    Expression,
    ExpressionStatement,
    For,
    If,
    Index,
    Input,
    ListLiteral,
    Member,
    Name,
    Parallel,
    ParallelFor,
    Position,
    Print,
    Return,
    Statement,
    Try,
    TypeName,
    Value,
    Workflow,
)

ONE = Constant(1)
XS = ListLiteral((ONE,))


def at(line: int) -> Position:
    return Position(line, 1, line, 2)


def show(*values: Expression) -> Print:
    return Print(values)


def does(value: Value) -> ExpressionStatement:
    return ExpressionStatement(value)


def kinds(*statements: Statement, inputs: tuple[Input, ...] = ()) -> list[str]:
    return [finding.kind for finding in resolve_names(Workflow(inputs, statements)).findings]


def hints(*statements: Statement) -> list[str]:
    return [finding.suggestion for finding in resolve_names(Workflow((), statements)).findings]


def test_names_are_visible_after_their_binding() -> None:
    """A name may be read and changed after it is bound, and in blocks below."""
    inner = If(Name("x"), Block((Assign(Name("x"), Name("y")), show(Name("x")))))
    given = Input("y", TypeName("any"), None)
    assert kinds(Bind("x", ONE), does(inner), show(Name("x")), inputs=(given,)) == []


def test_unknown_names_come_with_what_was_meant() -> None:
    """An undefined name is a finding with the nearest name, or with what to write."""
    assert kinds(show(Name("x"))) == ["undefined-name"]
    assert hints(Bind("issue", ONE), show(Name("isue"))) == ["did you mean issue?"]
    assert hints(show(Name("len"))) == ["it is a function: write len(...)"]
    assert hints(Assign(Name("x"), ONE)) == ["write x := ... to bind it"]
    assert hints(Assign(Member(Name("x"), "a"), ONE)) == ["write x := ... to bind it"]


def test_a_name_ends_with_its_block() -> None:
    """After the block the name is gone, and the finding says where it was bound."""
    block = Do(Block((Bind("x", ONE, at=at(3)),)))
    assert hints(does(block), show(Name("x"))) == [
        "it is bound in line 3, for its block only: bind it before that block"
    ]
    assert kinds(does(block), Bind("x", ONE), show(Name("x"))) == []


def test_a_name_is_bound_once() -> None:
    """A second binding of a visible name is a finding that says how to change it."""
    assert kinds(Bind("x", ONE), Bind("x", ONE)) == ["already-bound"]
    assert hints(Bind("x", ONE), Bind("x", ONE)) == ["write x = ... to change it"]
    loop = For(("x",), XS, Block((show(Name("x")),)))
    assert hints(Bind("x", ONE), does(loop)) == ["take another name"]
    assert kinds(does(For(("x", "x"), XS, Block(())))) == ["already-bound"]
    assert kinds(does(Try(Block(()), "err", Block((Bind("err", ONE),))))) == ["already-bound"]


def test_branches_read_names_from_outside_and_do_not_change_them() -> None:
    """Inside of parallel an outer name can be read only; the branch's own names are its own."""
    own = Do(Block((Bind("y", Name("x")), Assign(Name("y"), ONE), Assign(Member(Name("x"), "a"), ONE))))
    assert kinds(Bind("x", ONE), does(Parallel((Branch(None, own),)))) == ["assign-in-parallel"]
    body = Block((Assign(Name("i"), ONE), Assign(Name("x"), Name("i")), Assign(Name("__out"), ONE)))
    assert kinds(Bind("x", ONE), does(ParallelFor(("i",), XS, body, Name("i")))) == ["assign-in-parallel"] * 2


def test_branches_bind_names_for_what_follows() -> None:
    """`name := value` in parallel binds the name after it, not for its other branches."""
    branches = (Branch("a", ONE, binds=True), Branch("b", Name("a"), binds=True))
    assert kinds(does(Parallel(branches)), show(Name("a"))) == ["undefined-name"]
    assert kinds(does(Parallel((Branch("a", ONE),))), show(Name("a"))) == ["undefined-name"]


def test_words_stand_where_they_mean_something() -> None:
    """break and continue belong into loops, return not into branches that run at the same time."""
    loop = For(("x",), XS, Block((does(If(ONE, Block((Break(),)))), Continue())))
    assert kinds(does(loop), Return(ONE)) == []
    assert kinds(Break(), Continue()) == ["misplaced"] * 2
    assert kinds(does(ParallelFor(("x",), XS, Block((Continue(),))))) == []
    assert kinds(does(ParallelFor(("x",), XS, Block((Break(),))))) == ["misplaced"]
    assert kinds(does(ParallelFor(("x",), XS, Block((Return(ONE),))))) == ["misplaced"]
    inside = Collect(("x",), XS, Block((does(Parallel((Branch(None, Do(Block((Break(),)))),))),)))
    assert kinds(does(inside)) == ["misplaced"]
    assert kinds(Assign(Member(Call("first", (XS,)), "a"), ONE)) == ["misplaced"]


def test_out_may_be_written_anywhere_but_in_branches() -> None:
    """`__out` needs no binding, and may be read."""
    assert kinds(Assign(Name("__out"), ONE), Bind("__out", ONE), show(Name("__out"))) == []


def test_bindings_count_their_readers() -> None:
    """Each binding knows how often it is read; to be assigned to is not to be read."""
    target = Index(Name("x"), Name("i"))
    workflow = Workflow((), (Bind("x", XS), Bind("i", ONE), Assign(target, ONE), Assign(Name("x"), XS)))
    assert [(found.name, found.used) for found in resolve_names(workflow).bindings] == [("x", 0), ("i", 1)]


def test_blocks_are_nested_to_a_bound() -> None:
    """Blocks more than 100 deep are one finding, and else-if chains are not deep."""
    body = Block(())
    for _ in range(150):
        body = Block((does(Do(body)),))
    assert kinds(*body.statements) == ["too-deep"]
    chain: If | None = None
    for _ in range(3000):
        chain = If(ONE, Block(()), chain)
    assert chain is not None
    assert kinds(does(chain)) == []
