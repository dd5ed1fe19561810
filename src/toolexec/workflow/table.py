"""Parse tokens by the table that lark has made of the grammar.

To follow the table is most of the work of a parse, and this loop takes half the time of lark's own. Lark is asked again
only where a token is unexpected: it knows which ones could stand there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any, Final

from lark import Lark
from lark.parse_tree_builder import ExpandSingleChild
from lark.parsers.lalr_analysis import Shift

from toolexec.workflow.lexer import Scan
from toolexec.workflow.mistakes import MistakeError
from toolexec.workflow.tokens import Token

__all__ = ["END", "Table", "UnexpectedTokenError"]

END: Final = Token("$END", None, 0, 0, 0, 0)
"""What follows the last token."""


class UnexpectedTokenError(Exception):
    """A token that cannot stand where it is."""


class Table:
    """For each state, what to do with a token: go to another state (a number), or first apply a rule: the number of its
    parts, what makes a value of them (None where its one part is the value), and its name, which leads to a state."""

    def __init__(self, lark: Lark) -> None:
        conf: Any = lark.parse_interactive(Scan("")).parser_state.parse_conf  # pyright: ignore[reportArgumentType]
        self._start: int = conf.start_state
        self._end: int = conf.end_state
        rules = {rule: _rule(rule, make) for rule, make in conf.callbacks.items()}
        self._states: dict[int, dict[str, Any]] = {
            state: {str(name): arg if action is Shift else rules[arg] for name, (action, arg) in actions.items()}
            for state, actions in conf.states.items()
        }

    def parse(self, tokens: Iterable[Token], last: Token | MistakeError) -> Any:
        """Return the value of the whole.

        Raises UnexpectedTokenError for a token that cannot stand where it is, and *last* if that is an error.
        """
        table = self._states
        states, values = [self._start], list[Any]()
        for token in chain(tokens, [last]):
            if not isinstance(token, Token):
                raise token
            kind = token.type
            action = table[states[-1]].get(kind)
            while type(action) is tuple:
                size, make, name = action
                if size == 1:
                    if make is not None:
                        values[-1] = make([values[-1]])
                    del states[-1]
                elif size:
                    values[-size:] = [make(values[-size:])]
                    del states[-size:]
                else:
                    values.append(make([]))
                state = table[states[-1]][name]
                states.append(state)
                if state == self._end and token is END:
                    return values[-1]
                action = table[state].get(kind)
            if action is None:
                raise UnexpectedTokenError
            states.append(action)
            values.append(token)
        raise AssertionError("the end is the end of a workflow, or unexpected")


def _rule(rule: Any, make: Any) -> tuple[int, Any, str]:
    size = len(rule.expansion)
    is_itself = size == 1 and isinstance(make, ExpandSingleChild)
    return size, None if is_itself else make, str(rule.origin.name)
