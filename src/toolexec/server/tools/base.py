"""What a tool of the server is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from toolexec.exec.facade import Exec
from toolexec.model.call import ProgressCallback
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import Origin
from toolexec.run.context import Cause
from toolexec.run.results import ResultStore
from toolexec.server.tools.schemas import brief

if TYPE_CHECKING:
    from toolexec.server.durable import DurableCall
    from toolexec.server.kept_results import KeptResults


@dataclass(slots=True, kw_only=True)
class MetaReply:
    """What a tool of the server answers.

    `value` fits its output schema and becomes the structured content; `text` is what a model reads in its place (empty:
    the value as JSON). `content` are parts in MCP's spelling that go along (images, links). `parts` take the place of
    both, in their order. `is_error` marks a failure that the model should read. With `structured` the structured
    content goes along however long it is, with `once` never: the text says all.
    """

    value: JSONObject
    text: str = ""
    content: list[JSONDict] = field(default_factory=list[JSONDict])
    parts: list[JSONDict] | None = None
    is_error: bool = False
    structured: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaCall:
    """One call of a tool of the server; `args` fit its input schema. `results` keeps what is too large for a reply;
    `on_progress` is None when the client did not ask for progress. `durable` is the durable run that the call is to be,
    if it is one: when that is resumed, `args` has only what the reply is made with. Calls with the same
    `idempotency_key` are one effect. `kept` has the results that other servers have kept, if it is not None."""

    ex: Exec
    args: JSONObject
    origin: Origin
    results: ResultStore
    on_progress: ProgressCallback | None = None
    durable: DurableCall | None = None
    idempotency_key: str = ""
    kept: KeptResults | None = None

    @property
    def run_id(self) -> str | None:
        """The ID of the durable run that is to begin; None for an ordinary one."""
        return self.durable.run_id if self.durable is not None else None


MetaHandler: TypeAlias = Callable[[MetaCall], Awaitable[MetaReply]]
"""Does the work, within `acting(call.origin)`. A ToolExecError that it raises becomes a reply with `error` in it."""

MetaDurable: TypeAlias = Callable[[Exec, JSONObject], JSONDict | None]
"""Returns those arguments of a call that its reply is made with, if the call can be a durable run; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaTool:
    """A tool of the server: what clients see of it, and what it does.

    Its replies fit `output_schema`. `durable` says which calls can be durable runs, `cause` what the tokens of its
    replies count for.
    """

    name: str
    title: str = ""
    description: str
    input_schema: JSONObject
    output_schema: JSONObject
    handle: MetaHandler
    durable: MetaDurable | None = None
    cause: Cause = "results"
    read_only: bool = True
    destructive: bool = False
    idempotent: bool = True
    open_world: bool = True

    def to_mcp(self, *, whole: bool = False) -> JSONDict:
        """Return the tool in MCP's spelling, as `tools/list` shows it; *whole* with the arguments that models hardly
        need, too.

        A model pays for it in every conversation, so it is short: no output schema, and of the hints those that differ
        from what MCP takes a tool for that has none.
        """
        hints: JSONDict = {"title": self.title} if self.title else {}
        if self.read_only:
            hints["readOnlyHint"] = True
        else:
            hints |= {} if self.destructive else {"destructiveHint": False}
            hints |= {"idempotentHint": True} if self.idempotent else {}
        hints |= {} if self.open_world else {"openWorldHint": False}
        schema = brief(self.input_schema, whole=whole)
        data: JSONDict = {"name": self.name, "description": self.description, "inputSchema": schema}
        return {**data, "annotations": hints} if hints else data
