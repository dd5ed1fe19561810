"""How to reach an MCP server, and the `mcpServers` files that say so."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypedDict
from urllib.parse import parse_qsl, urlsplit

from toolexec.backend.mcp.sandbox import ServerSandboxSettings, read_server_sandbox
from toolexec.backend.secrets import Scrubber, SecretResolver, has_reference
from toolexec.errors import ConfigurationError, SecretError
from toolexec.model.ids import check_segment
from toolexec.model.questions import QUESTIONS, QuestionKind
from toolexec.model.settings import check_ranges, checked
from toolexec.net.hosts import origin_of
from toolexec.net.oauth.settings import OAuthSettings, read_oauth

logger: logging.Logger = logging.getLogger(__name__)
Isolation: TypeAlias = Literal["shared", "session", "caller"]
"""Who shares the state of a server: all callers, those of one session, or one caller."""
MCPTransport: TypeAlias = Literal["auto", "stdio", "http", "sse"]
"""How a server is reached; `auto` goes by whether it is a command or a URL."""
_PROOFS: Final = ("client_id", "client_secret", "private_key")
"""The settings of a login that may be references."""


class MCPSettings(TypedDict, total=False):
    """The settings of an `MCPServer` by keyword, beside what it is called and where it is; for type checkers."""

    env: Mapping[str, str]
    cwd: str | Path | None
    headers: Mapping[str, str]
    transport: MCPTransport
    namespace: str
    enabled: bool
    connect_timeout: float
    max_restarts: int
    restart_window: float
    stop_timeout: float
    isolation: Isolation
    max_instances: int
    instance_idle: float
    sandbox: ServerSandboxSettings | Mapping[str, Any] | str | None
    questions: Sequence[QuestionKind]
    include: Sequence[str]
    exclude: Sequence[str]
    include_prompts: Sequence[str]
    exclude_prompts: Sequence[str]
    include_resources: Sequence[str]
    exclude_resources: Sequence[str]
    secrets: SecretResolver | None
    hidden: frozenset[str]
    auth: OAuthSettings | Mapping[str, Any] | str | None


@checked("MCP server")
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MCPServer:
    """One MCP server: a `command` to start, or the `url` of one that runs.

    A command inherits only HOME, LOGNAME, PATH, SHELL, TERM and USER; `env` adds to that. `transport` `auto` means
    stdio for a command; for a URL streamable HTTP, and the older HTTP+SSE where the server refuses that.
    `connect_timeout` bounds one attempt to connect and list the tools. A lost connection is made again after a growing
    pause, at once when a call needs it, but at most `max_restarts` times within `restart_window` seconds; a command
    that cannot be started is tried again only when a call needs it. `stop_timeout` is how long a process may take to
    end by itself. `namespace` is that of the tools' IDs; the default is the name. All times are in seconds.

    `isolation` is for a server that keeps state between calls: with `session` each session has a connection of its own,
    to a command a process of its own, and with `caller` each caller; nothing of one reaches another (`shared`: all use
    one). There are at most `max_instances` of these; one that no call needs for `instance_idle` seconds is closed, and
    those of a session at its end. One more connection lists the tools, and no call goes there. Where `auth` has
    `per="caller"`, a connection has the login of one caller, so that `shared` means `caller`.

    With `sandbox` a command runs in a sandbox of its own, one for each instance: the name of its engine, a mapping with
    the settings of `ServerSandboxSettings`, or these. It inherits no variable then, and finds of this machine what
    these name, and its `cwd`, which it can read; an engine with images has the command and `cwd` in its image. Where
    the engine is missing, the server is unavailable: it is never started without.

    `questions` are the kinds of questions that the server may put to the client of a call: all, unless some are listed;
    it does not learn of others, and they are refused.

    `include` and `exclude` are patterns of the tools that there are here, by the names that the server gives them:
    those that fit one of the first (all, where it is empty), and none of the second. `include_prompts` and
    `exclude_prompts` say the same of prompts, `include_resources` and `exclude_resources` of resources and templates,
    by their URIs; a URI that is left out cannot be read, whether the server lists it or not.

    With `secrets`, references in command, args, env, cwd, url, headers and auth are filled in at each connect and not
    before: a changed secret is in use after the next one. Without, every text is taken as it is. `hidden` are values
    that are taken out of all that the server says. `auth` is how to log in: `"oauth"`, a mapping with the settings of
    `OAuthSettings`, or these; a server that gets no `Authorization` among its headers can be logged in to without it.
    The repr shows no arguments, environment, headers or URL query, which may hold secrets. Raises ConfigurationError
    for what cannot work.

    >>> server = MCPServer(name="git", command="uvx", args=["mcp-server-git"], namespace="vcs")
    >>> server.name, server.namespace
    ('git', 'vcs')
    """

    name: str
    command: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | Path | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    transport: MCPTransport = "auto"
    namespace: str = ""
    enabled: bool = True
    connect_timeout: float = 30.0
    max_restarts: int = 5
    restart_window: float = 60.0
    stop_timeout: float = 2.0
    isolation: Isolation = "shared"
    max_instances: int = 20
    instance_idle: float = 600.0
    sandbox: ServerSandboxSettings | Mapping[str, Any] | str | None = None
    questions: Sequence[QuestionKind] = QUESTIONS
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    include_prompts: Sequence[str] = ()
    exclude_prompts: Sequence[str] = ()
    include_resources: Sequence[str] = ()
    exclude_resources: Sequence[str] = ()
    secrets: SecretResolver | None = field(default=None, compare=False)
    hidden: frozenset[str] = field(default=frozenset(), compare=False)
    auth: OAuthSettings | Mapping[str, Any] | str | None = None

    def __post_init__(self) -> None:
        for label, segment in (("name", self.name), ("namespace", self.namespace or self.name)):
            problem = check_segment(segment)
            if problem:
                raise ConfigurationError(f"MCP server {self.name!r}: its {label} {problem}")
        if bool(self.command) == bool(self.url):
            raise ConfigurationError(f"MCP server {self.name}: give either a command or a url")
        self._check_transport()
        self._check_auth()
        self._check_sandbox()
        check_ranges(
            f"MCP server {self.name}",
            above={
                "connect_timeout": self.connect_timeout,
                "restart_window": self.restart_window,
                "stop_timeout": self.stop_timeout,
                "instance_idle": self.instance_idle,
                "max_instances": self.max_instances,
            },
            least={"max_restarts": self.max_restarts},
        )

    def _check_transport(self) -> None:
        if self.command and self.transport in ("http", "sse"):
            raise ConfigurationError(f"MCP server {self.name}: a command speaks stdio, not {self.transport}")
        later = self.secrets is not None and has_reference(self.url)
        if self.url and (self.transport == "stdio" or not (later or self.location)):
            raise ConfigurationError(f"MCP server {self.name}: the url must be http:// or https://, over http or sse")

    def _check_auth(self) -> None:
        if self.auth is None:
            return
        try:
            found = self.auth if isinstance(self.auth, OAuthSettings) else read_oauth(self.auth)
        except ConfigurationError as error:
            raise ConfigurationError(f"MCP server {self.name}: {error.message}") from error
        if found is None:
            raise ConfigurationError(f'MCP server {self.name}: auth must be "oauth", or settings of that kind')
        if not self.url or self._sends_authorization:
            why = "headers has an Authorization already" if self.url else "a command needs no login"
            raise ConfigurationError(f"MCP server {self.name}: auth is of no use, for {why}")
        object.__setattr__(self, "auth", found)

    def _check_sandbox(self) -> None:
        try:
            found = read_server_sandbox(self.sandbox)
        except ConfigurationError as error:
            raise ConfigurationError(f"MCP server {self.name}: {error.message}") from error
        if found is not None and self.url:
            raise ConfigurationError(f"MCP server {self.name}: sandbox is for a command, and this one runs elsewhere")
        if found is not None and found.write and self.isolation != "shared":
            raise ConfigurationError(
                f"MCP server {self.name}: what sandbox.write names is the same for each {self.isolation}, so that one "
                'would read the files of another; take it away, or set isolation = "shared"'
            )
        object.__setattr__(self, "sandbox", found)

    @property
    def boxed(self) -> ServerSandboxSettings | None:
        """What it has in its sandbox; None for one that runs without."""
        return self.sandbox if isinstance(self.sandbox, ServerSandboxSettings) else None

    @property
    def _sends_authorization(self) -> bool:
        return any(name.lower() == "authorization" for name in self.headers)

    @property
    def oauth(self) -> OAuthSettings | None:
        """How to log in; None for a server that cannot be logged in to."""
        if not self.url or self._sends_authorization:
            return None
        return self.auth if isinstance(self.auth, OAuthSettings) else OAuthSettings()

    @property
    def logs_in_callers(self) -> bool:
        """Whether each caller has a login of its own."""
        return isinstance(self.auth, OAuthSettings) and self.auth.per == "caller"

    @property
    def apart(self) -> Isolation:
        """Who shares a connection: as `isolation` says, but no two callers where each has a login."""
        return "caller" if self.isolation == "shared" and self.logs_in_callers else self.isolation

    def __repr__(self) -> str:
        where = f"url={self.location!r}" if self.url else f"command={self.command!r}"
        return f"MCPServer(name={self.name!r}, {where}, transport={self.transport!r})"

    @property
    def location(self) -> str:
        """The URL without user, password, query and fragment; empty when it is not one."""
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            return ""
        if parts.scheme not in ("http", "https") or not host:
            return ""
        host = f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"

    @property
    def destination(self) -> str:
        """What is spoken to: the origin of the URL, or the program."""
        return origin_of(self.url) if self.url else self.command

    def redact(self, text: str) -> str:
        """*text* with the values of `env` and `headers`, what is secret in the URL, and `hidden` replaced by `***`."""
        return self.scrubber().text(text)

    def scrubber(self) -> Scrubber:
        """Return what `redact` does, for many strings."""
        values = {*self.hidden, *self.env.values(), *self.headers.values()}
        values |= self.auth.secrets if isinstance(self.auth, OAuthSettings) else set()
        values |= {word for value in self.headers.values() for word in value.split()}
        if self.url:
            try:
                parts = urlsplit(self.url)
                values |= {parts.query, parts.fragment, parts.password or "", parts.username or ""}
                values |= {value for pair in parse_qsl(parts.query) for value in pair[1:]}
            except ValueError:  # it waits for a reference to be filled in
                values.add(self.url)
        return Scrubber(values, "***")

    def resolved(self, *, fresh: bool = False) -> MCPServer:
        """Return the server with all references filled in, and the secrets among what was filled in added to `hidden`.

        *fresh* asks for every secret again, also for one that is kept. Blocks as long as a provider of secrets does.
        Raises SecretError and MissingExtraError as `SecretResolver.resolve_all` does, and ConfigurationError when the
        result cannot work. Without `secrets` it is the server itself.
        """
        if self.secrets is None:
            return self
        strings = {"command": self.command, "cwd": str(self.cwd or ""), "url": self.url}
        args = {f"args[{number}]": arg for number, arg in enumerate(self.args)}
        env = {f"env.{name}": value for name, value in self.env.items()}
        headers = {f"headers.{name}": value for name, value in self.headers.items()}
        auth = self.auth if isinstance(self.auth, OAuthSettings) else None
        proofs = {f"auth.{name}": getattr(auth, name) for name in _PROOFS} if auth is not None else {}
        for label in (label for label, arg in args.items() if "secretref:" in arg):
            logger.warning(
                "MCP server %s: %s holds a secret, and every user of this machine can see it while the command runs;"
                " give it in env if the command takes it there",
                self.name,
                label,
            )
        where = f"MCP server {self.name}"
        found = self.secrets.expand(
            strings | args | env | headers | proofs, where, public={"command", "cwd", *args}, fresh=fresh
        )
        values = found.strings
        for label in headers:
            if any(character in values[label] for character in "\r\n\0"):
                raise SecretError(f"{where}: {label}: what was filled in has a line break, which a header cannot have")
        return replace(
            self,
            command=values["command"],
            args=tuple(values[label] for label in args),
            env={name: values[f"env.{name}"] for name in self.env},
            cwd=values["cwd"] or None,
            url=values["url"],
            headers={name: values[f"headers.{name}"] for name in self.headers},
            auth=None if auth is None else replace(auth, **{name: values[f"auth.{name}"] for name in _PROOFS}),
            secrets=None,
            hidden=self.hidden | found.secrets,
        )
