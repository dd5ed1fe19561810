"""Set up a client to start `toolexec serve`, and take that back: what its file is to be, and what it was before.

Only the entry of toolexec is changed; what a person wrote around it, and into it, stays. The file as it was is kept in
the state directory, which only the user can read: it may have keys in it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from toolexec.config.clients import Client, Machine, Scope
from toolexec.config.formats import UnreadableError, parse_json, parse_toml
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.model.redaction import redactor
from toolexec.process.atomic import replace_files

_MOST: Final = 16 * 1024**2
_INPUTS: Final = "inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a file is and what it is to be; None is a file that is not there. `kept` says what a person changed after
    the installation, and that it therefore stays."""

    client: Client
    scope: Scope
    name: str
    file: Path
    before: str | None
    after: str | None
    undo: bool = False
    kept: bool = False
    inputs: tuple[JSONDict, ...] = field(default=())

    @property
    def changes(self) -> bool:
        """Whether the file becomes another one."""
        return self.before != self.after

    def diff(self) -> list[str]:
        """Return the lines that go and come, with three lines around them, as `diff -u` prints them. What looks like a
        key is left out of them: the file may have those of other servers."""
        old, new = (redactor.text(text or "").splitlines() for text in (self.before, self.after))
        return [*difflib.unified_diff(old, new, str(self.file), str(self.file), lineterm="")]


def plan_install(
    client: Client,
    scope: Scope,
    machine: Machine,
    *,
    name: str,
    command: str,
    args: Sequence[str],
    variables: Sequence[str] = (),
) -> Change:
    """Return the change that sets a client up; nothing is written.

    An entry of this name keeps the keys that it has beside those that start the server, and the values of variables.
    Raises ConfigurationError: the client has no such scope, its file cannot be read or is broken (with its line), or
    has its servers in a form that cannot be changed without rewriting what a person wrote, or a server of this name
    that is not started but reached by its address.
    """
    file = client.file(scope, machine)
    before = _read(file)
    old = _data(client, file, before)
    text = before if before and before.strip("\ufeff \t\r\n") else ("" if client.toml else "{}\n")
    wanted = client.entry(command, args, variables)
    present = _entry(old, client, name)
    inputs = tuple(client.inputs(name, variables))
    if isinstance(present, Mapping):
        if present and "command" not in present:
            raise ConfigurationError(
                f"{file} has a server {name!r} that is not started but reached by its address; it was not touched. "
                "Remove it, or give this one another name with --name"
            )
        env = present.get("env")
        if isinstance(env, Mapping) and isinstance(wanted.get("env"), dict):
            wanted["env"] = {**wanted["env"], **env}
        passed = present.get(client.passes)
        if client.passes and isinstance(passed, list):
            wanted[client.passes] = [*passed, *(each for each in wanted.get(client.passes, []) if each not in passed)]
    after = _edited(client, file, text, lambda part: _with_entry(client, part, name, present, wanted, inputs))
    expected = _expected(old, client, name, {**(present if isinstance(present, Mapping) else {}), **wanted}, inputs)
    _check(client, file, after, expected)
    return Change(client=client, scope=scope, name=name, file=file, before=before, after=after, inputs=inputs)


def plan_undo(client: Client, scope: Scope, machine: Machine, *, name: str, state: Path) -> Change:
    """Return the change that takes an installation back; nothing is written.

    A file that nothing has changed since becomes what it was, to the byte; one that has been changed loses the entry
    and keeps the rest. Raises ConfigurationError as `plan_install` does, and where there is nothing to take back.
    """
    file = client.file(scope, machine)
    before, record = _read(file), _record(file, state)
    old = _data(client, file, before)
    if record is not None and record.get("name") == name and record.get("sha256") == _digest(before):
        original = _read(_backup(file, state)) if record.get("existed") else None
        if original is not None or not record.get("existed"):
            return Change(
                client=client, scope=scope, name=name, file=file, before=before, after=original, undo=True, kept=False
            )
    if before is None or not isinstance(_entry(old, client, name), Mapping):
        raise ConfigurationError(f"{file} has no server {name!r}: there is nothing to undo")
    inputs = [each for each in (record or {}).get(_INPUTS, []) if isinstance(each, dict)]
    after = _edited(client, file, before, lambda part: _without_entry(client, part, name, inputs))
    table = {key: value for key, value in old.get(client.servers, {}).items() if key != name}
    expected = {**old, client.servers: table}
    if inputs and isinstance(old.get(_INPUTS), list):
        expected[_INPUTS] = [each for each in old[_INPUTS] if each not in inputs]
    _check(client, file, after, expected)
    return Change(client=client, scope=scope, name=name, file=file, before=before, after=after, undo=True, kept=True)


