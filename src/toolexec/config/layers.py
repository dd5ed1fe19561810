"""The layers of settings, and how they lie on each other: defaults, files, environment, flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolexec.config.blocks import BLOCKS, KEYS, Key
from toolexec.config.documents import SERVER_KEYS, Document
from toolexec.config.kinds import TABLES, ValueRefusedError, plain, shown
from toolexec.config.mistakes import Mistakes, did_you_mean
from toolexec.config.positions import Path as Place
from toolexec.config.toolsets import BLOCK as TOOLSETS
from toolexec.config.toolsets import ToolsetEntry
from toolexec.model.redaction import redactor

__all__ = ["ENVIRONMENT_PREFIX", "Layers", "Value"]

ENVIRONMENT_PREFIX: Final = "TOOLEXEC_"
_SERVERS: Final = "mcpservers"
_FOREIGN_TOP: Final = ("inputs", "$schema", "mcp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """The value of a key, and where it comes from; `layer` is default, file, environment or flag.

    `where` names the place of each item of a list that came from a file.
    """

    value: Any
    layer: str = "default"
    origin: str = "default"
    where: Callable[[Place], str] = field(default=lambda _: "", repr=False)


class Layers:
    """Takes one layer after the other; of each key, the last value given counts."""

    def __init__(self, mistakes: Mistakes) -> None:
        self.values: dict[str, Value] = {path: Value(value=key.default) for path, key in KEYS.items()}
        self.server_entries: dict[str, tuple[Any, str]] = {}
        self.toolset_entries: dict[str, ToolsetEntry] = {}
        self._mistakes = mistakes

    # -- files --------------------------------------------------------------------------------------------------

    def add_file(self, document: Document) -> None:
        """Take the settings of a file; its servers are no settings."""
        for name, value in document.data.items():
            if name in SERVER_KEYS or name in _FOREIGN_TOP:
                continue
            if name == TOOLSETS:
                self._add_toolsets(document, value)
            else:
                self._add_block(document, name, value, (name,))

    def _add_toolsets(self, document: Document, table: Any) -> None:
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where((TOOLSETS,)), f"{TOOLSETS} must be a table of toolsets")
            return
        for name, data in table.items():
            place = (TOOLSETS, str(name))
            self.toolset_entries[str(name)] = ToolsetEntry(
                data=plain(data), where=document.where(place), origin=document.origin(place)
            )

    def _add_block(self, document: Document, block: str, table: Any, place: Place) -> None:
        if block not in BLOCKS and not any(name.startswith(f"{block}.") for name in BLOCKS):
            close = _where_it_belongs(str(place[-1]))
            known = [*dict.fromkeys(name.partition(".")[0] for name in BLOCKS), TOOLSETS, SERVER_KEYS[0]]
            self._mistakes.add(
                document.where(place), f"unknown key {_name(place)}; {close or did_you_mean(str(place[-1]), known)}"
            )
            return
        if not isinstance(table, Mapping):
            self._mistakes.add(document.where(place), f"{_name(place)} must be a table of settings")
            return
        inner = [name for name in BLOCKS if name.startswith(f"{block}.")]
        for name, value in table.items():
            path, here = f"{block}.{name}", (*place, str(name))
            if path in inner:
                self._add_block(document, path, value, here)
            elif path in KEYS:
                self._add_from_file(document, KEYS[path], value, here)
            else:
                known = [key.name for key in KEYS.values() if key.block == block]
                known += [nested.rpartition(".")[2] for nested in inner]
                close = did_you_mean(str(name), known)
                if not close.startswith("did"):
                    close = _where_it_belongs(str(name)) or close
                self._mistakes.add(document.where(here), f"unknown key {_name(here)}; {close}")

    def _add_from_file(self, document: Document, key: Key, value: Any, place: Place) -> None:
        where = document.where(place)
        try:
            read = key.kind.read(plain(value))
        except ValueRefusedError:
            self._refuse(key, where, value)
            return
        if key.kind.locate is not None:
            read = key.kind.locate(read, document.file.parent)
        self.values[key.path] = Value(
            value=read,
            layer="file",
            origin=document.origin(place),
            where=lambda rest: document.where((*place, *rest)),
        )

    # -- environment and flags ----------------------------------------------------------------------------------

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Take the variables `TOOLEXEC_BLOCK__KEY`; others are none of ours."""
        by_name = {key.variable: key for key in KEYS.values()}
        for name in sorted(environment):
            rest = name[len(ENVIRONMENT_PREFIX) :]
            if not name.startswith(ENVIRONMENT_PREFIX) or "__" not in rest:
                continue
            block, _, key = rest.partition("__")
            if block.lower() == _SERVERS and key:
                self._add_server(name, key, environment[name])
            elif block.lower() == TOOLSETS and key:
                self._add_toolset(name, key, environment[name])
            elif name in by_name:
                self._add_text(by_name[name], environment[name], "environment", name)
            else:
                self._mistakes.add("", f"unknown variable {name}; {did_you_mean(name, by_name).partition(', ')[0]}")

    def _add_server(self, variable: str, name: str, text: str) -> None:
        entry = _json_object(text)
        if entry is None:
            self._mistakes.add(variable, "it must be one server as a JSON object, as in mcpServers")
            return
        self.server_entries[name] = entry, variable

    def _add_toolset(self, variable: str, name: str, text: str) -> None:
        """Take a toolset from a variable in place of the one with this name, whatever its case; or add it."""
        data = _json_object(text)
        if data is None:
            self._mistakes.add(variable, f"it must be one toolset as a JSON object, as in {TOOLSETS}")
            return
        known = next((each for each in self.toolset_entries if _folded(each) == _folded(name)), name.lower())
        self.toolset_entries[known] = ToolsetEntry(data=data, where=variable, origin=variable)

    def add_flags(self, flags: Mapping[str, Any], names: Mapping[str, str]) -> None:
        """Take what the command line says: texts or values by the path of their key; *names* has what was typed."""
        for path, value in flags.items():
            typed = names.get(path, f"--set {path}")
            key = KEYS.get(path)
            if key is None:
                self._mistakes.add(typed, f"unknown key {path}; {_nearest_path(path)}")
            elif isinstance(value, str):
                self._add_text(key, value, "flag", typed)
            else:
                self._add_value(key, value, "flag", typed)

    def _add_text(self, key: Key, text: str, layer: str, origin: str) -> None:
        try:
            value = key.kind.parse(text)
        except ValueRefusedError:
            self._mistakes.add(origin, f"{key.path} must be {key.kind.expects}, written as JSON")
            return
        self._add_value(key, value, layer, origin)

    def _add_value(self, key: Key, value: Any, layer: str, origin: str) -> None:
        try:
            read = key.kind.read(value)
        except ValueRefusedError:
            self._refuse(key, origin, value)
            return
        if key.kind.locate is not None:
            read = key.kind.locate(read, None)
        self.values[key.path] = Value(value=read, layer=layer, origin=origin, where=lambda _: origin)

    def _refuse(self, key: Key, where: str, value: Any) -> None:
        got = "" if key.secret else f", not {redactor.text(shown(value))}"
        self._mistakes.add(where, f"{key.path} must be {key.kind.expects}{got}")


def _json_object(text: str) -> Mapping[str, Any] | None:
    try:
        entry = TABLES.parse(text)
    except ValueRefusedError:
        return None
    return entry if isinstance(entry, Mapping) else None


def _folded(name: str) -> str:
    return name.lower().replace("-", "_")


def _name(place: Place) -> str:
    return ".".join(map(str, place))


def _where_it_belongs(name: str) -> str:
    """The block of a key that stands at the top of a file by mistake."""
    blocks = [key.block for key in KEYS.values() if key.name == name]
    return f"it belongs into [{blocks[0]}]" if len(blocks) == 1 else ""


def _nearest_path(path: str) -> str:
    block, _, name = path.rpartition(".")
    known = [key.name for key in KEYS.values() if key.block == block]
    if known:
        return did_you_mean(name, known)
    found = did_you_mean(path, KEYS)
    return found if found.startswith("did") else f"there are the blocks {', '.join(BLOCKS)}"
