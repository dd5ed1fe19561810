"""The provider of programs: what it lists, and how it calls them."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from toolexec.backend.providers.command.config import CommandProvider, CommandTool
from toolexec.backend.providers.command.running import Program, Running, start_here
from toolexec.backend.providers.command.sandbox import MakeSandbox, ProgramSandbox
from toolexec.backend.providers.command.template import Argv, Text
from toolexec.backend.providers.source import Definition, ProvidedTool, key_of
from toolexec.backend.secrets import Scrubber, SecretResolver
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    InputValidationError,
    InvalidResultError,
    Outcome,
    RemoteToolError,
    SandboxUnavailableError,
    SecretError,
    ToolExecError,
    ToolTimeoutError,
    Violation,
)
from toolexec.errors.base import reworded
from toolexec.model.call import ToolCall
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.secret_keys import is_telling
from toolexec.model.tool import DRY_RUN, Tool, ToolAnnotations

_SIGNALLED: Final = 128
"""What a shell adds to the number of the signal that ended its program, to make an exit code of it."""
_LAST_SIGNAL: Final = 64
_EXCERPT: Final = 2000
_EMPTY: Final[JSONObject] = {"text": "", "lines": [], "json": None}


class CommandSource:
    """Provides programs as tools. One whose program is not there is skipped, with the reason.

    *make* reads the provider again at each load, where it comes from a file. *sandboxes* makes the sandbox that the
    provider names.
    """

    kind = "command"

    def __init__(
        self,
        provider: CommandProvider,
        make: Callable[[], CommandProvider] | None = None,
        sandboxes: MakeSandbox | None = None,
    ) -> None:
        self._provider = provider
        self._make = make
        self._sandboxes = sandboxes
        self._sandbox = self._sandbox_of(provider)

    async def load(self) -> Definition:
        """Return the tools, with the references in their environment filled in.

        A tool with a secret of its own that is missing is skipped. Raises SecretError for one of all tools,
        ConfigurationError for a file that is not valid any more, and SandboxUnavailableError.
        """
        if self._make is not None:
            provider = await asyncio.to_thread(self._make)
            if (provider.sandbox, provider.rules()) != (self._provider.sandbox, self._provider.rules()):
                await self.aclose()
                self._sandbox = self._sandbox_of(provider)
            self._provider = provider
        if self._sandbox is not None:
            await self._sandbox.check()
        resolved, hidden, missing = await asyncio.to_thread(self._resolved)
        tools: list[ProvidedTool] = []
        skipped: dict[str, str] = {}
        for tool in self._provider.tools:
            if tool.name in missing:
                skipped[tool.name] = missing[tool.name]
                continue
            command = self._command(tool, resolved, hidden)
            if problem := command.missing():
                skipped[tool.name] = problem
                continue
            try:
                definition = self._definition(tool)
            except ToolExecError as error:
                skipped[tool.name] = error.message
                continue
            streams = command.stream if tool.output != "json" else None
            tools.append(ProvidedTool(definition, command.call, streams, command.argv.program))
        if missing and not tools:
            raise SecretError(f"provider {self._provider.name}: {'; '.join(missing.values())}")
        return Definition(tools=tools, skipped=skipped)

    async def aclose(self) -> None:
        """Free what the sandbox has made; each call ends its own program."""
        if self._sandbox is not None:
            await self._sandbox.aclose()

    def info(self) -> JSONObject:
        """Return the sandbox that the programs run in, if any."""
        return {"sandbox": self._provider.sandbox} if self._provider.sandbox else {}

    def _sandbox_of(self, provider: CommandProvider) -> ProgramSandbox | None:
        if not provider.sandbox:
            return None
        if self._sandboxes is None:
            raise ConfigurationError(f"provider {provider.name}: there are no sandboxes for programs here")
        try:
            return self._sandboxes(provider.sandbox, provider.rules())
        except ConfigurationError as error:
            raise reworded(error, f"provider {provider.name}: {error}") from None

    def _resolved(self) -> tuple[dict[str, str], frozenset[str], dict[str, str]]:
        """Every value of `env` by `tool.NAME` (the provider's by `.NAME`), which values are secret, and for each tool
        with a reference that leads nowhere, which."""
        tables = {"": self._provider.env, **{tool.name: tool.env for tool in self._provider.tools}}
        strings: dict[str, str] = {}
        hidden: set[str] = set()
        missing: dict[str, str] = {}
        for tool, env in tables.items():
            values: Mapping[str, str] = {f"{tool}.{name}": value for name, value in env.items()}
            if self._provider.secrets is not None and values:
                where = f"provider {self._provider.name}: env"
                try:
                    found = self._provider.secrets.expand(values, where)
                except SecretError as error:
                    if not tool:
                        raise
                    missing[tool] = error.message.removeprefix(f"provider {self._provider.name}: ")
                    continue
                values = found.strings
                hidden |= found.secrets | {
                    value for name, value in values.items() if is_telling(name.rpartition(".")[2])
                }
            strings |= values
        return strings, frozenset(hidden), missing

    def _command(self, tool: CommandTool, resolved: Mapping[str, str], hidden: frozenset[str]) -> _Command:
        env = {name: resolved[f".{name}"] for name in self._provider.env}
        env |= {name: resolved[f"{tool.name}.{name}"] for name in tool.env}
        return _Command(
            tool=tool,
            argv=tool.template(),
            stdin=tool.stdin_template(),
            defaults=tool.defaults(),
            env=self._provider.environment(tool, env),
            cwd=self._provider.directory(tool),
            timeout=tool.timeout or self._provider.timeout,
            scrubber=Scrubber(hidden),
            sandbox=self._sandbox,
        )

    def _definition(self, tool: CommandTool) -> Tool:
        output: JSONObject | None = tool.output_schema
        if output is None and tool.output != "json":
            text = {"type": "string"}
            output = text if tool.output == "text" else {"type": "array", "items": text}
        return Tool(
            name=tool.name,
            namespace=self._provider.namespace or self._provider.name,
            title=tool.title,
            description=tool.description,
            input_schema=tool.schema(),
            output_schema=output,
            annotations=ToolAnnotations(
                read_only=tool.read_only,
                idempotent=tool.idempotent or tool.read_only,
                destructive=tool.destructive,
                open_world=tool.open_world,
            ),
            tags=tool.tags,
            meta={DRY_RUN: {"args": {"dry_run": True}}} if tool.dry_run else None,
        ).check_schemas()


def command_source(
    name: str,
    settings: JSONObject,
    *,
    secrets: SecretResolver | None = None,
    sandboxes: MakeSandbox | None = None,
) -> CommandSource:
    """Return the source of the programs in *settings*; see `CommandSettings`, `CommandTool` and `MakeSource`.

    *sandboxes* makes the sandboxes that settings name.
    """
    make = partial(CommandProvider.from_settings, name, settings, secrets=secrets)
    return CommandSource(make(), make if settings.get("file") else None, sandboxes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Command:
    """A program with everything that does not depend on a call."""

    tool: CommandTool
    argv: Argv
    stdin: Text | None
    defaults: JSONObject
    env: Mapping[str, str]
    cwd: Path
    timeout: float
    scrubber: Scrubber
    sandbox: ProgramSandbox | None

    def missing(self) -> str:
        """Return what is not there of the program or its directory; "" if both are."""
        if not self.cwd.is_dir():
            return f"there is no directory {self.cwd}"
        if self.sandbox is not None and self.cwd == Path("/"):
            return "a program in a sandbox needs another directory than /: set cwd"
        program = self.argv.program
        if "/" in program:
            found = self.cwd / program
            if not found.is_file():
                return f"there is no program {program}"
            hidden = not self._shown(found)
        else:
            path = self.env.get("PATH", os.environ.get("PATH", os.defpath))
            if shutil.which(program, path=path) is None:
                return f"there is no program {program} on PATH"
            seen = [each for each in path.split(os.pathsep) if self._shown(Path(each))]
            hidden = shutil.which(program, path=os.pathsep.join(seen)) is None
        return f"the sandbox does not show {program}; name its directory in sandbox_paths" if hidden else ""

    def _shown(self, path: Path) -> bool:
        return self.sandbox is None or self.sandbox.shows(path, self.cwd)

    async def call(self, call: ToolCall) -> JSONValue:
        """Run the program and return its output; see `Backend.call`."""
        data = bytearray()
        async with self._limit(), await self._started(call) as running, aclosing(running.output()) as output:
            async for part in output:
                data += part
                self._check_size(len(data), data)
            code = await running.exit_code()
        outcome = self._outcome(code, running, data)
        return _EMPTY[self.tool.output] if outcome == "empty" else self._value(bytes(data))

    async def stream(self, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Run the program and yield its lines as it writes them; see `StreamingBackend.stream`."""
        data = bytearray()
        begun = 0  # where the line begins that is not complete yet
        lines: list[str] = []
        async with self._limit(), await self._started(call) as running, aclosing(running.output()) as output:
            async for part in output:
                searched = len(data)
                data += part
                self._check_size(len(data), data)
                while (end := data.find(b"\n", max(begun, searched))) >= 0:
                    lines.append(self._line(data[begun:end]))
                    begun = end + 1
                    yield StreamEvent(kind="chunk", data=lines[-1])
            code = await running.exit_code()
        if begun < len(data):
            lines.append(self._line(data[begun:]))
            yield StreamEvent(kind="chunk", data=lines[-1])
        outcome = self._outcome(code, running, data)
        empty = outcome == "empty"
        yield StreamEvent(kind="done", data=_EMPTY[self.tool.output] if empty else self._value(bytes(data)))

    async def _started(self, call: ToolCall) -> Running:
        program = self._program({**self.defaults, **(call.args or {})}, key_of(call))
        start = self.sandbox.start if self.sandbox is not None else start_here
        try:
            return Running(await start(program), program.stdin)
        except (OSError, SandboxUnavailableError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno == errno.E2BIG:
                message = f"the arguments are too long for {self.argv.program}; at most 128 KiB each"
                raise InputValidationError([Violation(path="", keyword="argv", message=message)]) from error
            raise BackendUnavailableError(
                f"cannot start {self.argv.program}: {getattr(error, 'strerror', None) or error}", retryable=False
            ) from error

    def _program(self, args: JSONObject, key: str) -> Program:
        dry = self.tool.dry_run if self.tool.dry_run and args.get("dry_run") is True else ""
        given = {name: value for name, value in args.items() if value is not None}
        stdin = self.stdin.fill(given) if self.stdin is not None else ""
        try:
            written = stdin.encode()
        except UnicodeEncodeError:
            violation = Violation(
                path="", keyword="stdin", message="half of a character cannot be written to a program"
            )
            raise InputValidationError([violation], op="validate_input") from None
        name = self.tool.idempotency_env
        env = {**self.env, name: key} if name and key else self.env
        return Program(argv=self.argv.fill(given, dry), env=env, cwd=self.cwd, stdin=written)

    def _limit(self) -> _Limit:
        return _Limit(self.tool.name, self.timeout)

    def _outcome(self, code: int, running: Running, data: bytearray) -> str:
        """Return `ok` or `empty`; raises RemoteToolError for an exit code that is an error."""
        meaning, message, retryable = self.tool.outcome(code) if code >= 0 else ("error", "", False)
        if meaning != "error":
            return meaning
        stderr = self.scrubber.text(running.stderr()).strip()
        how = f"exit code {code}" if code >= 0 else f"killed by {_signal(-code)}"
        said = message or stderr[-_EXCERPT:] or "it wrote no reason to stderr"
        details = {
            "exit_code": code,
            "stderr": stderr,
            "output": self.scrubber.text(data[:_EXCERPT].decode(errors="replace")),
        }
        raise RemoteToolError(
            f"{self.tool.name} failed ({how}): {said}",
            retryable=retryable,
            details={name: value for name, value in details.items() if value != ""},
            outcome=Outcome.REFUSED if code > 0 and not self._is_killed(code) else Outcome.UNKNOWN,
        )

    def _is_killed(self, code: int) -> bool:
        """Return whether a shell, or a sandbox, says with its exit code that a signal ended the program. A code that
        the settings explain is the program's own."""
        return _SIGNALLED < code <= _SIGNALLED + _LAST_SIGNAL and not self.tool.explains(code)

    def _check_size(self, size: int, data: bytearray) -> None:
        if size > self.tool.max_output:
            raise RemoteToolError(
                f"{self.tool.name} wrote more than {self.tool.max_output} bytes and was stopped; ask for less, or raise"
                " max_output",
                details={"output": self.scrubber.text(data[:_EXCERPT].decode(errors="replace"))},
                outcome=Outcome.UNKNOWN,
            )

    def _value(self, data: bytes) -> JSONValue:
        text = data.decode(errors="replace")
        if self.tool.output == "json":
            return self._json(text)
        text = self.scrubber.text(text)
        if self.tool.output == "lines":
            lines = text.split("\n")
            return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]
        return text.removesuffix("\n")

    def _json(self, text: str) -> JSONValue:
        try:
            return self.scrubber.value(json.loads(text))
        except (ValueError, RecursionError) as error:
            shown = self.scrubber.text(text[:200])
            raise InvalidResultError(
                f"{self.tool.name} ran, but wrote something that is not JSON ({error}): {shown!r}", op="normalize"
            ) from None

    def _line(self, data: bytearray) -> str:
        return self.scrubber.text(data.decode(errors="replace").removesuffix("\r"))


class _Limit:
    """Stops a program after *seconds*; 0 means without limit."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds or None)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            raise ToolTimeoutError(
                f"{self._name} did not end within {self._seconds:g} s and was killed",
                details={"timeout": self._seconds},
            ) from late


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
