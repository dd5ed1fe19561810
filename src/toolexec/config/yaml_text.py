"""YAML without its surprises: no tags, no merge keys, no key twice, each key with its line."""

from __future__ import annotations

from typing import Any, Final

from toolexec.config.positions import MAX_DEPTH, Parsed, Path, UnreadableError
from toolexec.errors import MissingExtraError

__all__ = ["parse_yaml"]

_MAX_VALUES: Final = 200_000
_TAGS: Final = tuple(f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "timestamp"))


def parse_yaml(text: str) -> Parsed:
    """Read YAML into plain data.

    Raises UnreadableError for what is no YAML, has tags of its own, `<<`, several documents, keys that are no texts,
    nests too deeply, or becomes too large by its aliases; MissingExtraError without PyYAML.
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("serve", needed_for="reading YAML") from error
    loader: yaml.SafeLoader | None = None
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        return _Reader(loader).read(root) if root is not None else Parsed(data={}, lines={})
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(filter(None, (error.context, error.problem))) or "it cannot be read"
        raise UnreadableError(reason, mark.line + 1 if mark is not None else None) from error
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError("it has characters or values that YAML does not allow") from error
    finally:
        if loader is not None:
            loader.dispose()


class _Reader:
    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._values = 0
        self.lines: dict[Path, int] = {}
        self.twice: list[tuple[Path, int]] = []

    def read(self, root: Any) -> Parsed:
        return Parsed(data=self._value(root, (), 0), lines=self.lines, twice=tuple(self.twice))

    def _value(self, node: Any, path: Path, depth: int) -> Any:
        line = node.start_mark.line + 1
        self._values += 1
        if depth > MAX_DEPTH:
            raise UnreadableError(f"it nests more than {MAX_DEPTH} levels deep", line)
        if self._values > _MAX_VALUES:
            raise UnreadableError("its aliases make it too large", line)
        if node.id == "scalar":
            return self._scalar(node, line)
        if node.tag not in ("tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"):
            raise UnreadableError(f"the tag {node.tag} is not allowed", line)
        if node.id == "sequence":
            return self._list(node, path, depth)
        return self._table(node, path, depth)

    def _scalar(self, node: Any, line: int) -> Any:
        if node.tag not in _TAGS:
            raise UnreadableError(f"the tag {node.tag} is not allowed", line)
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # a date that there is not
            raise UnreadableError("this is no value", line) from error

    def _list(self, node: Any, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        for number, item in enumerate(node.value):
            here = (*path, number)
            self.lines[here] = item.start_mark.line + 1
            found.append(self._value(item, here, depth + 1))
        return found

    def _table(self, node: Any, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, item in node.value:
            line = name.start_mark.line + 1
            if name.tag == "tag:yaml.org,2002:merge":
                raise UnreadableError("merge keys (<<) are not read; write the keys out", line)
            if name.id != "scalar" or name.tag != "tag:yaml.org,2002:str":
                raise UnreadableError("a key is no text; put it into quotes", line)
            here = (*path, name.value)
            if name.value in found:
                self.twice.append((here, line))
            self.lines[here] = line
            found[name.value] = self._value(item, here, depth + 1)
        return found
