"""What a conversion could not keep, as warnings in a stable order."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from toolexec.adapter.features import SchemaFeature

LossAction: TypeAlias = Literal["dropped", "described", "loosened", "rewritten"]
"""`dropped`: it is gone. `described`: it is gone as a rule, and said in words. `loosened`: what stands in its place
means less, or somewhat else. `rewritten`: what stands in its place means the same."""

_MAX_WARNINGS: Final = 500
_ORDER: Final = {feature.value: number for number, feature in enumerate(SchemaFeature)}


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWarning:
    """Something that one form has and another cannot hold.

    `feature` is a keyword of JSON Schema or a field of the tool. `path` is a JSON pointer with its root in front:
    `input:/properties/x` in the input schema, `output:` in the output schema, `tool:/title` in the tool itself.
    `note` says what was done, if that is not plain from `action`; `tool_id` names the tool, if it is known.
    """

    feature: str
    path: str
    action: LossAction
    from_adapter: str
    to_adapter: str
    note: str = ""
    tool_id: str = ""

    def __str__(self) -> str:
        note = f": {self.note}" if self.note else ""
        tool = f"{self.tool_id} " if self.tool_id else ""
        return f"{tool}{self.path} {self.feature} {self.action} ({self.from_adapter} → {self.to_adapter}){note}"

    def to_dict(self) -> dict[str, str]:
        """Return the warning as JSON-able data."""
        data = {"feature": self.feature, "path": self.path, "action": self.action, "from": self.from_adapter}
        data["to"] = self.to_adapter
        data |= {"note": self.note} if self.note else {}
        return {"tool": self.tool_id, **data} if self.tool_id else data


@dataclass(slots=True)
class _Found:
    order: tuple[int, int, str]
    warning: LossWarning


class Losses:
    """Collects the warnings of one conversion. At most 500 are kept; one more says how many there were."""

    def __init__(self, source: str, target: str, tool_id: str = "") -> None:
        self.source = source
        self.target = target
        self.tool_id = tool_id
        self._found: list[_Found] = []
        self._left_out = 0
        self._root = "tool"
        self._order: dict[str, int] = {}

    @contextmanager
    def root(self, name: str) -> Generator[None]:
        """Let the paths of what is added within begin with *name*."""
        before, self._root = self._root, name
        try:
            yield
        finally:
            self._root = before

    def visit(self, path: str) -> None:
        """Say that *path* is looked at now: warnings come in the order of the first looks."""
        if len(self._order) < _MAX_WARNINGS:
            self._order.setdefault(f"{self._root}:{path}", len(self._order))

    def add(self, feature: str, path: str = "", action: LossAction = "dropped", note: str = "") -> None:
        """Note a loss at *path*; the same one twice counts once."""
        where = f"{self._root}:{path}"
        warning = LossWarning(
            feature=str(feature)[:100],
            path=where[:1000],
            action=action,
            from_adapter=self.source,
            to_adapter=self.target,
            note=note[:300],
            tool_id=self.tool_id,
        )
        if any(known.warning == warning for known in self._found[-20:]):
            return
        if len(self._found) >= _MAX_WARNINGS:
            self._left_out += 1
            return
        visited = self._order.setdefault(where, len(self._order))
        self._found.append(_Found((visited, _ORDER.get(feature, len(_ORDER)), feature), warning))

    def mark(self) -> int:
        """Return a place to go back to with `back_to`."""
        return len(self._found)

    def back_to(self, mark: int) -> None:
        """Forget what was added since *mark*."""
        del self._found[mark:]

    def since(self, mark: int) -> list[LossWarning]:
        """Return what was added since *mark*, as it came."""
        return [found.warning for found in self._found[mark:]]

    def warnings(self) -> tuple[LossWarning, ...]:
        """Return all of them: those on the tool first, then the input schema from the outside in, then the output
        schema."""
        roots = {"tool": 0, "input": 1, "output": 2}
        ordered = sorted(self._found, key=lambda found: (roots.get(found.warning.path.split(":")[0], 3), found.order))
        told = [found.warning for found in ordered]
        if self._left_out:
            more = f"{self._left_out} more warnings are left out"
            told.append(replace(told[-1], feature="...", path="tool:", action="dropped", note=more))
        return tuple(told)
