"""The text of a cassette: YAML that reads well, says the same each time, and shows where it was cut off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from toolexec.errors import CassetteError, MissingExtraError
from toolexec.model.json_value import JSONDict, JSONValue

FORMAT: Final = 1
FORMAT_KEY: Final = "toolexec_cassette"
_END: Final = "..."
_MAX_BYTES: Final = 64 << 20
_MAX_DEPTH: Final = 200
_WIDTH: Final = 110
_LINE_ENDS: Final = ("\x85", "\u2028", "\u2029")
"""Of YAML besides "\\n": outside double quotes a reader may make another one of them."""
# What the reader takes for a number, beyond what PyYAML itself does: a string like that gets quotes.
_NUMBER: Final = re.compile(r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?)\Z")


def read_file(path: Path) -> str | None:
    """Return the text of a cassette, None where there is no file. Raises CassetteError for what is not text in UTF-8 of
    at most 64 MiB, such as a pipe."""
    try:
        if path.exists() and not path.is_file():
            raise CassetteError(f"the cassette {path} cannot be read: it is not a file")
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        _check_size(len(data), str(path))
        return data.decode().replace("\r\n", "\n")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CassetteError(f"the cassette {path} cannot be read: {error}") from error


def read_text(text: str, where: str) -> JSONDict:
    """Return the data of a cassette. Raises CassetteError, with *where* in it, for what is not a whole one of a format
    that is known, and MissingExtraError without PyYAML."""
    try:
        import yaml

        from toolexec.backend.providers.openapi.yaml_loader import load_yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("serve", needed_for="reading a cassette") from error
    is_whole = text.rstrip().rpartition("\n")[2] == _END
    try:
        data = load_yaml(text)
        _check_tree(data)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        cut = "" if is_whole else f"; it does not end with a line {_END}, so it may be cut off"
        reason = " ".join(str(error).split())[:300] or "it nests too deeply"
        raise CassetteError(f"the cassette {where} cannot be read: {reason}{cut}") from error
    if not isinstance(data, dict) or FORMAT_KEY not in data:
        raise CassetteError(f"{where} is not a cassette: it does not begin with {FORMAT_KEY}: {FORMAT}")
    version = data[FORMAT_KEY]
    if type(version) is not int or version < 1:
        raise CassetteError(f"the cassette {where} has the format {version!r}; this toolexec reads {FORMAT}")
    if version > FORMAT:
        raise CassetteError(
            f"the cassette {where} has the format {version}, and this toolexec reads formats up to {FORMAT}; update it"
        )
    if not is_whole:
        raise CassetteError(
            f"the cassette {where} is cut off: it does not end with a line {_END}; take it from version control, or "
            "record it again"
        )
    return data


def write_text(data: JSONDict, where: str) -> str:
    """Return the text of a cassette, the same for the same data. Raises CassetteError, with *where* in it, for one that
    is too large to be read again, and MissingExtraError without PyYAML."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("serve", needed_for="writing a cassette") from error
    dumper = _dumper(yaml)
    how: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": _WIDTH, "explicit_end": True}
    text: str = yaml.dump(_encodable(data), Dumper=dumper, default_flow_style=False, **how)
    _check_size(len(text.encode()), where)
    return text


def _check_size(size: int, where: str) -> None:
    if size > _MAX_BYTES:
        raise CassetteError(f"the cassette {where} is larger than {_MAX_BYTES >> 20} MiB; split the session")


def _dumper(yaml: Any) -> Any:
    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True  # each call stands for itself, however it came about

        def represent_string(self, text: str) -> Any:
            lines = "\n" in text and text.isprintable() is False and text.replace("\n", "").isprintable()
            style = "|" if lines and not text.startswith((" ", "\n")) else None
            if any(end in text for end in _LINE_ENDS):
                style = '"'
            return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, Dumper.represent_string)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _NUMBER, list("-+.0123456789"))
    return Dumper


def _encodable(value: JSONValue) -> JSONValue:
    """Return JSON whose strings UTF-8 can hold."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    return [_encodable(item) for item in value] if isinstance(value, list) else value


def _check_tree(data: JSONValue) -> None:
    """Raise ValueError for aliases, of which a few lines can make gigabytes, for what is not JSON, and for depth."""
    seen: set[int] = set()
    todo: list[tuple[JSONValue, int]] = [(data, 0)]
    while todo:
        value, depth = todo.pop()
        if isinstance(value, float) and value - value != 0:
            raise ValueError(f"{value} is not JSON")
        if not isinstance(value, dict | list):
            continue
        if depth > _MAX_DEPTH:
            raise ValueError("it nests too deeply")
        if id(value) in seen:
            raise ValueError("anchors and aliases are not read; write the value out")
        seen.add(id(value))
        todo += [(item, depth + 1) for item in (value.values() if isinstance(value, dict) else value)]
