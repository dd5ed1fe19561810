"""The layers of settings, and how they lie on each other: defaults, files, environment, flags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, Protocol

from pydantic import ValidationError

from toolexec.config.blocks import BLOCKS, KEYS, Key, Settings
from toolexec.config.documents import SERVER_KEYS, Document
from toolexec.config.entries import ENDPOINTS, EndpointEntry, NamedTable
from toolexec.config.formats import Place
from toolexec.config.journals import BLOCK as JOURNALS
from toolexec.config.journals import journal_key, journal_keys, read_table, take_tables
from toolexec.config.kinds import plain, shown
from toolexec.config.loaded import Value
from toolexec.config.mistakes import Mistakes
from toolexec.config.providers import BLOCK as PROVIDERS
from toolexec.config.providers import ProviderEntry
from toolexec.config.queues import BLOCK as QUEUES
from toolexec.config.tools import BLOCK as TOOLS
from toolexec.config.toolsets import BLOCK as TOOLSETS
from toolexec.config.transforms import BLOCK as TRANSFORMS
from toolexec.config.transforms import TransformEntry
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.errors.moved import MOVED_SETTINGS, MovedSetting
from toolexec.model.json_document import KeyTwiceError, read_document
from toolexec.model.json_value import JSONDict, JSONObject

ENVIRONMENT_PREFIX: Final = "TOOLEXEC_"
_SERVERS: Final = "mcpservers"
_FOREIGN_TOP: Final = ("inputs", "$schema", "mcp")


class Source(Protocol):
    """Where settings come from: a document, a variable or a flag."""

    @property
    def directory(self) -> Path | None:
        """What names of files count from; None is the current directory."""

    def line(self, place: Place) -> int:
        """Return the line of what is at *place*, or 0."""
        ...

    def where(self, place: Place) -> str:
        """Return what messages name *place*."""
        ...

    def origin(self, place: Place) -> str:
        """Return what `config show --origin` names *place*."""
        ...


@dataclass(frozen=True, slots=True)
class _Named:
    """A variable or a flag."""

    name: str
    directory: None = None

    def line(self, place: Place) -> int:
        return 0

    def where(self, place: Place) -> str:
        return self.name

    origin = where


class Layers:
    """Takes one layer after the other; of each key, the last value given counts."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.values: dict[str, Value] = {path: Value(value=key.default) for path, key in KEYS.items()}
        self.server_entries: dict[str, tuple[Any, str]] = {}
        self.tool_entries: dict[str, NamedTable] = {}
        self.toolset_entries: dict[str, NamedTable] = {}
        self.endpoint_entries: dict[str, EndpointEntry] = {}
        self.queue_entries: dict[str, NamedTable] = {}
        self.transform_entries: dict[str, TransformEntry] = {}
        self.provider_entries: dict[str, ProviderEntry] = {}
        self.journal_values: dict[str, dict[str, Value]] = {}
        """The settings of each kind of journal that is set up, by name."""
        self.moved: dict[str, JSONDict] = {}
        """The settings of sandboxes of packages that stand under old keys, by kind."""
        self.hints: list[str] = []
        self._refused: set[str] = set()
        self._mistakes = mistakes

    # -- files --------------------------------------------------------------------------------------------------

    def add_file(self, document: Document) -> None:
        """Take the settings of a file; its servers do not count as settings."""
        table = {name: value for name, value in document.data.items() if name not in (*SERVER_KEYS, *_FOREIGN_TOP)}
        if TOOLS in table:
            self._add_named(document, TOOLS, table.pop(TOOLS), self.tool_entries)
        if TOOLSETS in table:
            self._add_named(document, TOOLSETS, table.pop(TOOLSETS), self.toolset_entries)
        if ENDPOINTS in table:
            self._add_endpoints(document, table.pop(ENDPOINTS))
        if QUEUES in table:
            self._add_named(document, QUEUES, table.pop(QUEUES), self.queue_entries)
        if TRANSFORMS in table:
            self._add_transforms(document, table.pop(TRANSFORMS))
        if PROVIDERS in table:
            self._add_providers(document, table.pop(PROVIDERS))
        self._take(plain(table), document, "file")

    def _add_named(self, document: Document, block: str, table: object, entries: dict[str, NamedTable]) -> None:
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where((block,)), f"{block} must be a table of {block}")
            return
        for name, data in table.items():
            place = (block, str(name))
            entries[str(name)] = NamedTable(
                data=plain(data), where=document.where(place), origin=document.origin(place)
            )

    def _add_transforms(self, document: Document, table: object) -> None:
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where((TRANSFORMS,)), f"{TRANSFORMS} must be a table of transforms")
            return
        for tool_id, data in table.items():
            where = document.where((TRANSFORMS, str(tool_id)))
            self.transform_entries[str(tool_id)] = TransformEntry(data=plain(data), where=where)

    def _add_providers(self, document: Document, table: object) -> None:
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where((PROVIDERS,)), f"{PROVIDERS} must be a table of providers")
            return
        for name, data in table.items():
            place = (PROVIDERS, str(name))
            self.provider_entries[str(name)] = ProviderEntry(
                data=plain(data),
                where=lambda rest, place=place: document.where((*place, *rest)),
                origin=document.origin(place),
                directory=document.directory,
            )

    def _add_endpoints(self, document: Document, table: object) -> None:
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where((ENDPOINTS,)), f"{ENDPOINTS} must be a table of endpoints")
            return
        for name, data in table.items():
            place = (ENDPOINTS, str(name))
            self.endpoint_entries[str(name)] = EndpointEntry(
                data=plain(data),
                where=lambda rest, place=place: document.where((*place, *rest)),
                origin=document.origin(place),
                directory=document.directory,
            )

    def _take(self, table: Mapping[str, object], source: Source, layer: str) -> None:
        """Validate *table* as a whole, report what is wrong where it is, and take the rest."""
        table = dict(table)
        for kind, own in take_tables(table):
            self._take_journal(kind, own, source, layer)
        for path, moved, value in _take_moved(table):
            where = source.where(tuple(path.split(".")))
            if moved.is_fit(value):
                self.moved.setdefault(moved.kind, {})[moved.name] = value
                self.hints.append(f"{where}: {_hint_at(path, moved)}")
            else:
                self._mistakes.add(where, f"{path} must be {moved.expects}")
        given = dict(_given(table))
        try:
            read = Settings.model_validate(table, context=source.directory)
        except ValidationError as error:
            wrong = {_place(each["loc"]): each["type"] for each in error.errors(include_url=False, include_input=False)}
            for place in sorted(wrong, key=source.line):
                self._mistakes.add(source.where(place), _problem(place, wrong[place], given, table))
            given = {place: value for place, value in given.items() if place not in wrong}
            read = Settings.model_validate(_nested(given), context=source.directory)
        for place in given:
            path = ".".join(place)
            self.values[path] = Value(
                value=read.get(path),
                layer=layer,
                origin=source.origin(place),
                where=lambda rest, place=place: source.where((*place, *rest)),
            )

    def _take_journal(self, kind: str, table: object, source: Source, layer: str) -> None:
        """Take a table of the settings of one kind of journal."""
        place = (JOURNALS, kind)
        try:
            values, wrong = read_table(kind, table, source.directory)
            keys = journal_keys(kind)
        except ConfigurationError as error:  # the plugin is absent, or cannot be used
            self._mistakes.add(source.where(place), error.message)
            return
        for name in sorted(wrong, key=lambda name: source.line((*place, name))):
            self._mistakes.add(source.where((*place, name) if name else place), wrong[name])
        kept = self.journal_values.setdefault(kind, {name: Value(value=key.default) for name, key in keys.items()})
        for name, value in values.items():
            own = (*place, name)
            kept[name] = Value(
                value=value,
                layer=layer,
                origin=source.origin(own),
                where=lambda rest, own=own: source.where((*own, *rest)),
            )

    # -- environment and flags ----------------------------------------------------------------------------------

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Take the variables `TOOLEXEC_BLOCK__KEY`; names of another form are ignored."""
        by_name = {key.variable: key for key in KEYS.values()}
        for name in sorted(environment):
            rest = name[len(ENVIRONMENT_PREFIX) :]
            if not name.startswith(ENVIRONMENT_PREFIX) or "__" not in rest:
                continue
            block, _, key = rest.partition("__")
            path = rest.lower().replace("__", ".")
            if block.lower() == _SERVERS and key:
                self._add_server(name, key, environment[name])
            elif block.lower() == TOOLSETS and key:
                self._add_toolset(name, key, environment[name])
            elif block.lower() == ENDPOINTS and key:
                self._add_endpoint(name, key, environment[name])
            elif block.lower() == PROVIDERS and key:
                self._add_provider(name, key, environment[name])
            elif (found := by_name.get(name) or self._journal_key(path, name)) is not None:
                self._add_value(found, environment[name], "environment", name)
            elif (table := _moved_table(path, environment[name])) is not None:
                self._take(table, _Named(name), "environment")
            elif name not in self._refused:
                hint = did_you_mean(name, by_name).partition(", ")[0]
                self._mistakes.add("", f"unknown variable {name}; {hint}")

    def _object(self, variable: str, text: str, what: str, block: str) -> JSONObject | None:
        """Return the object that a variable has as JSON; None, and a mistake, for anything else."""
        entry: object = None
        try:
            entry = read_document(text)
        except KeyTwiceError as error:
            self._mistakes.add(variable, str(error))
            return None
        except (ValueError, RecursionError):
            pass
        if isinstance(entry, Mapping):
            return entry
        self._mistakes.add(variable, f"it must be one {what} as a JSON object, as in {block}")
        return None

    def _add_server(self, variable: str, name: str, text: str) -> None:
        entry = self._object(variable, text, "server", "mcpServers")
        if entry is None:
            return
        self.server_entries[name] = entry, variable

    def _add_toolset(self, variable: str, name: str, text: str) -> None:
        """Take a toolset from a variable in place of the one with this name, whatever its case; or add it."""
        data = self._object(variable, text, "toolset", TOOLSETS)
        if data is None:
            return
        known = next((each for each in self.toolset_entries if folded(each) == folded(name)), name.lower())
        self.toolset_entries[known] = NamedTable(data=data, where=variable, origin=variable)

    def _add_endpoint(self, variable: str, name: str, text: str) -> None:
        """Take an endpoint from a variable in place of the one with this name, whatever its case; or add it."""
        data = self._object(variable, text, "endpoint", ENDPOINTS)
        if data is None:
            return
        known = next((each for each in self.endpoint_entries if folded(each) == folded(name)), name.lower())
        self.endpoint_entries[known] = EndpointEntry(data=data, where=lambda _: variable, origin=variable)

    def _add_provider(self, variable: str, name: str, text: str) -> None:
        """Take a provider from a variable in place of the one with this name, whatever its case; or add it."""
        data = self._object(variable, text, "provider", PROVIDERS)
        if data is None:
            return
        known = next((each for each in self.provider_entries if folded(each) == folded(name)), name.lower())
        self.provider_entries[known] = ProviderEntry(data=data, where=lambda _: variable, origin=variable)

    def add_flags(self, flags: Mapping[str, object], names: Mapping[str, str]) -> None:
        """Take what the command line says: strings or values by the path of their key; *names* has what was typed."""
        for path, value in flags.items():
            typed = names.get(path, f"--set {path}")
            key = KEYS.get(path) or self._journal_key(path, typed)
            if key is None and typed in self._refused:
                continue
            if (table := _moved_table(path, value)) is not None:
                self._take(table, _Named(typed), "flag")
            elif key is None:
                self._mistakes.add(typed, f"unknown key {path}; {_nearest_path(path)}")
            else:
                self._add_value(key, value, "flag", typed)

    def _journal_key(self, path: str, name: str) -> Key | None:
        """Return the setting of a journal that has this path, if there is one. Where its plugin cannot be used, that is
        a mistake of the variable or the flag *name*, which is `_refused` then."""
        try:
            return journal_key(path)
        except ConfigurationError as error:
            self._mistakes.add(name, error.message)
            self._refused.add(name)
            return None

    def _add_value(self, key: Key, value: object, layer: str, name: str) -> None:
        """Take a value or a string from the variable or the flag *name*."""
        try:
            read = key.kind.parse(value) if isinstance(value, str) else value
        except KeyTwiceError as error:
            self._mistakes.add(name, f"{key.path}: {error}")
            return
        except ValueError:
            self._mistakes.add(name, f"{key.path} must be {key.kind.expects}, written as JSON")
            return
        self._take(key.table(read), _Named(name), layer)


def _given(table: Mapping[str, object], outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the place and the value of every key that there is in *table*."""
    for name, value in table.items():
        place = (*outer, name)
        path = ".".join(place)
        if path in BLOCKS and isinstance(value, Mapping):
            yield from _given(value, place)
        elif path in KEYS and len(place) == path.count(".") + 1:
            yield place, value


