"""What a function of the standard library is: its signature, what it does, an example."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from toolexec.run.large import Budget, is_small
from toolexec.workflow.values import OperationError, Value, described, whole

_SIGNATURE: Final = re.compile(r"(?P<name>\w+)\((?P<parameters>.*)\) -> (?P<returns>.+)")
_TYPES: Final[dict[str, frozenset[type]]] = {
    "any": frozenset({type(None), bool, int, float, str, list, dict}),
    "null": frozenset({type(None)}),
    "boolean": frozenset({bool}),
    "integer": frozenset({int}),
    "number": frozenset({int, float}),
    "string": frozenset({str}),
    "list": frozenset({list}),
    "object": frozenset({dict}),
}
_LONG: Final = 20_000
_LONG_STRING: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Context:
    """What a function may know beside its arguments: the Unix time at which the run began, and its budget."""

    now: float = 0.0
    budget: Budget | None = None

    def spend(self, steps: int = 1) -> None:
        """Count work on a large value; raises BudgetExceededError."""
        if self.budget is not None:
            self.budget.spend(steps)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its name, its type (`string`, or several: `list | object`), and how often it is given."""

    name: str
    type: str
    optional: bool = False
    variadic: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """The types that the argument may have."""
        return tuple(self.type.split(" | "))

    def __str__(self) -> str:
        return f"{'...' if self.variadic else ''}{self.name}{'?' if self.optional else ''}: {self.type}"


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the standard library. `example` is an expression of the language, and `gives` its value.

    `deep` functions look at all that is in their arguments, others at their outermost level only.
    """

    name: str
    parameters: tuple[Parameter, ...]
    returns: str
    doc: str
    group: str
    example: str
    gives: Value
    run: Callable[..., Value]
    deep: bool
    takes_context: bool
    accepted: tuple[frozenset[type], ...]

    @property
    def signature(self) -> str:
        """The function as one writes it down, `sort(values: list, key?: string) -> list`."""
        return f"{self.name}({', '.join(map(str, self.parameters))}) -> {self.returns}"

    @property
    def least(self) -> int:
        """How many arguments it takes at least."""
        return sum(not parameter.optional and not parameter.variadic for parameter in self.parameters)

    @property
    def most(self) -> int | None:
        """How many arguments it takes at most; None for any number."""
        return None if self.parameters and self.parameters[-1].variadic else len(self.parameters)

    def is_long(self, arguments: Sequence[Value]) -> bool:
        """Return whether the call may take more than some milliseconds, so that it is not for the event loop."""
        for argument in arguments:
            kind = type(argument)
            if kind is str:
                if len(argument) > _LONG_STRING:
                    return True
            elif (kind is list or kind is dict) and (
                len(argument) > _LONG or (self.deep and argument and not is_small(argument))
            ):
                return True
        return False

    def call(self, arguments: list[Value], context: Context) -> Value:
        """Return its value; raises OperationError, and BudgetExceededError."""
        if len(arguments) < self.least or (self.most is not None and len(arguments) > self.most):
            raise OperationError(f"{self.signature} takes {self._count()}, not {len(arguments)}", "arguments")
        accepted = self.accepted
        last = len(accepted) - 1
        for place, argument in enumerate(arguments):
            if type(argument) not in accepted[min(place, last)]:
                arguments[place] = self._converted(argument, min(place, last))
        try:
            return self.run(context, *arguments) if self.takes_context else self.run(*arguments)
        except RecursionError:
            raise OperationError(f"{self.name}: the value is nested too deep", "limit") from None

    def _converted(self, argument: Value, place: int) -> Value:
        parameter = self.parameters[place]
        integer = whole(argument) if "integer" in parameter.types else None
        if integer is not None:
            return integer
        if argument is None and parameter.optional:
            return None
        wanted = " or ".join(parameter.types)
        raise OperationError(f"{self.signature}: {parameter.name} must be {wanted}, not {described(argument)}")

    def _count(self) -> str:
        if self.most is None:
            return f"at least {self.least} argument{'s' * (self.least != 1)}"
        some = f"{self.least}" if self.most == self.least else f"{self.least} to {self.most}"
        return f"{some} argument{'s' * (self.most != 1)}"


class Library:
    """Functions of one subject, as they are declared."""

    def __init__(self, group: str) -> None:
        self.group: str = group
        self.functions: list[Function] = []

    def function(
        self, signature: str, example: str, gives: Value, *, deep: bool = False
    ) -> Callable[[Callable[..., Value]], Callable[..., Value]]:
        """Declare a Python function as one of the library; a first parameter called `context` gets the Context."""

        def declare(run: Callable[..., Value]) -> Callable[..., Value]:
            found = _SIGNATURE.fullmatch(signature)
            assert found is not None, signature
            parameters = tuple(map(_parameter, filter(None, found["parameters"].split(", "))))
            context = next(iter(inspect.signature(run).parameters), "") == "context"
            self.functions.append(
                Function(
                    found["name"],
                    parameters,
                    found["returns"],
                    inspect.getdoc(run) or "",
                    self.group,
                    example,
                    gives,
                    run,
                    deep,
                    context,
                    tuple(_accepted(parameter) for parameter in parameters),
                )
            )
            return run

        return declare


def _parameter(text: str) -> Parameter:
    name, _, kind = text.partition(": ")
    bare = name.removeprefix("...")
    return Parameter(bare.removesuffix("?"), kind, bare.endswith("?"), name != bare)


def _accepted(parameter: Parameter) -> frozenset[type]:
    return frozenset[type]().union(*(_TYPES[name] for name in parameter.types))
