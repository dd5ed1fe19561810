"""From words on the command line, and from files, to a tool's arguments and a chain's steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.cli.schema_text import accepted_types, follow
from toolexec.cli.text_files import read_file, read_stdin, read_text
from toolexec.errors import ConfigurationError, InvalidChainError
from toolexec.model.json_document import KeyTwiceError, read_document
from toolexec.model.json_value import JSONDict, JSONValue, shorten

if TYPE_CHECKING:
    from toolexec.exec import Step


def read_args(words: Sequence[str], schema: object, stdin: Callable[[], str] = read_stdin) -> JSONDict:
    """Return the arguments that *words* spell for a tool with this input *schema*.

    A word is a JSON object, `@file.json`, `-` (JSON on stdin), `key=value` or `key:=JSON`; later ones win over earlier
    ones. A value is read as its schema says: text stays text, a number or an object is JSON, and a list is JSON or one
    item per word. What does not fit is passed on as text, so that the tool's check names everything that is wrong.
    Raises ConfigurationError for words of any other form.
    """
    args: JSONDict = {}
    given: set[str] = set()
    for word in words:
        if word == "-":
            args |= _object(stdin(), "stdin")
        elif word.startswith("@"):
            args |= _object(read_file(Path(word[1:])), word[1:])
        elif word.lstrip().startswith(("{", "[")):
            args |= _object(word, "the arguments")
        else:
            key, value, is_list = _pair(word, schema)
            if key in given and not is_list:
                raise ConfigurationError(f"the argument {key!r} is given twice")
            args[key] = [*args[key], *value] if key in given else value
            given.add(key)
    return args


def _pair(word: str, schema: object) -> tuple[str, JSONValue, bool]:
    """Return the key, the value, and whether more words may add to it."""
    key, equals, text = word.partition("=")
    if not equals or not key.strip(":"):
        raise ConfigurationError(
            f"cannot read the argument {word!r}; write key=value, key:=JSON, a JSON object, @file.json or - for stdin"
        )
    if key.endswith(":"):
        return key[:-1], _strict(text, f"the value of {key[:-1]}"), False
    properties = follow(schema, schema).get("properties")
    part = properties.get(key) if isinstance(properties, Mapping) else None
    types = accepted_types(part, schema)
    if "string" in types:
        return key, text, False
    value = _json_or_text(text)
    if "array" in types and not isinstance(value, list) and "object" not in types:
        return key, [_item(text, part, schema)], True
    return key, value, False


def _item(text: str, schema: object, root: object) -> JSONValue:
    """Return one item of a list."""
    items = follow(schema, root).get("items")
    return text if "string" in accepted_types(items, root) else _json_or_text(text)


def _json_or_text(text: str) -> JSONValue:
    try:
        return read_document(text)
    except KeyTwiceError as error:
        raise ConfigurationError(f"the value {shorten(text)}: {error}") from error
    except (ValueError, RecursionError):
        return text


def _strict(text: str, what: str) -> JSONValue:
    try:
        return read_document(text)
    except RecursionError:
        raise ConfigurationError(f"{what}: nested too deeply") from None
    except JSONDecodeError as error:
        raise ConfigurationError(f"{what}: not JSON: {error}") from error
    except ValueError as error:
        raise ConfigurationError(f"{what}: {error}") from error


def _object(text: str, what: str) -> JSONDict:
    value = _strict(text, what)
    if not isinstance(value, dict):
        raise ConfigurationError(f"{what}: arguments are a JSON object, not {_kind(value)}")
    return value


def _kind(value: JSONValue) -> str:
    kinds = {list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def read_json(source: str) -> JSONValue:
    """Return the JSON document in a file (`-`: stdin); raises ConfigurationError when it cannot be read."""
    return _strict(read_text(source), source)


def read_chain(source: str, stdin: Callable[[], str] = read_stdin) -> list[Step]:
    """Return the steps in a JSON or TOML file (`-`: stdin): a list of steps, or an object with such a list as `steps`.

    Raises ConfigurationError for a file that cannot be read, InvalidChainError for steps that make no sense.
    """
    from toolexec.exec import Step

    text, name = (stdin(), "stdin") if source == "-" else (read_file(Path(source)), source)
    suffix = Path(source).suffix.lower()
    data = _toml(text, name) if suffix == ".toml" else _strict(text, name) if suffix == ".json" else _either(text, name)
    steps = data.get("steps") if isinstance(data, dict) else data
    if not isinstance(steps, list) or not steps:
        raise InvalidChainError(f'{name} has no steps; write [{{"tool": "ns:name", "args": {{}}}}, ...] or "steps": []')
    if isinstance(data, dict) and len(data) > 1:
        raise InvalidChainError(f"{name} has unknown keys beside steps: {', '.join(sorted(data.keys() - {'steps'}))}")
    return [_step(Step, step, number) for number, step in enumerate(steps)]


def _step(kind: type[Step], data: object, number: int) -> Step:
    if not isinstance(data, dict):
        raise InvalidChainError(f"step {number} must be an object with a tool, not {_kind(data)}")
    try:
        return kind.from_dict(data)
    except InvalidChainError as error:
        raise InvalidChainError(f"step {number}: {error}") from error


def _toml(text: str, name: str) -> JSONValue:
    import tomllib

    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}: not TOML: {error}") from error


def _either(text: str, name: str) -> JSONValue:
    try:
        return _strict(text, name)
    except ConfigurationError as as_json:
        import tomllib

        try:
            return tomllib.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"{as_json}; nor is it TOML: {error}") from as_json