def _nested(given: Mapping[tuple[str, ...], object]) -> JSONDict:
    table: JSONDict = {}
    for (*outer, name), value in given.items():
        reduce(lambda inner, each: inner.setdefault(each, {}), outer, table)[name] = value
    return table


def _place(location: Place) -> Place:
    """Return where the key, the table or the unknown key is that pydantic names, or names a part of."""
    keys = (location[:length] for length in range(1, len(location)) if ".".join(map(str, location[:length])) in KEYS)
    return next(keys, location)


def _problem(place: Place, error: str, given: Mapping[tuple[str, ...], object], table: Mapping[str, Any]) -> str:
    path = ".".join(map(str, place))
    if error == "extra_forbidden":
        return f"unknown key {path}; {_meant(place, is_table=_is_table(place, table))}"
    if path in BLOCKS:
        return f"{path} must be a table of settings"
    from toolexec.model.redaction import redactor  # which few programs that start need

    key = KEYS[path]
    got = "" if key.secret else f", not {redactor.text(shown(given[tuple(path.split('.'))]))}"
    return f"{path} must be {key.kind.expects}{got}"


def _is_table(place: Place, table: Mapping[str, Any]) -> bool:
    value: Any = table
    for each in place:
        value = value.get(each) if isinstance(value, Mapping) else None  # pyright: ignore[reportUnknownMemberType]
    return isinstance(value, Mapping)


