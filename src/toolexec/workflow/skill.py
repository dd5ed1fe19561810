"""Skills: workflows that describe themselves, so that they can be tools."""

from __future__ import annotations

import base64
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from toolexec.errors import ConfigurationError, ToolExecError
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, shorten
from toolexec.model.settings import checked
from toolexec.model.tool import DRY_RUN, Tool, ToolAnnotations
from toolexec.run.types import OnError
from toolexec.run.undo import UNDO
from toolexec.workflow.inputs import NotLiteralError, input_schema, literal_value
from toolexec.workflow.nodes import Bind, Constant, ToolRun, Workflow, walk
from toolexec.workflow.parser import parse

__all__ = ["NAMESPACE", "RecordedCall", "Skill", "SkillHeader", "SkillTest", "skill_tests"]

NAMESPACE: Final = "skill"
"""The namespace of skills: one with the name `triage` is the tool `skill:triage`."""
_TEST: Final = re.compile(r"(?:#|//)\s*test:\s*(.*)")
_PARTS: Final = ("inputs", "calls", "returns", "error")
_TOML_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)")


@checked("the front matter of a skill")
@dataclass(frozen=True, slots=True, kw_only=True)
class SkillHeader:
    """What a skill's front matter says.

    `name` and `description` are required. `output_schema` is a JSON Schema of its value. `timeout` (seconds),
    `max_tool_calls` and `max_steps` bound each run, and only ever lower what the operator and the caller allow.
    `allowed_tools` are the IDs or patterns that it may call; without them, the tools that it names. With `on_error`
    "undo", what a run has done is undone when it fails. `undo` and `dry_run` name the tools that undo a whole run and
    say what one would do, as the `meta` of other tools does. The hints (`read_only`, `idempotent`, `destructive`,
    `open_world`) default to what follows from the tools that it names.
    """

    name: str
    description: str
    title: str = ""
    version: str = ""
    tags: Sequence[str] = ()
    output_schema: JSONObject | None = None
    timeout: float | None = None
    max_tool_calls: int = 0
    max_steps: int = 0
    allowed_tools: Sequence[str] | None = None
    on_error: OnError = "stop"
    undo: str | JSONObject = ""
    dry_run: str = ""
    read_only: bool | None = None
    idempotent: bool | None = None
    destructive: bool | None = None
    open_world: bool | None = None

    def __post_init__(self) -> None:
        for name in ("timeout", "max_tool_calls", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigurationError(f"{name} of a skill must be 0 or more, not {value!r}")


@checked("a recorded call")
@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """A call of a test: the tool, its arguments (None: any), and what it gave: a `result` or an `error`, which may be
    `retryable`."""

    tool: str
    args: JSONObject | None = None
    result: JSONValue = None
    error: str = ""
    retryable: bool = False


@checked("a test")
@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTest:
    """A `# test:` block: the inputs, the recorded calls, and what must come of it: a value or an error.

    The comment lines below it bind what it is made of: `inputs := {...}`, `calls := [{tool: ..., result: ...}]`,
    `returns := ...` or `error := "a part of the message"`. `line` is where the block begins.
    """

    name: str
    line: int
    inputs: JSONObject = field(default_factory=JSONDict)
    calls: tuple[RecordedCall, ...] = ()
    returns: JSONValue = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A workflow with what makes it a tool.

    >>> skill = Skill.parse('+++\\nname = "twice"\\ndescription = "Doubles"\\n+++\\ninput n: integer\\nreturn n * 2')
    >>> skill.id, list(skill.tool().input_schema.to_json()["properties"])
    ('skill:twice', ['n'])
    """

    source: str
    workflow: Workflow
    header: SkillHeader
    tests: tuple[SkillTest, ...] = ()

    @classmethod
    def parse(cls, source: str) -> Skill:
        """Read a skill.

        Raises WorkflowSyntaxError for the workflow and its tests, ConfigurationError for a front matter that is
        missing, is not TOML, or has unknown keys or invalid values.
        """
        workflow = parse(source)
        return cls(source=source, workflow=workflow, header=_header(workflow), tests=skill_tests(workflow))

    def _repr_html_(self) -> str:
        """Return what a notebook shows; in an image, nothing of the workflow can run or change the page."""
        from toolexec.model.html import card, text
        from toolexec.workflow.graph import graph_of
        from toolexec.workflow.graph_svg import to_svg

        data = base64.b64encode(to_svg(graph_of(self.workflow, self.source)).encode()).decode()
        drawn = f'<img src="data:image/svg+xml;base64,{data}" style="max-width:100%" alt="workflow">'
        return card(f"<code>{text(self.id)}</code> {text(self.header.description)}", drawn)

    @property
    def id(self) -> str:
        """The ID of its tool."""
        version = f":{self.header.version}" if self.header.version else ""
        return f"{NAMESPACE}:{self.header.name}{version}"

    def tools(self) -> list[str]:
        """Return the IDs that it calls by name, each once, in the order of the source."""
        calls = (node.tool for node in walk(self.workflow) if isinstance(node, ToolRun))
        return list(dict.fromkeys(str(tool.value) for tool in calls if isinstance(tool, Constant)))

    @property
    def calls_others(self) -> bool:
        """Whether it also computes the ID of a tool that it calls."""
        return any(isinstance(node, ToolRun) and not isinstance(node.tool, Constant) for node in walk(self.workflow))

    @property
    def allowed_tools(self) -> tuple[str, ...]:
        """The tools that it may call: those of its front matter, else those that it names."""
        listed = self.header.allowed_tools
        return tuple(self.tools() if listed is None else listed)

    def annotations(self, known: ToolAnnotations) -> ToolAnnotations:
        """Return its hints: those of the front matter, and the *known* ones where that says nothing."""
        header = self.header
        return ToolAnnotations(
            title=header.title,
            read_only=known.read_only if header.read_only is None else header.read_only,
            idempotent=known.idempotent if header.idempotent is None else header.idempotent,
            destructive=known.destructive if header.destructive is None else header.destructive,
            open_world=known.open_world if header.open_world is None else header.open_world,
        )

    def tool(self, annotations: ToolAnnotations | None = None) -> Tool:
        """Return its definition; raises InvalidToolError and InvalidSchemaError.

        *annotations* hold where the front matter says nothing.
        """
        header = self.header
        return Tool(
            name=header.name,
            namespace=NAMESPACE,
            version=header.version,
            title=header.title,
            description=header.description,
            input_schema=input_schema(self.workflow.inputs),
            output_schema=header.output_schema,
            tags=("skill", *header.tags),
            annotations=self.annotations(annotations or ToolAnnotations()),
            meta={key: name for key, name in ((UNDO, header.undo), (DRY_RUN, header.dry_run)) if name},
        )


def _header(workflow: Workflow) -> SkillHeader:
    front = workflow.front_matter
    if front is None:
        raise ConfigurationError(
            "a skill begins with its front matter, TOML between two lines +++, with at least name and description"
        )
    try:
        data = tomllib.loads(front.text + "\n")
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = front.at.line + (int(place[1]) if place else 0)
        raise ConfigurationError(
            f"line {line}: the front matter is not TOML: {_TOML_PLACE.sub('', str(error)).strip()}",
            details={"line": line},
        ) from None
    missing = [name for name in ("name", "description") if not data.get(name)]
    if missing:
        raise ConfigurationError(
            f"the front matter of a skill needs {' and '.join(missing)}", details={"line": front.at.line}
        )
    return SkillHeader(**data)


def skill_tests(workflow: Workflow) -> tuple[SkillTest, ...]:
    """Return the tests in the comments of a workflow; raises ConfigurationError and WorkflowSyntaxError for a
    wrong one."""
    return tuple(_tests(workflow))


def _tests(workflow: Workflow) -> Iterator[SkillTest]:
    """Yield a test for each comment line `# test: name`, made of the comment lines right below it."""
    lines = {at.line: (at, text) for at, text in workflow.comments if at.line == at.end_line}
    for number, (_, text) in sorted(lines.items()):
        begun = _TEST.fullmatch(text)
        if begun is None:
            continue
        block: list[str] = []
        while (below := lines.get(number + 1 + len(block))) is not None and not _TEST.fullmatch(below[1]):
            block.append(below[1].lstrip("#/"))
        yield _test(begun[1].strip() or f"line {number}", number, block)


def _test(name: str, line: int, block: Sequence[str]) -> SkillTest:
    """Raises ConfigurationError that names the test."""
    try:
        data = _bindings("\n" * line + "\n".join(block))
        calls = tuple(_call(each) for each in data.pop("calls", ()))
        return SkillTest(name=name, line=line, calls=calls, **data)
    except (ToolExecError, NotLiteralError) as error:
        raise ConfigurationError(
            f"line {line}: the test {shorten(name)!r} cannot be read: {error}", details={"line": line}
        ) from error


def _bindings(text: str) -> JSONDict:
    """Return the names that *text* binds with their values, which must be literals."""
    data: JSONDict = {}
    for statement in parse(text).statements:
        if not isinstance(statement, Bind) or statement.name not in _PARTS:
            parts = ", ".join(f"{part} := ..." for part in _PARTS)
            raise ConfigurationError(f"line {statement.at.line}: a test has only {parts}")
        data[statement.name] = literal_value(statement.value)
    return data


def _call(data: JSONObject) -> RecordedCall:
    return RecordedCall(**data)
