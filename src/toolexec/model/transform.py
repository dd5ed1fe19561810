"""Tools as they are shown: other names, arguments, descriptions, hints and examples than those of their providers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias, TypedDict, cast

from toolexec.errors import ConfigurationError, InputValidationError, Violation
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, pointer
from toolexec.model.schema import Schema
from toolexec.model.settings import check_settings
from toolexec.model.tool import TRANSFORMED, Tool

KeepExamples: TypeAlias = Callable[[str, Sequence[JSONObject]], None]
"""Keeps examples, each with the parts that `ToolTransform` says, as those of the tool with this ID."""

_OF_THE_WHOLE: Final = frozenset(
    (
        *("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"),
        *("patternProperties", "propertyNames", "unevaluatedProperties", "minProperties", "maxProperties", "examples"),
    )
)
"""Keywords that speak of several arguments by their own names. Only the tool's own schema has them: it is checked when
the call is made."""


class _ArgumentSettings(TypedDict, total=False):
    name: str
    description: str
    hide: bool
    value: JSONValue
    default: JSONValue


class _AnnotationSettings(TypedDict, total=False):
    read_only: bool
    idempotent: bool
    destructive: bool
    open_world: bool


class _ExampleSettings(TypedDict, total=False):
    title: str
    description: str
    args: JSONObject
    result_hint: str


class _TransformSettings(TypedDict, total=False):
    name: str
    title: str
    description: str
    hide: bool
    arguments: Mapping[str, JSONObject]
    annotations: Mapping[str, bool]
    examples: Sequence[JSONObject]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTransform:
    """How a tool is shown: its `name`, `title` and `description` where they are given, and for some of its arguments,
    by their own names, a mapping with any of:

    - `name`, by which callers know it; `description` in place of its own;
    - `default`: what is sent where a caller gives nothing, so that it need not be given;
    - `value`: what is always sent; callers do not see the argument;
    - `hide`: true for an argument that callers do not see, and that is not sent.

    `annotations` are hints in place of the tool's own, each by its name: `read_only`, `idempotent`, `destructive`,
    `open_world`. `examples` are in place of the tool's own, each with any of `title`, `description`, `args` as callers
    give them, and `result_hint`. With `hide`, the tool is not there at all.
    """

    name: str = ""
    title: str = ""
    description: str = ""
    hide: bool = False
    arguments: Mapping[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    annotations: Mapping[str, bool] = field(default_factory=dict[str, bool])
    examples: Sequence[JSONObject] = ()

    def __post_init__(self) -> None:
        others = (getattr(self, each.name) for each in fields(self) if each.name != "hide")
        if self.hide and any(others):
            raise ConfigurationError("transform: it is hidden, so there is nothing else to say of it")
        for name, each in self.arguments.items():
            where = f"transform: argument {name!r}"
            check_settings(where, _ArgumentSettings, each)
            if ("value" in each or each.get("hide")) and each.keys() & {"name", "description", "default"}:
                raise ConfigurationError(f"{where} is hidden, so it has no name, description or default")
        check_settings("transform: annotations", _AnnotationSettings, self.annotations)
        for number, example in enumerate(self.examples, 1):
            check_settings(f"transform: example {number}", _ExampleSettings, example)

    @classmethod
    def from_settings(cls, where: str, given: object) -> ToolTransform:
        """Read a transform, or the mapping that it is in a file. Raises ConfigurationError, which begins with
        *where*."""
        if isinstance(given, ToolTransform):
            return given
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"{where} must be a table, not a {type(given).__name__}")
        settings = cast("JSONObject", given)
        check_settings(where, _TransformSettings, settings)
        try:
            return cls(**settings)
        except ConfigurationError as error:
            raise ConfigurationError(f"{where}: {error.message.removeprefix('transform: ')}") from None


class ShownTool:
    """One tool as it is shown, `tool`, and how arguments for that become those of the `original`.

    Raises ConfigurationError for a transform that does not fit the tool.
    """

    def __init__(self, original: Tool, transform: ToolTransform) -> None:
        self.original = original
        self._of_caller: dict[str, str] = {}  # own names by those that callers use
        self._sent: JSONDict = {}
        self._defaults: JSONDict = {}
        schema = original.input_schema.to_json()
        properties = schema.get("properties", {})
        for name in transform.arguments:
            if name not in properties:
                hint = did_you_mean(name, sorted(properties))
                raise ConfigurationError(f"the transform of {original.id}: there is no argument {name!r}; {hint}")
        self._maps = bool(transform.arguments)
        self._own = frozenset(properties)
        changes: JSONDict = {
            "input_schema": self._schema(schema, properties, transform) if transform.arguments else schema
        }
        for part in ("name", "title", "description"):
            if getattr(transform, part):
                changes[part] = getattr(transform, part)
        if transform.annotations:
            changes["annotations"] = replace(original.annotations, **transform.annotations)
        text = json.dumps(original.to_mcp(), sort_keys=True)
        digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        self.tool = original.replace(**changes, meta={**original.meta, TRANSFORMED: digest}).check_schemas()
        self.examples: Sequence[JSONObject] = transform.examples
        for number, example in enumerate(self.examples, 1):
            try:
                self.arguments(example.get("args", {}))
            except InputValidationError as error:
                raise ConfigurationError(
                    f"the transform of {original.id}: example {number} does not fit: {error.message}"
                ) from error

    def _schema(self, schema: JSONDict, properties: JSONObject, transform: ToolTransform) -> JSONDict:
        """Return the schema that callers see, and note how their arguments are called."""
        required = [*schema.get("required", ())]
        shown: JSONDict = {}
        for name, own in properties.items():
            given = transform.arguments.get(name, {})
            if "value" in given:
                self._sent[name] = given["value"]
            elif given.get("hide"):
                if name in required:
                    message = f"{name!r} is required, so it cannot be hidden without a value"
                    raise ConfigurationError(f"the transform of {self.original.id}: {message}")
            else:
                public = given.get("name") or name
                if public in shown:
                    raise ConfigurationError(
                        f"the transform of {self.original.id}: two arguments are called {public!r}"
                    )
                shown[public] = _described(own, given)
                self._of_caller[public] = name
                if "default" in given:
                    self._defaults[name] = given["default"]
        names = {own: public for public, own in self._of_caller.items()}
        optional = self._defaults.keys() | self._sent.keys()
        kept = {key: value for key, value in schema.items() if key not in _OF_THE_WHOLE}
        together = {
            names[name]: [names[each] for each in needs if each in names and each not in optional]
            for name, needs in kept.pop("dependentRequired", {}).items()
            if name in names
        }
        needed = [names[name] for name in required if name in names and name not in optional]
        kept |= {"properties": shown, "required": needed}
        return {**kept, "dependentRequired": together} if together else kept

    def arguments(self, given: JSONObject) -> JSONDict:
        """Return the arguments that are sent for those that a caller gives. Raises InputValidationError, which speaks
        of arguments as callers know them."""
        violations = self.tool.input_schema.violations(given)
        if not self._maps:
            if violations:
                raise InputValidationError(violations, tool_id=self.tool.id, op="validate_input")
            return dict(given)
        hidden = [name for name in given if name not in self._of_caller and name in self._own]
        violations = [
            *violations,
            *(
                Violation(path=f"/{pointer(name)}", keyword="additionalProperties", message="it is not an argument")
                for name in hidden
                if all(each.path != f"/{pointer(name)}" for each in violations)
            ),
        ]
        if violations:
            raise InputValidationError(violations, tool_id=self.tool.id, op="validate_input")
        sent = {self._of_caller.get(name, name): value for name, value in given.items()}
        return {**self._defaults, **sent, **self._sent}

    def own_name(self, name: str) -> str:
        """Return what the tool itself calls an argument that callers know by this name; empty for one that they do not
        see."""
        return self._of_caller.get(name, "" if name in self._own and self._maps else name)

    def as_callers_know(self, error: InputValidationError) -> InputValidationError:
        """Return an error about arguments with the names that callers use."""
        names = {f"/{pointer(own)}": f"/{pointer(public)}" for public, own in self._of_caller.items()}
        violations: list[Violation] = []
        for each in error.violations:
            head = f"/{each.path.split('/')[1]}" if "/" in each.path else ""
            path = names.get(head, head) + each.path.removeprefix(head)
            violations.append(Violation(path=path, keyword=each.keyword, message=each.message, expected=each.expected))
        return InputValidationError(violations, tool_id=error.tool_id, op=error.op)


class Transforms:
    """The transforms of tools by the tools' own IDs, and the tools that they were applied to."""

    def __init__(self, given: Mapping[str, Any], keep_examples: KeepExamples | None = None) -> None:
        """*keep_examples* is given those of each tool when it is shown. Raises ConfigurationError for what is not a
        transform."""
        self._keep_examples = keep_examples
        self._given = {
            tool_id: ToolTransform.from_settings(f"transforms.{tool_id}", each) for tool_id, each in given.items()
        }
        self._shown: dict[str, ShownTool] = {}
        self.is_used: bool = bool(self._given)
        """Whether a tool may be shown in another form than its own."""

    def apart(self) -> Transforms:
        """Return the same transforms, also those that are exchanged later, for tools of another place, that are called
        by the same IDs."""
        made = Transforms({})
        made._given, made.is_used = self._given, True
        return made

    def exchange(self, others: Transforms) -> None:
        """Show what is applied from now on by *others*, with the tools that those were applied to already.

        What was shown before stays callable as it was until its index shows it otherwise.
        """
        given = dict(others._given)
        for shown in [*self._shown.values()] if self._keep_examples is not None else ():
            before, after = self._given.get(shown.original.id), given.get(shown.original.id)
            if before != after and shown.examples and self._keep_examples is not None:
                self._keep_examples(shown.tool.id, ())
        self._given.clear()
        self._given.update(given)
        self._shown |= others._shown
        self.is_used = self.is_used or others.is_used
        for shown in others._shown.values():
            if shown.examples and self._keep_examples is not None:
                self._keep_examples(shown.tool.id, shown.examples)

    def differences(self, others: Transforms) -> set[str]:
        """Return the IDs of what *others* show differently, of tools or of what else a server offers."""
        ids = self._given.keys() | others._given.keys()
        return {each for each in ids if self._given.get(each) != others._given.get(each)}

    def given(self, tool_id: str) -> ToolTransform | None:
        """Return the transform of what has this ID by itself."""
        return self._given.get(tool_id)

    @property
    def hidden(self) -> list[str]:
        """The IDs of what is not to be shown."""
        return [tool_id for tool_id, transform in self._given.items() if transform.hide]

    def hides(self, tool: Tool) -> bool:
        """Return whether a tool, as its provider has it, is not to be shown."""
        transform = self._given.get(tool.id)
        return transform is not None and transform.hide

    def apply(self, tool: Tool, transform: ToolTransform | None = None) -> Tool:
        """Return a tool as it is shown, by the *transform* if that is given. Raises ConfigurationError for one that its
        transform does not fit, and InvalidToolError for an example that is too large."""
        transform = transform if transform is not None else self._given.get(tool.id)
        if transform is None:
            return tool
        shown = ShownTool(tool, transform)
        if shown.examples and self._keep_examples is not None:
            self._keep_examples(shown.tool.id, shown.examples)
        self._shown[shown.tool.id] = shown
        return shown.tool

    def of(self, tool: Tool) -> ShownTool | None:
        """Return how a tool of the index is shown; None for one that is as its provider has it."""
        shown = self._shown.get(tool.id)
        return shown if shown is not None and (shown.tool is tool or shown.tool == tool) else None

    def has_examples(self, tool: Tool) -> bool:
        """Return whether a tool of the index is shown with other examples than its own."""
        shown = self.of(tool)
        return shown is not None and bool(shown.examples)

    def schema_of(self, tool: Tool) -> Schema:
        """Return what the arguments that are sent must be like."""
        shown = self.of(tool)
        return tool.input_schema if shown is None else shown.original.input_schema


def _described(own: JSONValue, given: JSONObject) -> JSONValue:
    changes = {key: given[key] for key in ("description", "default") if key in given}
    if not changes:
        return own
    return {**own, **changes} if isinstance(own, dict) else changes
