"""Definitions in files of settings."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from toolexec.errors import ConfigurationError
from toolexec.errors.extras import extra_needed
from toolexec.model.json_document import read_document, twice
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
from toolexec.model.settings import check_settings

T = TypeVar("T")
_NOTHING: Final[Mapping[str, str]] = {}
_MAX_BYTES: Final = 4 << 20


def read_definition_file(path: str | Path, where: str) -> JSONDict:
    """Return the mapping in a TOML, YAML or JSON file, which has at most 4 MiB; what its name ends with says which.

    Raises ConfigurationError, which begins with *where*, and MissingExtraError for YAML without PyYAML.
    """
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            data = opened.read(_MAX_BYTES + 1)
        if len(data) > _MAX_BYTES:
            raise ConfigurationError(f"{where}: {file} is larger than {_MAX_BYTES} bytes")
        found = _parsed(data.decode(), file.suffix.lower())
    except OSError as error:
        raise ConfigurationError(f"{where}: cannot read {file}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: {file}: {str(error)[:500]}") from error
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"{where}: {file} must hold a mapping at its top")
    return dict(found)


def _parsed(text: str, suffix: str) -> JSONValue:
    if suffix == ".toml":
        return tomllib.loads(text)
    if suffix == ".json":
        return read_document(text)
    with extra_needed("serve", "a definition in YAML"):
        import yaml
    try:
        _check_keys(yaml.compose(text, yaml.SafeLoader))
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _check_keys(node: Any) -> None:
    """Raise ValueError for a mapping of YAML that has a key twice, of which the loader would take the last."""
    nodes, seen = [node], set[int]()
    while nodes:
        node = nodes.pop()
        if node is None or id(node) in seen or isinstance(node.value, str):
            continue
        seen.add(id(node))  # one with an alias is there several times
        if node.id == "sequence":
            nodes += node.value
            continue
        keys = set[tuple[str, str]]()
        for key, value in node.value:
            nodes.append(value)
            if isinstance(key.value, str) and (key.tag, key.value) in keys:
                raise ValueError(f"{twice(key.value)}, in line {key.start_mark.line + 1}")
            keys.add((key.tag, str(key.value)))


def check_provider(where: str, settings_type: type, settings: JSONObject) -> None:
    """Raise ConfigurationError for settings of a provider with `tools` that do not fit their type."""
    tools = settings.get("tools", {})
    if not isinstance(tools, Mapping):
        raise ConfigurationError(
            f"{where}: tools must map the name of each tool to its settings, {{name: {{...}}}}, not be a "
            f"{type(tools).__name__}",
            details={"setting": "tools"},
        )
    check_settings(where, settings_type, settings)


def with_file(where: str, settings_type: type, given: JSONObject, tables: Collection[str]) -> JSONDict:
    """Return settings with those of the `file` that they name, over which they have precedence, also entry by entry in
    *tables*. Raises ConfigurationError and MissingExtraError."""
    check_provider(where, settings_type, given)
    own = dict(given)
    file = own.pop("file", "")
    if not file:
        return own
    found = read_definition_file(file, where)
    check_provider(f"{where}: its file", settings_type, found)
    if "file" in found:
        raise ConfigurationError(f"{where}: a file cannot name another file")
    both = {name: {**found[name], **own[name]} for name in tables if name in found and name in own}
    return {**found, **own, **both}


def read_tools(
    what: str, tools: JSONObject, made: type[T], settings_type: type, needs: Mapping[str, str] = _NOTHING
) -> list[T]:
    """Return the tools of a provider: *tools* maps names to instances of *made*, or to settings for it, among which are
    those that it *needs*, each with what it is. Messages call each *what*. Raises ConfigurationError."""
    found: list[T] = []
    for name, settings in tools.items():
        if isinstance(settings, made):
            found.append(settings)
            continue
        if not isinstance(settings, Mapping):
            raise ConfigurationError(f"{what} {name}: its settings must be a mapping, not a {type(settings).__name__}")
        check_settings(f"{what} {name}", settings_type, settings)
        if lacking := [each for each in needs if each not in settings]:
            raise ConfigurationError(f"{what} {name}: it needs {lacking[0]}, {needs[lacking[0]]}")
        found.append(made(**{"name": name, **settings}))
    return found
