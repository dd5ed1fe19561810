"""The MCP servers that other programs on this machine are set up with, and how to take them over without secrets."""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from toolexec.config.clients import CLIENTS, Machine
from toolexec.config.documents import read_document
from toolexec.config.mistakes import Mistakes
from toolexec.errors import ConfigurationError
from toolexec.model.ids import clean_segment
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import redactor

_TELLING: Final = re.compile(
    r"token|secret|passw|pwd|api.?key|access.?key|private.?key|(?:^|[-_])key$|auth|cred|cookie|session|dsn|bearer|(?:^|_)pat$",
    re.IGNORECASE,
)
_REFERENCE: Final = re.compile(r"\$\{(?!input:)[^{}]+\}|secretref:\S+")
_INPUT: Final = re.compile(r"\$\{input:([^{}]+)\}")
_TAKEN: Final = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled")
_RENAMED: Final = {"serverUrl": "url", "httpUrl": "url", "transport": "type", "transportType": "type"}
_LONG: Final = 20
_BITS: Final = 3.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where to look; the defaults are those of this user on this machine."""

    home: Path = field(default_factory=Path.home)
    directory: Path = field(default_factory=Path.cwd)
    platform: str = sys.platform
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def files(self) -> Iterator[tuple[str, Path]]:
        """Names of programs, and where they keep their servers."""
        machine = Machine(
            home=self.home, directory=self.directory, platform=self.platform, environment=self.environment
        )
        for name in ("claude-desktop", "claude", "vscode", "cursor"):
            client = CLIENTS[name]
            for scope in reversed(client.scopes):
                yield client.title, client.file(scope, machine)
            if name == "vscode":  # where it had them before
                yield client.title, client.file("user", machine).with_name("settings.json")


@dataclass(slots=True, kw_only=True)
class DiscoveredServer:
    """A server of another program. `entry` holds no secrets: `variables` says which variables stand for them, and where
    their values are now. `problem` says why it cannot be taken over."""

    name: str
    program: str
    file: Path
    entry: JSONDict
    variables: dict[str, str] = field(default_factory=dict[str, str])
    problem: str = ""


def find_servers(places: Places | None = None) -> tuple[list[DiscoveredServer], list[str]]:
    """Return the servers of all programs, each once, and what could not be read. Nothing is changed, and nothing
    started."""
    places = places or Places()
    found: list[DiscoveredServer] = []
    problems: list[str] = []
    secrets: dict[str, str] = {}
    for program, file in places.files():
        if not file.is_file():
            continue
        mistakes = Mistakes()
        document = read_document(file, mistakes)
        try:
            mistakes.check()
        except ConfigurationError as error:
            problems.append(f"{program}: {error.message}")
        tables = [document.servers()[1], _of_project(document.data, places.directory)] if document is not None else []
        for table in tables:
            for name, entry in table.items() if isinstance(table, Mapping) else ():
                if isinstance(entry, Mapping) and not _is_toolexec(entry):
                    _add(found, _take(str(name), program, file, entry, places, secrets))
    return found, problems


def _of_project(data: Mapping[str, object], directory: Path) -> Any:
    projects = data.get("projects")
    project = projects.get(str(directory)) if isinstance(projects, Mapping) else None
    return project.get("mcpServers") if isinstance(project, Mapping) else None


def _is_toolexec(entry: Mapping[str, object]) -> bool:
    """Return whether it is this program: it would serve itself."""
    args = entry.get("args")
    words = [str(entry.get("command") or ""), *(map(str, args) if isinstance(args, list) else ())]
    return any(Path(word).stem == "toolexec" for word in words[:3])


def _add(found: list[DiscoveredServer], new: DiscoveredServer) -> None:
    """Add a server under a name of its own; one that is there already is not added again."""
    same_name = [each for each in found if each.name == new.name]
    if any(each.entry == new.entry for each in same_name):
        return
    if same_name:
        new.name = f"{new.name}-{new.program.lower().replace(' ', '-')}"
        if any(each.name == new.name for each in found):
            new.problem = f"{new.file}: server {new.name!r} has the name of another one"
    found.append(new)


def _take(
    name: str, program: str, file: Path, entry: Mapping[str, object], places: Places, secrets: dict[str, str]
) -> DiscoveredServer:
    from toolexec.backend.mcp.files import read_mcp_server
    from toolexec.backend.secrets import SecretResolver

    found = DiscoveredServer(name=clean_segment(name), program=program, file=file, entry={})
    hiding = _Hiding(found, secrets)
    given = {_RENAMED.get(key, key): value for key, value in entry.items() if value not in (None, "", [], {})}
    hidden = {  # env first: its variables keep their names
        key: hiding.hide(key, _settled(given[key], places.directory)) for key in ("env", *_TAKEN) if key in given
    }
    found.entry.update((key, hidden[key]) for key in _TAKEN if key in hidden)
    cwd = found.entry.get("cwd")
    if isinstance(cwd, str) and not cwd.startswith("${"):
        found.entry["cwd"] = str((file.parent / cwd).resolve())
    try:
        json.dumps(found.entry, ensure_ascii=False).encode()
        read_mcp_server(found.name, found.entry, where=str(file), directory=places.directory, secrets=SecretResolver())
    except (ConfigurationError, ValueError) as error:
        why = error.message if isinstance(error, ConfigurationError) else f"{file}: server {name!r} is not text"
        found.problem = why
    return found


def _settled(value: object, directory: Path) -> Any:
    """Return the value with the directory that VS Code would fill in."""
    if isinstance(value, str):
        return re.sub(r"\$\$(?!\{)", "$$$$", value).replace("${workspaceFolder}", str(directory))
    if isinstance(value, list):
        return [_settled(item, directory) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _settled(item, directory) for key, item in value.items() if item is not None}
    return value


class _Hiding:
    """Puts variables in place of what looks like a secret."""

    def __init__(self, found: DiscoveredServer, secrets: dict[str, str]) -> None:
        self._found = found
        self._secrets = secrets

    def hide(self, key: str, value: object) -> Any:
        if key in ("env", "headers") and isinstance(value, Mapping):
            return {name: self._text(key, name, item) for name, item in value.items()}
        if key == "args" and isinstance(value, list):
            return self._args(value)
        return self._url(value) if key == "url" and isinstance(value, str) else value

    def _text(self, place: str, name: str, value: object) -> Any:
        if not isinstance(value, str):
            return value
        asked = _INPUT.search(value)
        if asked is not None:
            return _INPUT.sub(lambda match: self._variable(place, match[1], match[0]), value)
        if _REFERENCE.search(value):
            return value
        scheme, blank, rest = value.partition(" ")
        if place == "headers" and blank and scheme.lower() in ("bearer", "basic", "token"):
            return f"{scheme} {self._variable(place, name, rest)}"
        if (_TELLING.search(name) and value) or _looks_secret(value):
            return self._variable(place, name, value)
        return value

    def _args(self, args: list[Any]) -> list[Any]:
        hidden: list[Any] = []
        before = ""
        for arg in args:
            if not isinstance(arg, str):
                hidden.append(arg)
                continue
            flag, equals, value = arg.partition("=")
            if arg.startswith("-") and equals:
                hidden.append(f"{flag}={self._text('args', flag.lstrip('-'), value)}")
            elif _REFERENCE.search(arg) or arg.startswith("-"):
                hidden.append(arg)
            elif "://" in arg:
                hidden.append(self._url(arg))
            else:
                hidden.append(self._text("args", before.lstrip("-") if before.startswith("-") else "", arg))
            before = arg
        return hidden

    def _url(self, url: str) -> str:
        try:
            parts = urlsplit(url)
            has_password = parts.password is not None
        except ValueError:
            return self._variable("url", "url", url)
        if has_password:
            return self._variable("url", "url", url)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        hidden = [(name, self._text("url", name, value)) for name, value in pairs]
        if hidden == pairs:
            return self._variable("url", "url", url) if redactor.text(url) != url else url
        return urlunsplit(parts._replace(query=urlencode(hidden, safe="${}")))

    def _variable(self, place: str, name: str, value: str) -> str:
        """Return a variable that stands for *value*: of the same name where it was one, else with the server's name."""
        plain = re.sub(r"\W+", "_", name).strip("_").upper() or "SECRET"
        longer = re.sub(r"\W+", "_", f"{self._found.name}_{plain}").strip("_").upper()
        plain, longer = (f"_{each}" if each[0].isdigit() else each for each in (plain, longer))
        for wanted in (plain if place == "env" else longer, longer, f"{longer}_2", f"{longer}_3"):
            if self._secrets.setdefault(wanted, value) == value:
                self._found.variables[wanted] = f"{place} {name}".strip()
                return f"${{{wanted}}}"
        return "${SECRET}"


def _looks_secret(value: str) -> bool:
    """Return whether it is like the keys that programs make: long, without blanks, and without order."""
    if redactor.text(value) != value:
        return True
    if len(value) < _LONG or not re.fullmatch(r"[\w+=.~-]+", value):
        return False
    if not (re.search(r"\d", value) and re.search(r"[A-Za-z]", value)):
        return False
    counts = Counter(value)
    return -sum(n / len(value) * math.log2(n / len(value)) for n in counts.values()) >= _BITS
