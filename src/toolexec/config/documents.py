"""One file of settings, read, and checked for what its format prescribes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolexec.config.blocks import KEYS, Settings
from toolexec.config.entries import ENDPOINTS
from toolexec.config.formats import Parsed, Place, UnreadableError, parse_json, parse_toml, parse_yaml
from toolexec.config.mistakes import Mistakes
from toolexec.config.providers import BLOCK as PROVIDERS
from toolexec.config.queues import BLOCK as QUEUES
from toolexec.config.tools import BLOCK as TOOLS
from toolexec.config.toolsets import BLOCK as TOOLSETS
from toolexec.config.transforms import BLOCK as TRANSFORMS
from toolexec.model.json_value import JSONObject

MAX_BYTES: Final = 4 * 1024**2
OWN_SUFFIXES: Final = (".toml", ".yaml", ".yml")
SERVER_KEYS: Final = ("mcpServers", "servers")
_PARSERS: Final = {".toml": parse_toml, ".yaml": parse_yaml, ".yml": parse_yaml}
_FORMATS: Final = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}
_COMMON_WORDS: Final = ("telemetry",)  # other programs keep something under this name in the same file
_TOP: Final = (*Settings.model_fields, TOOLS, TOOLSETS, ENDPOINTS, QUEUES, TRANSFORMS, PROVIDERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What a file says. `strict` is a file that was written for toolexec: in it, nothing may be unknown."""

    file: Path
    parsed: Parsed
    strict: bool

    @property
    def data(self) -> JSONObject:
        """The keys at the top of the file."""
        return self.parsed.data if isinstance(self.parsed.data, Mapping) else {}

    @property
    def directory(self) -> Path:
        """What names of files in it count from."""
        return self.file.parent

    def line(self, place: Place) -> int:
        """Return the line of what is at *place*, or 0."""
        return self.parsed.line(place) or 0

    def where(self, place: Place) -> str:
        """Return the file, and the line of what is at *place*, as messages name it."""
        line = self.line(place)
        return f"{self.file}, line {line}" if line else str(self.file)

    def origin(self, place: Place) -> str:
        """Return the same, as `config show --origin` prints it."""
        line = self.line(place)
        return f"{self.file}:{line}" if line else str(self.file)

    def servers(self) -> tuple[Place, Any]:
        """Return where the servers are, and what is there: `mcpServers`, `servers`, or either of them in `mcp`; else
        None."""
        from toolexec.backend.mcp.files import server_table

        return server_table(self.data)


def read_document(path: Path, mistakes: Mistakes, *, place: str = "") -> Document | None:
    """Read a TOML, YAML or JSON file; what its name ends with says which.

    When it cannot be read, that becomes one of *mistakes*, and None is given; *place* is where it is asked for. Raises
    MissingExtraError for YAML without PyYAML.
    """
    suffix = path.suffix.lower()
    text = _read(path, mistakes, place)
    if text is None:
        return None
    try:
        parsed = _PARSERS.get(suffix, parse_json)(text)
    except UnreadableError as error:
        line = f", line {error.line}" if error.line else ""
        mistakes.add("", f"{path} is not {_FORMATS.get(suffix, 'JSON')}{line}: {error.reason}")
        return None
    except RecursionError:
        mistakes.add(str(path), "it nests too deeply")
        return None
    strict = suffix in OWN_SUFFIXES or _is_ours(path, parsed.data)
    document = Document(file=path, parsed=parsed, strict=strict)
    if strict:
        if not isinstance(parsed.data, Mapping):
            mistakes.add(str(path), "it must be a table of settings")
        for twice, line in parsed.twice:
            mistakes.add(f"{path}, line {line}", f"the key {twice[-1]} is there twice")
    return document


def _read(path: Path, mistakes: Mistakes, place: str) -> str | None:
    prefix = f"{place}: " if place else ""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        mistakes.add("", f"{prefix}cannot read {path}: {reason}")
        return None
    if len(data) > MAX_BYTES:
        mistakes.add("", f"{prefix}cannot read {path}: it has more than {MAX_BYTES // 1024**2} MiB")
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        mistakes.add(f"{path}, line {line}", "it is not UTF-8 text")
        return None


def _is_ours(path: Path, data: object) -> bool:
    """Return whether a JSON file is for toolexec, and not just an mcpServers file of another program."""
    if not isinstance(data, Mapping):
        return False
    own_name = re.match(r"\.?toolexec\b", path.name) is not None
    for name, value in data.items():
        if name == PROVIDERS and isinstance(value, Mapping):
            if own_name or any(isinstance(each, Mapping) and "kind" in each for each in value.values()):
                return True
        elif name in _TOP and isinstance(value, Mapping):
            if own_name or (name not in _COMMON_WORDS and any(f"{name}.{key}" in KEYS for key in value)):
                return True
        elif own_name and name not in SERVER_KEYS and difflib.get_close_matches(name, _TOP, n=1, cutoff=0.8):
            return True
    return False
