"""Definitions in files of settings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from toolexec.errors import ConfigurationError
from toolexec.errors.extras import extra_needed
from toolexec.model.json_value import JSONDict, JSONObject, JSONValue

__all__ = ["merge_settings", "read_definition_file"]

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


def merge_settings(where: str, found: JSONObject, given: JSONObject, tables: Collection[str]) -> JSONDict:
    """Return the settings that were *found* in a file with those *given* beside it, which have precedence; of *tables*
    each entry has it alone.

    Raises ConfigurationError, which begins with *where*, for a file that names another one.
    """
    if "file" in found:
        raise ConfigurationError(f"{where}: a file cannot name another file")
    both = {name: {**found[name], **given[name]} for name in tables if name in found and name in given}
    return {**found, **given, **both}


def _parsed(text: str, suffix: str) -> JSONValue:
    if suffix == ".toml":
        return tomllib.loads(text)
    if suffix == ".json":
        return json.loads(text)
    with extra_needed("serve", "a definition in YAML"):
        import yaml
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
