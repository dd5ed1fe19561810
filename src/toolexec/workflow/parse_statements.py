"""Parse whole workflows: their inputs, statements and blocks, one method for each rule of the grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from toolexec.workflow import nodes as n
from toolexec.workflow.mistakes import wrong_type
from toolexec.workflow.nodes import Expression, Position
from toolexec.workflow.parse_expressions import Expressions, problem, span
from toolexec.workflow.tokens import ACTIONS, AFTER_VALUE, BLOCKS, MAX_ELSE_IFS, VALUES, Token

_TYPES: Final = ("string", "integer", "number", "boolean", "object", "list", "any")
_ANY_VALUE: Final = VALUES | BLOCKS
_STATEMENTS: Final = _ANY_VALUE | ACTIONS
_TOP: Final = _STATEMENTS | {"INPUT"}
_NONE: Final = frozenset[str]()
_ELSE: Final = frozenset(["ELSE"])
_SETS: Final = AFTER_VALUE | {"BIND", "EQUAL"}
_AFTER_NAME: Final = AFTER_VALUE | {"COLON", "BIND", "END", "END_BLOCK"}


class Statements(Expressions):
    """Parses the tokens of a workflow."""

    def __init__(self, tokens: list[Token]) -> None:
        super().__init__(tokens)
        self._blocks: dict[str, Callable[[Token], n.BlockExpression]] = {
            "DO": self._do,
            "IF": self._if,
            "FOR": self._for,
            "COLLECT": self._collect,
            "WHILE": self._while,
            "PARALLEL": self._parallel,
            "RETRY": self._retry,
            "TRY": self._try,
        }
        self._actions: dict[str, Callable[[Token], n.Statement]] = {
            "PRINT": self._print,
            "RETURN": self._return,
            "FAIL": self._fail,
            "BREAK": self._break,
            "CONTINUE": self._continue,
        }

    def workflow(self) -> n.Workflow:
        """[FRONT_MATTER] [(input | statement) (END (input | statement))*] $END"""
        front = self._take_if("FRONT_MATTER")
        inputs: list[n.Input] = []
        statements: list[n.Statement] = []
        while self._has_next(len(inputs) + len(statements), _TOP, "END", "$END"):
            word = self._take_if("INPUT")
            if word is None:
                statements.append(self.statement())
                continue
            inputs.append(self._input(word))
            if statements:
                raise problem(inputs[-1].at, "inputs stand at the top, before all statements", "move this line up")
        parts = [None if front is None else span(front, front), *(node.at for node in [*inputs, *statements])]
        places = [part for part in parts if part is not None]
        at = span(places[0], places[-1]) if places else Position(1, 1, 1, 1)
        matter = None if front is None else n.FrontMatter(str(front.value), at=places[0])
        return n.Workflow(tuple(inputs), tuple(statements), matter, at=at)

    # -- inputs -------------------------------------------------------------------------------------------------

    def _input(self, word: Token) -> n.Input:
        """ "input" NAME ":" type ["=" expression] [STRING]"""
        name = self._take("NAME")
        self._take("COLON")
        kind = self._type()
        end: Token | Position = kind.at
        default: Expression | None = None
        self._more |= {"EQUAL", "STRING"}
        if self._take_if("EQUAL") is not None:
            default = self.expression()
            end = default.at
            self._more |= {"STRING"}
        text = self._take_if("STRING")
        if text is not None:
            end = text
            self._more = _NONE
        return n.Input(str(name.value), kind, default, "" if text is None else str(text.value), at=span(word, end))

    def _type(self) -> n.TypeName:
        """NAME ["[" type "]"] ["?"], or STRING ("|" STRING)* ["?"]"""
        first = last = self._take("NAME", "STRING")
        name: Any = first.value
        items: n.TypeName | None = None
        choices = [str(name)]
        if first.type == "STRING":
            name = "choice"
            while self._take_if("VBAR") is not None:
                last = self._take("STRING")
                choices.append(str(last.value))
            self._more = frozenset(["VBAR", "QMARK"])
        else:
            if name not in _TYPES:
                raise wrong_type(first, _TYPES)
            choices = []
            self._more = frozenset(["LSQB", "QMARK"])
            if self._take_if("LSQB") is not None:
                if name != "list":
                    raise problem(first, f"`{name}` has no items", "only a list has: list[string]")
                items = self._type()
                last = self._take_next("RSQB")
                self._more = frozenset(["QMARK"])
        optional = self._take_if("QMARK")
        if optional is not None:
            last = optional
            self._more = _NONE
        return n.TypeName(name, items, tuple(choices), optional is not None, at=span(first, last))

    # -- statements ---------------------------------------------------------------------------------------------

    def statement(self) -> n.Statement:
        """expression ":=" value, expression "=" value, value, or one that begins with a word of its own"""
        token = self._tokens[self._at]
        action = self._actions.get(token.type)
        if action is not None:
            self._at += 1
            self._more = _NONE
            return action(token)
        block = self._blocks.get(token.type)
        if block is not None:
            self._at += 1
            made = block(token)
            return n.ExpressionStatement(made, at=made.at)
        target = self.expression()
        if self._take_if("BIND") is not None:
            value = self._value()
            if type(target) is not n.Name:
                raise problem(target.at, "only a name can be bound with `:=`", "to change a part of a value write `=`")
            return n.Bind(target.name, value, at=span(target.at, value.at))
        if self._take_if("EQUAL") is not None:
            value = self._value()
            return n.Assign(_assignable(target), value, at=span(target.at, value.at))
        self._more = _SETS
        return n.ExpressionStatement(target, at=target.at)

    def _value(self) -> n.Value:
        """expression | do | if | for | collect | while | parallel | retry | try"""
        token = self._tokens[self._at]
        block = self._blocks.get(token.type)
        if block is not None:
            self._at += 1
            return block(token)
        if token.type not in VALUES:
            raise self._unexpected(_ANY_VALUE)
        return self.expression()

    def _print(self, word: Token) -> n.Print:
        """ "print" "(" arguments"""
        values = self._arguments(self._take("LPAR"))
        self._more = _NONE
        return n.Print(values, at=span(word, self._tokens[self._at - 1]))

    def _return(self, word: Token) -> n.Return:
        """ "return" [value]"""
        if self._tokens[self._at].type not in _ANY_VALUE:
            self._more = _ANY_VALUE
            return n.Return(at=span(word, word))
        value = self._value()
        return n.Return(value, at=span(word, value.at))

    def _fail(self, word: Token) -> n.Fail:
        """ "fail" expression"""
        message = self.expression()
        return n.Fail(message, at=span(word, message.at))

    def _break(self, word: Token) -> n.Break:
        return n.Break(at=span(word, word))

    def _continue(self, word: Token) -> n.Continue:
        return n.Continue(at=span(word, word))

    # -- blocks -------------------------------------------------------------------------------------------------

    def _block(self) -> n.Block:
        """BLOCK [statement (END statement)*] END_BLOCK"""
        opening = self._take_next("BLOCK")
        statements: list[n.Statement] = []
        while self._has_next(len(statements), _STATEMENTS, "END", "END_BLOCK"):
            statements.append(self.statement())
        self._more = _NONE
        return n.Block(tuple(statements), at=span(opening, self._tokens[self._at - 1]))

    def _option(self, type: str) -> Expression | None:
        """[WORD expression], after a part that could have gone on"""
        if self._take_if(type) is not None:
            return self.expression()
        self._more |= {type}
        return None

    def _do(self, word: Token) -> n.Do:
        """ "do" block"""
        self._more = _NONE
        body = self._block()
        return n.Do(body, at=span(word, body.at))

    def _if(self, word: Token) -> n.If:
        """ "if" expression block ("else" "if" expression block)* ["else" block]"""
        heads = [(word, self.expression(), self._block())]
        otherwise: n.Block | n.If | None = None
        while otherwise is None and self._take_if("ELSE") is not None:
            self._more = _NONE
            following = self._take_if("IF")
            if following is None:
                self._more = frozenset(["IF"])
                otherwise = self._block()
                continue
            if len(heads) > MAX_ELSE_IFS:
                raise problem(
                    following, f"an `if` has at most {MAX_ELSE_IFS} `else if`", "look the value up in an object"
                )
            heads.append((following, self.expression(), self._block()))
        self._more = _ELSE if otherwise is None else _NONE
        end = (heads[-1][2] if otherwise is None else otherwise).at
        for head, condition, then in reversed(heads):
            otherwise = n.If(condition, then, otherwise, at=span(head, end))
        assert isinstance(otherwise, n.If)
        return otherwise

    def _names(self) -> tuple[str, ...]:
        """NAME ["," NAME]"""
        first = str(self._take("NAME").value)
        if self._take("COMMA", "IN").type == "IN":
            return (first,)
        second = str(self._take("NAME").value)
        self._take("IN")
        return (first, second)

    def _for(self, word: Token) -> n.For:
        """ "for" names "in" expression ["where" expression] block"""
        names, values, where, body = self._names(), self.expression(), self._option("WHERE"), self._block()
        return n.For(names, values, body, where, at=span(word, body.at))

    def _collect(self, word: Token) -> n.Collect:
        """ "collect" ["for"] names "in" expression ["where" expression] block"""
        if self._tokens[self._at].type != "NAME":
            self._take("FOR", "NAME")
        names, values, where, body = self._names(), self.expression(), self._option("WHERE"), self._block()
        return n.Collect(names, values, body, where, at=span(word, body.at))

    def _while(self, word: Token) -> n.While:
        """ "while" expression ["limit" expression] block"""
        condition, limit, body = self.expression(), self._option("LIMIT"), self._block()
        return n.While(condition, body, limit, at=span(word, body.at))

    def _parallel(self, word: Token) -> n.Parallel | n.ParallelFor:
        """ "parallel" ["limit" expression] BRANCHES [branch (END branch)*] END_BLOCK, or
        "parallel" "for" names "in" expression ["where" expression] ["limit" expression] block"""
        self._more = _NONE
        if self._take_if("FOR") is not None:
            names, values = self._names(), self.expression()
            where, limit, body = self._option("WHERE"), self._option("LIMIT"), self._block()
            return n.ParallelFor(names, values, body, where, limit, at=span(word, body.at))
        self._more = frozenset(["FOR"])
        limit = self._option("LIMIT")
        self._take_next("BRANCHES")
        branches: list[n.Branch] = []
        while self._has_next(len(branches), _ANY_VALUE, "END", "END_BLOCK"):
            branches.append(self._branch())
        self._more = _NONE
        return n.Parallel(tuple(branches), limit, at=span(word, self._tokens[self._at - 1]))

    def _branch(self) -> n.Branch:
        """[NAME (":" | ":=")] value"""
        begin = self._at
        name = self._tokens[begin]
        if name.type == "NAME" and self._tokens[begin + 1].type in ("COLON", "BIND"):
            self._at += 2
            value = self._value()
            binds = self._tokens[begin + 1].type == "BIND"
            return n.Branch(str(name.value), value, binds, at=span(name, value.at))
        value = self._value()
        if name.type == "NAME" and self._at == begin + 1 and self._tokens[self._at].type not in ("END", "END_BLOCK"):
            raise self._unexpected(_AFTER_NAME)
        return n.Branch(None, value, at=value.at)

    def _retry(self, word: Token) -> n.Retry:
        """ "retry" expression ["delay" expression] ["backoff" expression] block,
        "retry" expression amount [amount] block, or
        "retry" "(" expression "," expression ["," expression] ")" block"""
        called = self._called_retry(word) if self._tokens[self._at].type == "LPAR" else None
        if called is not None:
            return called
        attempts = self.expression()
        if self._tokens[self._at].type in ("NUMBER", "DURATION"):
            delay, backoff = self._amount(), None
            self._more = frozenset(["NUMBER", "DURATION"])
            if self._tokens[self._at].type in self._more:
                backoff = self._amount()
                self._more = _NONE
        else:
            self._more |= {"NUMBER", "DURATION"}
            delay = self._option("DELAY")
            backoff = self._option("BACKOFF")
        body = self._block()
        return n.Retry(attempts, body, delay, backoff, at=span(word, body.at))

    def _called_retry(self, word: Token) -> n.Retry | None:
        """Return `retry(3, 1s, 2) { }`; None, with nothing taken, where the parentheses are those of an expression."""
        begin = self._at
        self._at += 1
        given = [self.expression()]
        if self._take_next("COMMA", "RPAR").type == "RPAR":
            self._at = begin
            return None
        given.append(self.expression())
        if self._take_next("COMMA", "RPAR").type == "COMMA":
            given.append(self.expression())
            self._take_next("RPAR")
        self._more = _NONE
        body = self._block()
        return n.Retry(given[0], body, *given[1:], at=span(word, body.at))

    def _amount(self) -> n.Constant | n.Duration:
        token = self._take("NUMBER", "DURATION")
        return self._constant(token) if token.type == "NUMBER" else self._duration(token)

    def _try(self, word: Token) -> n.Try:
        """ "try" block "catch" [NAME] block"""
        self._more = _NONE
        body = self._block()
        self._take("CATCH")
        name = self._take_if("NAME")
        self._more = frozenset(["NAME"]) if name is None else _NONE
        handler = self._block()
        return n.Try(body, None if name is None else str(name.value), handler, at=span(word, handler.at))


def _assignable(target: Expression) -> n.Name | n.Member | n.Index:
    root = target
    while isinstance(root, n.Member | n.Index):
        if root.safe:
            raise problem(root.at, "a value cannot be assigned through `?`", "write it without the `?`")
        root = root.value
    if not isinstance(root, n.Name) or not isinstance(target, n.Name | n.Member | n.Index):
        raise problem(target.at, "a value can be assigned only to a name, `name.member` or `name[index]`")
    return target
