"""Turn the steps of a chain into a workflow that does the same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, Protocol, cast

from toolexec.errors import InvalidChainError
from toolexec.model.json_value import JSONObject, shorten
from toolexec.workflow.written import Names, path_text, seconds_text, string_text, value_text

_NUMBERED: Final = re.compile(r"steps(?:\.([0-9]{1,9})|\[([0-9]{1,9})\])(|[.\[].*)", re.DOTALL)
_NAMED: Final = re.compile(r"(?:steps\.)?([A-Za-z_][A-Za-z0-9_-]*)(|[.\[].*)", re.DOTALL)
_PLAIN_PATH: Final = re.compile(r"(?:\.[A-Za-z_][A-Za-z0-9_]*|\[-?[0-9]{1,9}\])*")
_STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)|\[(-?[0-9]{1,9})\]")


class ChainStepLike(Protocol):
    """A step of a chain, as `toolexec.Step` is."""

    @property
    def tool_id(self) -> str:
        """Return the ID of the tool."""
        ...

    @property
    def args(self) -> JSONObject | None:
        """Return the arguments, which may have references."""
        ...

    @property
    def use_previous(self) -> bool:
        """Return whether the value of the step before goes in."""
        ...

    @property
    def stop_on_error(self) -> bool:
        """Return whether a failure ends the chain."""
        ...

    @property
    def name(self) -> str:
        """Return the name that references call it by."""
        ...

    @property
    def timeout(self) -> float | None:
        """Return the seconds for each attempt."""
        ...

    @property
    def retries(self) -> int:
        """Return how many more attempts there are."""
        ...

    @property
    def retry_pause(self) -> float:
        """Return the seconds before the second attempt."""
        ...


def from_chain(steps: Sequence[ChainStepLike], inputs: Sequence[str] = ()) -> str:
    """Return the workflow of a chain: references become names, retries `retry`, and going on after a failure `try`.

    References may also be to *inputs* of the workflow, which it must be given: `{"$ref": "inputs.days"}`. A path of a
    reference that is more than names and numbers becomes `jmespath(...)`. Raises InvalidChainError for a reference to
    no earlier step, and to no input.
    """
    return _Chain(steps, inputs).write()


class _Chain:
    """The steps, each with the name that its value gets."""

    def __init__(self, steps: Sequence[ChainStepLike], inputs: Sequence[str]) -> None:
        names = Names()
        self._inputs = inputs
        for each in inputs:
            names.reserve(each)
        self._previous = names.take("previous")
        self._steps = steps
        self._names = [
            names.take(step.name or step.tool_id.split(":")[1 if ":" in step.tool_id else 0]) for step in steps
        ]
        self._numbers = {step.name: number for number, step in enumerate(steps) if step.name}
        self._used: set[int] = set()
        self._keeps_previous = any(step.use_previous and not before.stop_on_error for before, step in pairwise(steps))
        """Whether the last value that there was must be kept: after a failure it is not that of the step before."""

    def write(self) -> str:
        calls = [self._call(number, step) for number, step in enumerate(self._steps)]
        if not self._keeps_previous:
            self._used.add(len(calls) - 1)
        lines = [f"{self._previous} := null"] if self._keeps_previous else []
        for number, (step, call) in enumerate(zip(self._steps, calls, strict=True)):
            name = self._names[number]
            is_last = number == len(calls) - 1
            binding = f"{name} := " if number in self._used and not is_last else ""
            if self._keeps_previous and not is_last:
                lines += self._kept(step, binding, name, call)
            else:
                value = call if step.stop_on_error else f"try {{\n  {call}\n}} catch {{\n  null\n}}"
                lines.append(f"{binding or ('return ' if is_last else '')}{value}")
        return "\n".join(lines) + "\n"

    def _kept(self, step: ChainStepLike, binding: str, name: str, call: str) -> list[str]:
        if step.stop_on_error:
            return [f"{name} := {call}", f"{self._previous} = {name}"]
        head = f"{binding}try {{"
        return [head, f"  {self._previous} = {call}", f"  {self._previous}", "} catch {", "  null", "}"]

    def _call(self, number: int, step: ChainStepLike) -> str:
        timeout = f" timeout {seconds_text(step.timeout)}" if step.timeout is not None else ""
        arguments = self._arguments(number, step)
        call = f"run({string_text(step.tool_id)}{f', {arguments}' if arguments else ''}){timeout}"
        if not step.retries:
            return call
        return f"retry {step.retries + 1} delay {seconds_text(step.retry_pause)} {{ {call} }}"

    def _arguments(self, number: int, step: ChainStepLike) -> str:
        def replace(value: object, name: str) -> str | None:
            return self._reference(value, number)

        given = "" if step.args is None else value_text(dict(step.args), replace)
        if not step.use_previous:
            return "" if given == "{}" else given
        if step.args is not None and "previous" in step.args:
            return given
        if step.args is None and not number:
            return "{previous: null}"
        previous = self._previous_of(number)
        if step.args is None:
            return f'type({previous}) == "object" ? {previous} : {{previous: {previous}}}'
        return f"{{previous: {previous}, {given[1:]}" if step.args else f"{{previous: {previous}}}"

    def _previous_of(self, number: int) -> str:
        if not number:
            return "null"
        if self._keeps_previous:
            return self._previous
        self._used.add(number - 1)
        return self._names[number - 1]

    def _reference(self, value: object, number: int) -> str | None:
        """Return what a reference of step *number* becomes; None for what is not one."""
        if not isinstance(value, Mapping) or len(cast("Mapping[str, object]", value)) != 1:
            return None
        members = cast("Mapping[str, object]", value)
        if "$literal" in members:
            return value_text(members["$literal"])
        target = members.get("$ref")
        if not isinstance(target, str) or target.startswith("#") or "://" in target:
            return None
        name, path = self._input_of(target, number) if self._is_input(target) else self._value_of(target, number)
        if _PLAIN_PATH.fullmatch(path):
            steps = [member or int(index) for member, index in _STEP.findall(path)]
            return path_text(name, steps, safe=True)
        return f"jmespath({name}, {string_text(path.removeprefix('.'))})"

    def _is_input(self, target: str) -> bool:
        return bool(self._inputs) and "inputs" not in self._numbers and re.match(r"inputs(?:\.|$)", target) is not None

    def _input_of(self, target: str, number: int) -> tuple[str, str]:
        found = _NAMED.fullmatch(target.removeprefix("inputs").removeprefix("."))
        if found is None or found[1] not in self._inputs:
            known = f"; there are {', '.join(self._inputs)}"
            raise InvalidChainError(f"step {number}: {shorten(repr(target))} refers to no input{known}")
        return found[1], found[2]

    def _value_of(self, target: str, number: int) -> tuple[str, str]:
        step, path = self._step_of(target, number)
        self._used.add(step)
        return self._names[step], path

    def _step_of(self, target: str, number: int) -> tuple[int, str]:
        numbered = _NUMBERED.fullmatch(target)
        if numbered:
            step, path = int(numbered[1] or numbered[2]), numbered[3]
        else:
            named = _NAMED.fullmatch(target)
            step, path = (self._numbers.get(named[1], number), named[2]) if named else (number, "")
        if step >= number:
            raise InvalidChainError(f"step {number}: {shorten(repr(target))} refers to no earlier step")
        return step, path
