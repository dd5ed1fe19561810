"""YAML as JSON has it: the types of YAML 1.2's core schema, and keys that are strings. Imports PyYAML."""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

_MAX_DEPTH: Final = 600
_MAX_MERGED: Final = 100_000
_DEEP_BLOCKS: Final = re.compile(r"^ {150}|(?:[-?] +){30}", re.MULTILINE)
_BRACKETS: Final = re.compile(r"[\[\]{}]")
_MERGE: Final = "tag:yaml.org,2002:merge"
_Base: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast


class _Loader(_Base):
    """Reads no dates, and only `true` and `false` as booleans: `on`, `no` and 2020-01-01 are strings."""

    yaml_implicit_resolvers: Final[dict[str, Any]] = {}
    _merged = 0

    def flatten_mapping(self, node: Any) -> None:
        """Resolve the `<<` of a mapping, of which a few lines can make gigabytes: at most 100,000 pairs in all."""
        for key, value in node.value:
            if key.tag != _MERGE:
                continue
            for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(part, yaml.MappingNode):
                    self.flatten_mapping(part)
                    self._merged += len(part.value)
                if self._merged > _MAX_MERGED:
                    raise yaml.constructor.ConstructorError(None, None, "merges that multiply", key.start_mark)
        super().flatten_mapping(node)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        """Build an object whose keys are strings: statuses are often written as numbers."""
        found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        if all(type(key) is str for key in found):
            return found
        return {_key(key): value for key, value in found.items()}


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return "null" if key is None else str(key)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"\Z"), [""])
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_str)
_Loader.add_constructor("tag:yaml.org,2002:binary", _Loader.construct_yaml_str)


def _construct_int(loader: Any, node: Any) -> int:
    return int(loader.construct_scalar(node))


def _construct_float(loader: Any, node: Any) -> float:
    return float(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def load_yaml(text: str) -> Any:
    """Return the one document in *text*. Raises yaml.YAMLError, and RecursionError for too many levels."""
    if _may_be_deep(text):
        _check_depth(text)
    return yaml.load(text, _Loader)  # noqa: S506 - a safe loader: it builds plain data only


def _may_be_deep(text: str) -> bool:
    """Return whether *text* may be nested beyond some hundred levels; quick, and rarely true of what is not."""
    if _DEEP_BLOCKS.search(text):
        return True
    depth = 0
    for bracket in _BRACKETS.finditer(text):
        depth += 1 if bracket[0] in "[{" else -1
        if depth > _MAX_DEPTH // 3:
            return True
        depth = max(depth, 0)
    return False


def _check_depth(text: str) -> None:
    """Raise RecursionError for what the loader in C would crash on: it recurses without a limit of its own."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_DEPTH:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
