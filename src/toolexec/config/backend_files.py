"""Add a server to a file of settings, or take one out: what a person wrote around it stays, comments too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolexec.backend.mcp.files import server_table
from toolexec.backend.secrets.credentials import secrets_of_url
from toolexec.config.documents import MAX_BYTES
from toolexec.config.formats import UnreadableError, parse_json, parse_toml
from toolexec.config.providers import BLOCK as PROVIDERS
from toolexec.errors import ConfigurationError
from toolexec.model.ids import clean_segment
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.secret_keys import is_telling
from toolexec.process.atomic import replace_files

_EDITABLE: Final = (".toml", ".json")
_REFERENCES: Final = ("${", "secretref:")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """What a file of settings is, and what it is to be."""

    file: Path
    before: str
    after: str

    def apply(self) -> None:
        """Write the file as a whole. Raises ConfigurationError where another program has changed it meanwhile, or it
        cannot be written; then it is as it was."""
        self._write(self.before, self.after)

    def undo(self) -> None:
        """Write the file as it was; raises as `apply` does."""
        self._write(self.after, self.before)

    def _write(self, expected: str, text: str) -> None:
        if _read(self.file) != expected:
            raise _conflict(f"{self.file} was changed meanwhile")
        try:
            replace_files({self.file: text.encode()})
        except OSError as error:
            raise ConfigurationError(f"cannot write {self.file}: {error.strerror or error}") from error


def version_of(files: Sequence[Path]) -> str:
    """Return the version of the settings: another one after each change of one of their files."""
    digest = hashlib.sha256()
    for file in files:
        try:
            content = file.read_bytes()
        except OSError:
            content = b""
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:16]


def check_version(files: Sequence[Path], expected: str) -> None:
    """Raise ConfigurationError where the settings have another version than the *expected* one; "" is any."""
    if expected and (found := version_of(files)) != expected:
        raise _conflict(f"the settings have the version {found} and not {expected}: another admin has changed them")


def server_entry(
    command: Sequence[str],
    url: str,
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    sandbox: JSONObject | None = None,
) -> JSONDict:
    """Return the entry of a server that is started by *command*, in a *sandbox* if that has settings, or is at *url*.

    Raises ConfigurationError for both or neither, and for a secret that is not a reference: it would stand in the file.
    """
    if bool(command) == bool(url):
        raise ConfigurationError("give either the command that starts the server, after --, or its --url")
    for word, fields in (("--env", env), ("--header", headers)):
        for name, value in (fields or {}).items():
            if is_telling(name) and not any(each in value for each in _REFERENCES):
                raise ConfigurationError(
                    f"{word} {name} looks like a secret, and would stand in the file: give a reference in its place, "
                    f"such as {name}=secretref:env:NAME_OF_A_VARIABLE"
                )
    if secrets_of_url(url) and not any(each in url for each in _REFERENCES):
        raise ConfigurationError(
            "--url has a secret in it, which would stand in the file; use --header and a reference"
        )
    if url and env:
        raise ConfigurationError("--env is for a server that is started by a command; --header is for one at a URL")
    if url and sandbox:
        raise ConfigurationError("--sandbox is for a server that is started by a command; one at a URL runs elsewhere")
    if command and headers:
        raise ConfigurationError("--header is for a server at a URL; --env is for one that is started by a command")
    if url:
        return {"url": url, **({"headers": dict(headers)} if headers else {})}
    first, *rest = command
    entry: JSONDict = {"command": first, "args": rest, **({"env": dict(env)} if env else {})}
    if sandbox:
        entry["sandbox"] = sandbox["engine"] if {*sandbox} == {"engine"} else dict(sandbox)
    return entry


def plan_add(files: Sequence[Path], name: str, entry: JSONObject, *, replace: bool = False) -> FileChange:
    """Return the change that adds an MCP server to the last of *files* that is TOML or JSON, or with *replace* takes
    the place of the one of its name, wherever that is; nothing is written.

    Raises ConfigurationError: there is such a backend already, no file can be changed, or one has its servers in a form
    that cannot be changed without rewriting what a person wrote.
    """
    if not name or clean_segment(name) != name:
        raise ConfigurationError(f"{name!r} cannot be the name of a backend; try {clean_segment(name)!r}")
    editable = [file for file in files if file.suffix.lower() in _EDITABLE]
    found = _found(editable, name)
    if found is not None and not (replace and found[1][0] != PROVIDERS):
        raise ConfigurationError(
            f"a backend named {name} is there already, in {found[0]}; remove it first, or choose another name",
            code="backend_exists",
        )
    if not editable:
        raise ConfigurationError(
            f"none of these files can be changed for you, only TOML and JSON: {', '.join(map(str, files))}; write the "
            "server into one yourself: a running server takes it over"
        )
    file = found[0] if found is not None else editable[-1]
    before = _read(file)
    data = _data(file, before)
    place = found[1][:-1] if found is not None else server_table(data)[0] or ("mcpServers",)
    text = _without(file, before, found[1]) if found is not None else before
    after = _with(file, text, (*place, name), entry)
    base = _changed(data, found[1], None) if found is not None else data
    return _checked(file, before, after, _changed(base, (*place, name), entry))


def plan_remove(files: Sequence[Path], name: str, origin: str = "") -> FileChange:
    """Return the change that takes an MCP server or a provider out of the one of *files* that has it; nothing is
    written.

    Raises ConfigurationError: none of the files has it (*origin* says where it comes from then), or the one that has it
    cannot be changed without rewriting what a person wrote.
    """
    found = _found([file for file in files if file.suffix.lower() in _EDITABLE], name)
    if found is None:
        where = f"{name} comes from {origin}" if origin else f"there is no backend named {name} in these files"
        raise ConfigurationError(
            f"{where}; only servers and providers of the TOML and JSON files that are named with -c can be removed"
        )
    file, place = found
    before = _read(file)
    return _checked(file, before, _without(file, before, place), _changed(_data(file, before), place, None))


def _found(files: Sequence[Path], name: str) -> tuple[Path, tuple[str, ...]] | None:
    """Return the file that has a server or provider of this name, and where in it."""
    for file in files:
        data = _data(file, _read(file))
        place, servers = server_table(data)
        for at, table in ((place, servers), ((PROVIDERS,), data.get(PROVIDERS))):
            for key in table if isinstance(table, Mapping) else ():
                if clean_segment(str(key)) == name:
                    return file, (*at, str(key))
    return None


def _read(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", newline="") as stream:
            text = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8 text") from error
    if len(text) > MAX_BYTES:
        raise ConfigurationError(f"{file} has more than {MAX_BYTES // 1024**2} MiB")
    return text


def _data(file: Path, text: str) -> dict[str, Any]:
    plain = text.removeprefix("\ufeff")
    is_toml = file.suffix.lower() == ".toml"
    if not plain.strip() and is_toml:
        return {}
    try:
        data = (parse_toml if is_toml else parse_json)(plain).data
    except (UnreadableError, RecursionError) as error:
        line = f", line {error.line}" if isinstance(error, UnreadableError) and error.line else ""
        raise ConfigurationError(f"{file}{line} cannot be read: correct it first; nothing was changed") from error
    if not isinstance(data, dict):
        raise ConfigurationError(f"{file} is not a table of settings; nothing was changed")
    return data


def _with(file: Path, text: str, place: tuple[str, ...], entry: JSONObject) -> str:
    if file.suffix.lower() == ".toml":
        from toolexec.config.toml_edit import set_table

        return set_table(text, place, entry)
    from toolexec.config.json_edit import set_member

    return _marked(text, lambda plain: set_member(plain, place, dict(entry)))


def _without(file: Path, text: str, place: tuple[str, ...]) -> str:
    if file.suffix.lower() == ".toml":
        from toolexec.config.toml_edit import remove_table

        return remove_table(text, place)
    from toolexec.config.json_edit import remove_member

    return _marked(text, lambda plain: remove_member(plain, place))


def _marked(text: str, edit: Any) -> str:
    """Return the text after *edit*; a byte order mark stays where it was."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    return mark + edit(text.removeprefix(mark))