def entry_of(client: Client, scope: Scope, machine: Machine, name: str) -> Any:
    """Return what a client has under a name; None for nothing. Raises ConfigurationError for a file that is broken."""
    file = client.file(scope, machine)
    return _entry(_data(client, file, _read(file)), client, name)


def apply_change(change: Change, state: Path) -> Path | None:
    """Write what was planned, and return where the file is kept as it was; None where there was none.

    Raises ConfigurationError: the file has become another one meanwhile, or something cannot be written; then it is as
    it was.
    """
    file, kept = change.file, None
    if _read(file) != change.before:
        raise ConfigurationError(
            f"{file} was changed while you looked at it; nothing was written, run the command again"
        )
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = _record(file, state)
        fresh = record is None or record.get("sha256") != _digest(change.before)
        if change.before is not None and (fresh or change.undo):
            kept = _backup(file, state, undone=change.undo)
            replace_files({kept: _bytes(change.before)}, mode=0o600)
        elif record is not None and record.get("existed"):
            kept = _backup(file, state)
        if not change.undo:
            existed = change.before is not None if fresh else bool((record or {}).get("existed"))
            added = [*change.inputs] if fresh else [*(record or {}).get(_INPUTS, []), *change.inputs]
            facts = {"file": str(file), "client": change.client.name, "name": change.name, "existed": existed}
            facts |= {"sha256": _digest(change.after), _INPUTS: added}
            replace_files({_record_file(file, state): json.dumps(facts, indent=2)}, mode=0o600)
        if change.after is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if change.before is None and change.scope == "user" else None
            replace_files({file: _bytes(change.after)}, mode=mode)
        if change.undo:
            _record_file(file, state).unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot write {error.filename or file}: {error.strerror or error}") from error
    return kept


# -- the file -------------------------------------------------------------------------------------------


def _read(file: Path) -> str | None:
    try:
        if not file.exists():
            return None
        if file.stat().st_size > _MOST:
            raise ConfigurationError(f"{file} is longer than {_MOST // 1024**2} MiB; it was not touched")
        with file.open(encoding="utf-8", newline="") as stream:
            return stream.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8 (at byte {error.start}); it was not touched") from error
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from error


def _bytes(text: str) -> bytes:
    return text.encode()


def _data(client: Client, file: Path, text: str | None) -> dict[str, Any]:
    """Return what a file says; raises ConfigurationError, with the line, for one that is broken."""
    plain = (text or "").removeprefix("\ufeff")
    if not plain.strip():
        return {}
    try:
        parsed = parse_toml(plain) if client.toml else parse_json(plain)
        if not isinstance(parsed.data, dict):
            raise UnreadableError("it is not an object", 1)
    except (UnreadableError, RecursionError) as error:
        raise _broken(client, file, error) from error
    servers = parsed.data.get(client.servers)
    if servers is not None and not isinstance(servers, dict):
        line = parsed.line((client.servers,))
        where = f"{file}, line {line}" if line else str(file)
        raise ConfigurationError(f"{where}: {client.servers} is not a table of servers; it was not touched")
    return parsed.data


