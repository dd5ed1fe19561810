"""Which programs are tools, and how each is called."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypedDict, cast

from toolexec.backend.providers.command.sandbox import SandboxRules
from toolexec.backend.providers.command.template import ALL, Argv, Text, parse_text
from toolexec.backend.providers.files import read_tools, with_file
from toolexec.backend.secrets import SecretResolver, has_reference
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.ids import check_segment
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import checked

Output: TypeAlias = Literal["text", "json", "lines"]
_INHERITED: Final = ("PATH", "HOME", "LANG")
_MAX_OUTPUT: Final = 4 << 20
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_OUTCOMES: Final = ("ok", "empty")
_NEEDED: Final = {"argv": "the program and its arguments as a list"}


class CommandToolSettings(TypedDict, total=False):
    """What a program as a tool takes; see `CommandTool`."""

    argv: Sequence[str | Sequence[str]]
    title: str
    description: str
    stdin: str
    cwd: str | Path
    env: Mapping[str, str]
    inherit: Sequence[str]
    output: Output
    exit_codes: Mapping[str | int, str | JSONObject]
    timeout: float
    max_output: int
    parameters: Mapping[str, JSONObject]
    input_schema: JSONObject
    output_schema: JSONObject
    dashes: Sequence[str]
    dry_run: str
    idempotency_env: str
    tags: Sequence[str]
    read_only: bool
    idempotent: bool
    destructive: bool
    open_world: bool


@checked("command tool")
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommandTool:
    """One program as a tool.

    `argv` is the program and its arguments, each an element of a list and never read by a shell: `{name}` is replaced
    by an argument, `{name...}` by an element for each item of a list, `{name?--text}` by the text if the argument is
    true; `{{` is a brace. A list in the list is left out when an argument in it is not there. A string that begins with
    `-` is refused where the program would read it as an option: put `--` before it, or its name into `dashes`. `stdin`
    is a template of what the program reads, where `{*}` stands for all arguments as JSON. A template that makes an
    argument code of a program, such as `python -c {x}` or the first argument of `awk`, is refused.

    `cwd` is its directory, counted from that of its provider. Of the environment it gets PATH, HOME, LANG, the
    variables that `inherit` names, and `env`.
    `output` is how stdout is read, of which there may be `max_output` bytes (4 MiB): as `text`, as `json`, or as
    `lines`, a list of strings; text and lines can be streamed. `exit_codes` is code → `ok`, `empty` (there is nothing
    to give: "", [] or null), or a message for the error, alone or as `{error: ..., retryable: true}`; 0 is `ok`, and
    others are errors. After `timeout` seconds (0: the limit of the call alone) it is killed with all it has started.

    The input schema is `input_schema`, or comes from the placeholders: strings, lists of them and booleans, required
    where the program cannot do without, and described more exactly by `parameters`, name → schema. A default there is
    filled in. `dry_run` is the option that makes the program only say what it would do: the tool then has a boolean
    argument `dry_run`. `idempotency_env` is the environment variable in which it gets the idempotency key of a call.
    Annotations are what you say; without any, a program may do anything.

    Raises ConfigurationError for what cannot work.
    """

    name: str
    argv: Sequence[str | Sequence[str]]
    title: str = ""
    description: str = ""
    stdin: str = ""
    cwd: str | Path = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    inherit: Sequence[str] = ()
    output: Output = "text"
    exit_codes: Mapping[str | int, str | JSONObject] = field(default_factory=dict[str | int, str])
    timeout: float = 0.0
    max_output: int = _MAX_OUTPUT
    parameters: Mapping[str, JSONObject] = field(default_factory=dict[str, JSONObject])
    input_schema: JSONObject | None = None
    output_schema: JSONObject | None = None
    dashes: Sequence[str] = ()
    dry_run: str = ""
    idempotency_env: str = ""
    tags: Sequence[str] = ()
    read_only: bool = False
    idempotent: bool = False
    destructive: bool | None = None
    open_world: bool | None = None

    def __post_init__(self) -> None:
        where = self.where
        if problem := check_segment(self.name):
            raise ConfigurationError(f"command tool {self.name[:100]!r}: its name {problem}")
        if not (self.timeout >= 0 and self.max_output > 0):
            raise ConfigurationError(f"{where}: timeout must be 0 or more, max_output above 0")
        _check_environment(where, self.env, (*self.inherit, *filter(None, [self.idempotency_env])))
        for text in self._strings():
            if has_reference(text):
                raise ConfigurationError(f"{where}: {text!r}: references such as ${{NAME}} are filled in in env only")
        self._check_names()
        for code, what in self.exit_codes.items():
            _outcome(where, code, what)

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"command tool {self.name}"

    def template(self) -> Argv:
        """Return the template of its arguments."""
        return Argv(self.argv, self.where, dashes=self.dashes, stdin=self.stdin_template())

    def stdin_template(self) -> Text | None:
        """Return the template of what it reads; None if that is nothing."""
        return parse_text(self.stdin, self.where, whole=True) if self.stdin else None

    def outcome(self, code: int) -> tuple[str, str, bool]:
        """Return `ok`, `empty` or `error` for an exit code, the message of an error ("" for none) and whether the same
        call may succeed later."""
        found = self.exit_codes.get(code, self.exit_codes.get(str(code)))
        if found is None:
            return ("ok" if code == 0 else "error"), "", False
        return _outcome(self.where, code, found)

    def explains(self, code: int) -> bool:
        """Return whether the settings say what an exit code means."""
        return code in self.exit_codes or str(code) in self.exit_codes

    def schema(self) -> JSONObject:
        """Return the input schema."""
        if self.input_schema is not None:
            return self._with_dry_run(dict(self.input_schema))
        properties: JSONDict = {}
        required: dict[str, None] = {}
        for name, schema, needed in self._inferred():
            given = self.parameters.get(name, {})
            properties[name] = {**properties.get(name, schema), **given}
            if needed and "default" not in given:
                required[name] = None
        schema: JSONDict = {"type": "object", "properties": properties, "additionalProperties": False}
        return self._with_dry_run({**schema, "required": [*required]} if required else schema)

    def defaults(self) -> JSONDict:
        """Return the values of arguments that a call may leave out."""
        properties = self.schema().get("properties")
        known = cast("JSONObject", properties) if isinstance(properties, Mapping) else {}
        return {
            name: schema["default"]
            for name, schema in known.items()
            if isinstance(schema, Mapping) and "default" in schema
        }

    def __repr__(self) -> str:
        return f"CommandTool(name={self.name!r}, argv={list(self.argv)!r})"

    def _inferred(self) -> Iterator[tuple[str, JSONDict, bool]]:
        """Yield each argument that a placeholder names, its schema, and whether it is needed."""
        for hole, needed in self.template().holes():
            if hole.kind == "list":
                yield hole.name, {"type": "array", "items": {"type": "string"}}, needed
            else:
                yield hole.name, {"type": "boolean" if hole.kind == "flag" else "string"}, needed
        stdin = self.stdin_template()
        for hole in stdin.holes if stdin is not None else ():
            if hole.name != ALL:
                yield hole.name, {"type": "string"}, True
        if stdin is not None and any(hole.name == ALL for hole in stdin.holes):
            for name, schema in self.parameters.items():
                yield name, dict(schema), False

    def _with_dry_run(self, schema: JSONDict) -> JSONDict:
        if not self.dry_run:
            return schema
        added = {"type": "boolean", "description": "Only say what would be done.", "default": False}
        return {**schema, "properties": {**schema.get("properties", {}), "dry_run": added}}

    def _check_names(self) -> None:
        """Raise for a parameter that no placeholder names, and for a placeholder that the input schema lacks."""
        named = {name for name, _, _ in self._inferred()}
        unknown = [name for name in (*self.parameters, *self.dashes) if name not in named]
        if unknown:
            raise ConfigurationError(
                f"{self.where}: no placeholder is called {unknown[0]!r}; {did_you_mean(unknown[0], sorted(named))}"
            )
        if self.input_schema is not None:
            if self.parameters:
                raise ConfigurationError(f"{self.where}: give either an input_schema or parameters")
            missing = sorted(named - {*self.input_schema.get("properties", {})})
            if missing:
                raise ConfigurationError(f"{self.where}: the input_schema has no property {missing[0]!r}")

    def _strings(self) -> Iterator[str]:
        for each in self.argv:
            yield from [each] if isinstance(each, str) else each
        yield self.stdin


class CommandSettings(TypedDict, total=False):
    """The settings of a `CommandProvider` by keyword, beside its name; for type checkers."""

    tools: JSONObject
    file: str | Path
    namespace: str
    cwd: str | Path
    env: Mapping[str, str]
    inherit: Sequence[str]
    timeout: float
    sandbox: str
    sandbox_network: bool
    sandbox_writable: bool
    sandbox_paths: Sequence[str | Path]


@checked("commands")
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CommandProvider:
    """Programs as tools: `tools` maps names to what `CommandTool` takes, or to CommandTools.

    `cwd`, `env`, `inherit` and `timeout` are those of every tool that does not have its own (of `env` and `inherit` a
    tool has both). `namespace` is that of the tools' IDs; the default is the name. With *secrets*, references in `env`
    are filled in when the tools are loaded; the values are taken out of what the programs write. The repr shows no
    environment.

    With `sandbox` ("bubblewrap") each call runs in a container of its own: the program finds this machine's /usr, its
    directory, which it can change if `sandbox_writable`, and `sandbox_paths`, all others read-only, an empty /tmp, and
    no network unless `sandbox_network`. Raises ConfigurationError.
    """

    name: str
    tools: Sequence[CommandTool] = ()
    namespace: str = ""
    cwd: str | Path = ""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    inherit: Sequence[str] = ()
    timeout: float = 0.0
    sandbox: str = ""
    sandbox_network: bool = False
    sandbox_writable: bool = False
    sandbox_paths: Sequence[str | Path] = ()
    secrets: SecretResolver | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for label, segment in (("name", self.name), ("namespace", self.namespace or self.name)):
            if problem := check_segment(segment):
                raise ConfigurationError(f"provider {self.name!r}: its {label} {problem}")
        if not self.timeout >= 0:
            raise ConfigurationError(f"provider {self.name}: timeout must be 0 or more, in seconds")
        _check_environment(f"provider {self.name}", self.env, self.inherit)
        if not self.sandbox and self.rules() != SandboxRules():
            raise ConfigurationError(f"provider {self.name}: sandbox_... is for programs in a sandbox; set sandbox")

    @classmethod
    def from_settings(
        cls, name: str, settings: JSONObject, *, secrets: SecretResolver | None = None
    ) -> CommandProvider:
        """Read `CommandSettings`; `file` names a TOML, YAML or JSON file with more of them, whose directory is that of
        the programs unless it names another.

        Raises ConfigurationError, also for a file that cannot be read, and MissingExtraError for YAML without PyYAML.
        """
        parts = with_file(f"provider {name}", CommandSettings, settings, ("tools", "env"))
        if (file := settings.get("file")) and "cwd" not in settings:
            parts["cwd"] = Path(file).parent / parts.get("cwd", "")
        tools = read_tools("command tool", parts.pop("tools", {}), CommandTool, CommandToolSettings, _NEEDED)
        return cls(name=name, tools=tools, secrets=secrets, **parts)

    def environment(self, tool: CommandTool, resolved: Mapping[str, str]) -> dict[str, str]:
        """Return what *tool* gets as its environment; *resolved* is `env` of this and the tool, filled in."""
        inherited = [*_INHERITED, *self.inherit, *tool.inherit]
        return {name: os.environ[name] for name in inherited if name in os.environ} | dict(resolved)

    def directory(self, tool: CommandTool) -> Path:
        """Return where *tool* runs."""
        return (Path(self.cwd).expanduser() / Path(tool.cwd).expanduser()).absolute()

    def rules(self) -> SandboxRules:
        """Return what the programs have in their sandbox."""
        base = Path(self.cwd).expanduser()
        paths = tuple((base / Path(path).expanduser()).absolute() for path in self.sandbox_paths)
        return SandboxRules(network=self.sandbox_network, writable=self.sandbox_writable, paths=paths)

    def __repr__(self) -> str:
        return f"CommandProvider(name={self.name!r}, tools={[tool.name for tool in self.tools]!r})"


def _check_environment(where: str, env: Mapping[str, str], inherit: Collection[str]) -> None:
    for name in (*env, *inherit):
        if not _VARIABLE.fullmatch(name):
            raise ConfigurationError(f"{where}: {name[:100]!r} is not the name of an environment variable")
    for name, value in env.items():
        if "\0" in value:
            raise ConfigurationError(f"{where}: the value of {name} has a NUL character")


def _outcome(where: str, code: object, what: str | JSONObject) -> tuple[str, str, bool]:
    """What an entry of `exit_codes` says; see `CommandTool.outcome`."""
    if not str(code).isdecimal() or not 0 <= int(str(code)) <= 255:
        raise ConfigurationError(f"{where}: exit_codes: {code!r} is not an exit code from 0 to 255")
    if isinstance(what, str):
        return (what, "", False) if what in _OUTCOMES else ("error", what, False)
    message, retryable = what.get("error", ""), what.get("retryable", False)
    if what.keys() - {"error", "retryable"} or not isinstance(message, str) or not isinstance(retryable, bool):
        raise ConfigurationError(f"{where}: exit_codes: {code} must be ok, empty, a message, or {{error, retryable}}")
    return "error", message, retryable
