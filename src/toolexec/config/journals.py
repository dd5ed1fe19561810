"""The settings of journals that packages and plugins have: a table `[durable.KIND]` of what the plugin declares.

A plugin is imported when its table sets something. An empty table sets nothing, and needs no plugin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from toolexec.backend.plugins import JOURNALS, known_plugins, plugin_names
from toolexec.config.blocks import BLOCKS, Key, keys_of
from toolexec.config.declared import Block, of
from toolexec.config.kinds import shown
from toolexec.durable.journals import journal_plugin
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict

BLOCK: Final = "durable"


@cache
def _block_of(kind: str) -> type[Block]:
    class Table(Block):
        """The settings of one kind of journal: a class of its own for each, as its fields are added to it."""

    return of(journal_plugin(kind).settings_class())(Table)


@cache
def journal_keys(kind: str) -> Mapping[str, Key]:
    """Return the settings of the journals of *kind*, by name. Raises ConfigurationError for a plugin that cannot be
    used, and MissingExtraError for one whose package is absent."""
    return {key.name: key for key in keys_of(f"{BLOCK}.{kind}", _block_of(kind))}


def journal_key(path: str) -> Key | None:
    """Return the setting `durable.KIND.NAME` of a journal; None for another *path*. Raises as `journal_keys`."""
    block, _, rest = path.partition(".")
    kind, _, name = rest.partition(".")
    return journal_keys(kind).get(name) if block == BLOCK and name and _is_kind(kind) else None


def installed_keys() -> Iterator[Key]:
    """Yield the settings of all journals of packages and plugins that are installed, and can be used."""
    for kind in plugin_names(JOURNALS):
        with suppress(ConfigurationError):
            yield from journal_keys(kind).values()


def take_tables(table: JSONDict) -> Iterator[tuple[str, Any]]:
    """Take the tables of journals out of those of a file; yield each that sets something, with its kind."""
    given = table.get(BLOCK)
    if not isinstance(given, Mapping):
        return
    kinds = [str(name) for name in given if name not in BLOCKS[BLOCK].model_fields and _is_kind(str(name))]
    if kinds:
        table[BLOCK] = {name: value for name, value in given.items() if name not in kinds}
    yield from ((kind, given[kind]) for kind in kinds if given[kind] != {})


def read_table(kind: str, table: Any, directory: Path | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the values of a table of the journals of *kind*, and what is wrong with each of the others, by name; "" is
    the name of the table itself. Names of files count from *directory*. Raises as `journal_keys`."""
    keys, block = journal_keys(kind), _block_of(kind)
    if not isinstance(table, Mapping):
        return {}, {"": f"{BLOCK}.{kind} must be a table of settings"}
    given, wrong = {str(name): value for name, value in table.items()}, dict[str, str]()
    try:
        read = block.model_validate(given, context=directory)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_input=False):
            name = str(each["loc"][0])
            wrong[name] = _problem(keys, f"{BLOCK}.{kind}.{name}", name, given[name])
        read = block.model_validate({name: given[name] for name in given.keys() - wrong.keys()}, context=directory)
    return {name: getattr(read, name) for name in given if name not in wrong}, wrong


def _problem(keys: Mapping[str, Key], path: str, name: str, value: object) -> str:
    key = keys.get(name)
    if key is None:
        return f"unknown key {path}; {did_you_mean(name, keys)}"
    from toolexec.model.redaction import redactor  # which few programs that start need

    return f"{path} must be {key.kind.expects}" + ("" if key.secret else f", not {redactor.text(shown(value))}")


def _is_kind(name: str) -> bool:
    return name in known_plugins(JOURNALS)
