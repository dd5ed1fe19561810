"""What comes back from a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from toolexec.errors import ToolExecError, Violation
from toolexec.errors.outcome import Outcome
from toolexec.model.binding import Binding
from toolexec.model.content import ToolReply
from toolexec.model.json_value import JSONDict, JSONObject

OnError: TypeAlias = Literal["stop", "undo"]
"""What follows the failure that stops a chain or a workflow: nothing more, or what it has done is undone, the last
effect first."""


@dataclass(slots=True)
class Result:
    """The outcome of one call, a snapshot that is yours.

    `value` is JSON, and shares no dict or list with what the tool holds; it is there beside an error, too, when the
    tool ran and only broke its output schema. `error` is set when the tool was called and failed; `ok` says so.
    `tool_id` is the canonical ID, `duration` seconds. `binding` says where the tool ran. `reply` is the raw reply of a
    tool that answers in parts (an MCP tool, or a handler that returns a ToolReply), with every image, link and
    resource. `warnings` are breaches of the output schema where those do not count as a failure. `handle` is set when
    `value` is only the outline of a value that was too large: the whole is kept under it. `cached` is true when the
    tool was not called, as the answer was known from an earlier call. `attempts` counts how often it was called where
    that was done again after failures.

    >>> from toolexec import Exec
    >>> with Exec().sync as ex:
    ...     _ = ex.add(lambda a, b: a + b, "math:add")
    ...     result = ex.run_tool("math:add", {"a": 5, "b": 3})
    >>> result.ok, result.value, result.tool_id
    (True, 8, 'math:add')
    """

    tool_id: str
    value: Any = None
    error: ToolExecError | None = None
    duration: float = 0.0
    binding: Binding | None = None
    reply: ToolReply | None = None
    warnings: Sequence[Violation] = ()
    handle: str = ""
    cached: bool = False
    attempts: int = 1

    @property
    def ok(self) -> bool:
        """Whether the tool did what it was asked."""
        return self.error is None

    @property
    def outcome(self) -> Outcome:
        """What became of the call's work."""
        return Outcome.DONE if self.error is None else self.error.outcome

    @property
    def content(self) -> Sequence[JSONObject]:
        """The parts of the reply in MCP's spelling; empty for a tool that just returns a value."""
        return self.reply.content if self.reply is not None else ()

    def raise_for_error(self) -> Result:
        """Return the result itself, or its error raised."""
        if self.error is not None:
            raise self.error
        return self

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        """Return what a notebook shows: HTML, and the image of a reply that has just one."""
        from toolexec.run.html import result_bundle

        return result_bundle(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from toolexec.run.html import result_html

        return result_html(self)

    def to_dict(self) -> JSONDict:
        """Return the result as JSON-able data."""
        data: JSONDict = {"ok": self.ok, "toolId": self.tool_id, "value": self.value}
        data["durationMs"] = round(self.duration * 1000, 3)
        if self.handle:
            data["handle"] = self.handle
        if self.cached:
            data["cached"] = True
        if self.attempts != 1:
            data["attempts"] = self.attempts
        if self.error is not None:
            data["error"] = self.error.to_dict()
        if self.binding is not None:
            data["binding"] = self.binding.to_dict()
        other = [dict(part) for part in self.content if part.get("type") != "text"]
        if other:
            data["content"] = other
        if self.warnings:
            data["warnings"] = [{"path": v.path, "keyword": v.keyword, "message": v.message} for v in self.warnings]
        return data


@dataclass(slots=True)
class StepResult:
    """The outcome of one step of a chain: the arguments that really went in, and what came out.

    A value that breaks its tool's output schema is there beside the error. A step that was not run because an earlier
    one failed is `skipped`, without value and error. `attempts` counts the calls that were made.
    """

    index: int
    tool_id: str
    name: str = ""
    args: JSONObject = field(default_factory=JSONDict)
    value: Any = None
    error: ToolExecError | None = None
    duration: float = 0.0
    skipped: bool = False
    attempts: int = 0
    result: Result | None = None

    @property
    def ok(self) -> bool:
        """Whether the step ran and succeeded."""
        return self.error is None and not self.skipped

    def to_dict(self) -> JSONDict:
        """Return the step as JSON-able data."""
        data: JSONDict = {"index": self.index, "toolId": self.tool_id, "ok": self.ok}
        if self.name:
            data["name"] = self.name
        if self.skipped:
            return data | {"skipped": True}
        data |= {"args": dict(self.args), "value": self.value, "durationMs": round(self.duration * 1000, 3)}
        if self.attempts > 1:
            data["attempts"] = self.attempts
        if self.error is not None:
            data["error"] = self.error.to_dict()
        return data


@dataclass(slots=True)
class UndoneStep:
    """What became of the effect of one step of a chain that failed, or of one call of a workflow.

    `index` is the number of the step or call, `tool_id` its tool, `undo_id` the tool that was called to undo it, with
    `args`, and `value` what it answered. `reason` says why the step is not undone, and is empty when it is; `error` is
    the failure of the tool that was called.
    """

    index: int
    tool_id: str
    undo_id: str = ""
    args: JSONObject = field(default_factory=JSONDict)
    value: Any = None
    error: ToolExecError | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether the step is undone."""
        return not self.reason

    def to_dict(self) -> JSONDict:
        """Return it as JSON-able data."""
        data: JSONDict = {"index": self.index, "toolId": self.tool_id, "ok": self.ok}
        if self.undo_id:
            data |= {"undoId": self.undo_id, "args": dict(self.args), "value": self.value}
        if self.reason:
            data["reason"] = self.reason
        if self.error is not None:
            data["error"] = self.error.to_dict()
        return data