def _broken(client: Client, file: Path, error: Exception) -> ConfigurationError:
    line, reason = getattr(error, "line", None), getattr(error, "reason", "it nests too deeply")
    return ConfigurationError(
        f"{file} is not {'TOML' if client.toml else 'JSON'}{f', line {line}' if line else ''}: {reason}; it was not "
        "touched. Correct it, then run the command again",
        details={"file": str(file), "line": line},
    )


def _entry(data: Mapping[str, Any], client: Client, name: str) -> Any:
    servers = data.get(client.servers)
    return servers.get(name) if isinstance(servers, dict) else None


def _edited(client: Client, file: Path, text: str, edit: Any) -> str:
    """Return the text after *edit*; a byte order mark stays where it was."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    try:
        return mark + edit(text.removeprefix(mark))
    except (UnreadableError, ValueError) as error:
        raise _broken(client, file, error) from error


def _with_entry(
    client: Client, text: str, name: str, present: Any, wanted: JSONDict, inputs: Sequence[JSONDict]
) -> str:
    if client.toml:
        from toolexec.config.toml_edit import set_table

        return set_table(text, (client.servers, name), wanted)
    from toolexec.config.json_edit import append_item, set_member

    if not isinstance(present, Mapping):
        text = set_member(text, (client.servers, name), wanted)
    else:
        for key, value in wanted.items():
            if present.get(key) == value:
                continue
            if key == "env" and isinstance(present.get(key), Mapping):
                for variable, item in value.items():
                    if variable not in present[key]:
                        text = set_member(text, (client.servers, name, key, variable), item)
            else:
                text = set_member(text, (client.servers, name, key), value)
    known = parse_json(text).data
    listed: Any = known.get(_INPUTS) if isinstance(known, dict) else None
    ids = {each.get("id") for each in listed if isinstance(each, dict)} if isinstance(listed, list) else set[Any]()
    for each in inputs:
        if each["id"] not in ids:
            text = append_item(text, _INPUTS, each)
    return text


def _without_entry(client: Client, text: str, name: str, inputs: Sequence[JSONValue]) -> str:
    if client.toml:
        from toolexec.config.toml_edit import remove_table

        return remove_table(text, (client.servers, name))
    from toolexec.config.json_edit import remove_item, remove_member

    text = remove_member(text, (client.servers, name))
    for each in inputs:
        text = remove_item(text, _INPUTS, each)
    return text


def _expected(
    old: Mapping[str, Any], client: Client, name: str, entry: JSONDict, inputs: Sequence[JSONDict]
) -> dict[str, Any]:
    expected = {**old, client.servers: {**old.get(client.servers, {}), name: entry}}
    if inputs:
        listed = old.get(_INPUTS, [])
        ids = {each.get("id") for each in listed if isinstance(each, dict)}
        expected[_INPUTS] = [*listed, *(each for each in inputs if each["id"] not in ids)]
    return expected


def _check(client: Client, file: Path, after: str, expected: Mapping[str, Any]) -> None:
    """Raise ConfigurationError unless the new text says what it should, and nothing else."""
    try:
        found = _data(client, file, after)
    except ConfigurationError:
        found = None
    wanted = dict(expected)
    if found is not None and not wanted.get(client.servers) and not found.get(client.servers):
        found, wanted = ({**each, client.servers: {}} for each in (found, wanted))
    if found != wanted:
        raise ConfigurationError(
            f"{file} has its {client.servers} in a form that cannot be changed without rewriting it; it was not "
            "touched. Change it yourself: --print shows what belongs there"
        )


# -- what is kept ---------------------------------------------------------------------------------------


def _digest(text: str | None) -> str:
    return hashlib.sha256(_bytes(text)).hexdigest() if text is not None else ""


def _key(file: Path) -> str:
    return hashlib.sha256(str(file.absolute()).encode()).hexdigest()[:16]


def _backup(file: Path, state: Path, *, undone: bool = False) -> Path:
    return state / f"{_key(file)}-{'undone' if undone else 'before'}-{file.name.lstrip('.')}"


def _record_file(file: Path, state: Path) -> Path:
    return state / f"{_key(file)}.json"


def _record(file: Path, state: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(_record_file(file, state).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