def _meant(place: Place, *, is_table: bool) -> str:
    """Return which key or block is meant by the unknown one at *place*. A table is not a key of another block: there is
    none whose value is one."""
    *outer, name = map(str, place)
    elsewhere = "" if is_table else _where_it_belongs(name)
    if not outer:
        return elsewhere or did_you_mean(
            name, [*Settings.model_fields, TOOLSETS, ENDPOINTS, QUEUES, PROVIDERS, SERVER_KEYS[0]]
        )
    close = did_you_mean(name, BLOCKS[".".join(outer)].names())
    return close if close.startswith("did") else elsewhere or close


def _where_it_belongs(name: str) -> str:
    """Return the block of a key that is in the wrong one; that of another command counts only where it is alone."""
    blocks = [key.block for key in KEYS.values() if key.name == name]
    blocks = [block for block in blocks if block != "runtime_server"] or blocks
    return f"it belongs into [{blocks[0]}]" if len(blocks) == 1 else ""


def folded(name: str) -> str:
    """Return a server's or a toolset's name as variables have it: without case, and without hyphens."""
    return name.lower().replace("-", "_")


def _nearest_path(path: str) -> str:
    block, _, name = path.rpartition(".")
    known = [key.name for key in KEYS.values() if key.block == block]
    if known:
        return did_you_mean(name, known)
    found = did_you_mean(path, KEYS)
    return found if found.startswith("did") else f"there are the blocks {', '.join(BLOCKS)}"


def _moved_table(path: str, value: object) -> JSONDict | None:
    """Return a variable or a flag with the old key *path* as the tables of a file would have it; None for a key that
    has not moved. A string is read as JSON where the setting is not one."""
    moved = MOVED_SETTINGS.get(path)
    if moved is None:
        return None
    if isinstance(value, str) and moved.fits is not str:
        with suppress(ValueError, RecursionError):  # then it does not fit, which is said with what is expected
            value = read_document(value)
    block, _, name = path.partition(".")
    return {block: {name: value}}


def _take_moved(table: JSONDict) -> Iterator[tuple[str, MovedSetting, Any]]:
    """Take the old keys out of the tables of a file; yield the path of each, its place now, and the value."""
    for path, moved in MOVED_SETTINGS.items():
        block, _, name = path.partition(".")
        given = table.get(block)
        if isinstance(given, Mapping) and name in given:
            table[block] = {key: value for key, value in given.items() if key != name}
            yield path, moved, given[name]


def _hint_at(path: str, moved: MovedSetting) -> str:
    """Return what to write in place of the old key."""
    return f'{path} is {moved.name} in the table of sandboxes.plugins with kind = "{moved.kind}" now; move it there'
