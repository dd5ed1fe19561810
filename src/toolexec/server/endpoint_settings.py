"""The settings of one more endpoint of a server, beside the main one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from toolexec.errors import ConfigurationError
from toolexec.model.declared import setting
from toolexec.model.settings import checked
from toolexec.server.auth.settings import AuthSettings
from toolexec.server.http.settings import HttpSettings, check_exposure
from toolexec.server.settings import ServeSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@checked("EndpointSettings")
@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """One more endpoint of an HTTP server: MCP at a path of its own, for callers of its own.

    `name` is what policies, the audit log and `Caller.endpoint` call it. `path` is where it is (empty: `/NAME/mcp`).
    `title`, `expose` and `instructions` take the place of the server's where they are not empty. `auth` says who may
    use it: nothing of that is taken from the server, and its callers are let in nowhere else.

    Raises ConfigurationError for a name that is not 1 to 64 letters, digits, `-` and `_`, and for a path that is none.
    """

    name: str
    path: str = setting("", "The path of the endpoint; empty: /NAME/mcp.")
    title: str = setting("", "The name that people see; empty: that of the server.")
    expose: Literal["", "auto", "meta", "direct", "code"] = setting("", "What clients see; empty: as the server says.")
    instructions: str = setting("", "Text for the model about it; empty: that of the server.")
    auth: AuthSettings = field(default_factory=AuthSettings)

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ConfigurationError(
                f"the name of an endpoint must be 1 to 64 letters, digits, - and _, such as team-a, not {self.name!r}"
            )
        HttpSettings(path=self.place)

    @property
    def place(self) -> str:
        """The path where it is."""
        return self.path or f"/{self.name}/mcp"

    def differs_by_keys(self, other: EndpointSettings) -> bool:
        """Return whether *other* is the same but for API keys, if at all."""
        return replace(self, auth=replace(self.auth, api_keys=other.auth.api_keys)) == other

    def tasks_beside(self, file: Path) -> Path:
        """Return the file of the tasks of this endpoint, beside that of the server."""
        return file.with_name(f"{file.stem}.{self.name}{file.suffix}")

    def within(self, server: ServeSettings) -> ServeSettings:
        """Return the settings of *server* for this endpoint. It keeps its tasks in a file of its own, beside that of
        the server: `tasks.NAME.db` beside `tasks.db`."""
        beside = str(self.tasks_beside(Path(server.tasks.path))) if server.tasks.path else ""
        return replace(
            server,
            title=self.title or server.title,
            expose=self.expose or server.expose,
            instructions=self.instructions or server.instructions,
            tasks=replace(server.tasks, path=beside),
            http=replace(server.http, path=self.place, sse=False),
            auth=self.auth,
        )


def check_endpoints(endpoints: Iterable[EndpointSettings], http: HttpSettings, auth: AuthSettings) -> None:
    """Raise ConfigurationError where two endpoints have one path, or where one lets in everybody that should not: one
    that others than this machine can reach, and one beside a main endpoint with *auth*, unless it says so itself."""
    taken = dict.fromkeys((http.path, *((http.sse_path, http.messages_path) if http.sse else ())), "the server")
    for each in endpoints:
        owner = taken.setdefault(each.place, each.name)
        if owner != each.name:
            raise ConfigurationError(f"the endpoint {each.name} is at {each.place}, and so is {owner}; give it a path")
        try:
            check_exposure(http, each.auth)
        except ConfigurationError as error:
            raise ConfigurationError(f"the endpoint {each.name}: {error.message}") from error
        if auth.on and not each.auth.on and not each.auth.allow_anonymous:
            raise ConfigurationError(
                f"the endpoint {each.name} would let everybody in, as [auth] is for the main endpoint alone; give it "
                "api_keys (`toolexec keys new ID`) or jwt of its own, or allow_anonymous"
            )