def _changed(data: Mapping[str, Any], place: tuple[str, ...], entry: JSONObject | None) -> dict[str, Any]:
    """Return the data with *entry* at *place*, or without what is there."""
    key, *rest = place
    if rest:
        return {**data, key: _changed(data.get(key, {}), tuple(rest), entry)}
    return {name: each for name, each in data.items() if name != key} | ({} if entry is None else {key: dict(entry)})


def _checked(file: Path, before: str, after: str, expected: Mapping[str, Any]) -> FileChange:
    """Return the change; raises ConfigurationError unless the new text says what it should, and nothing else."""
    try:
        found = _data(file, after)
    except ConfigurationError:
        found = None
    if found is None or _full(found) != _full(expected):
        raise ConfigurationError(
            f"{file} has its servers in a form that cannot be changed without rewriting it; it was not touched. Change "
            "it yourself: a running server takes it over"
        )
    return FileChange(file=file, before=before, after=after)


def _full(data: Any) -> Any:
    """Return the data without tables that are empty: the last entry may take its table with it."""
    if not isinstance(data, Mapping):
        return data
    full = {name: _full(each) for name, each in data.items()}
    return {name: each for name, each in full.items() if each != {}}


def _conflict(why: str) -> ConfigurationError:
    return ConfigurationError(f"{why}; nothing was changed, look at it and try again", code="version_conflict")
