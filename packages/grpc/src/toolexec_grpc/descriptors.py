"""Descriptors of services, from a server or a file: files into a pool, comments by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import DecodeError

from toolexec.errors import ConfigurationError

MOST_BYTES: Final = 64 << 20
"""The most bytes of descriptors."""

_MOST_COMMENT: Final = 4000
_WELL_KNOWN: Final = (
    *("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type"),
    "wrappers",
)
_FileProto = descriptor_pb2.FileDescriptorProto


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services that were found, those that were not usable with the reason, and the comments by full name."""

    pool: Any
    found: Sequence[Any]
    skipped: Mapping[str, str]
    comments: Mapping[str, str]
    names: frozenset[str]
    """The full names of all services, wanted or not."""


def known_file(name: str) -> Any | None:
    """Return a file of protobuf's own, such as `google/protobuf/timestamp.proto`; None for another one."""
    stem = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if stem not in _WELL_KNOWN or name != _path_of(stem):
        return None
    return _FileProto.FromString(import_module(f"google.protobuf.{stem}_pb2").DESCRIPTOR.serialized_pb)


def _path_of(stem: str) -> str:
    return f"google/protobuf/{stem}.proto"


def read_descriptor_set(path: str | Path, where: str) -> list[Any]:
    """Return the files of a FileDescriptorSet. Raises ConfigurationError, which begins with *where*."""
    file = Path(path).expanduser()
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(f"{where}: cannot read {file}: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise ConfigurationError(f"{where}: {file} is larger than {MOST_BYTES} bytes")
    try:
        files = [*descriptor_pb2.FileDescriptorSet.FromString(data).file]
    except DecodeError as error:
        raise ConfigurationError(
            f"{where}: {file} is not a FileDescriptorSet; make one with: protoc --include_imports -o FILE"
        ) from error
    if not files:
        raise ConfigurationError(f"{where}: {file} describes nothing")
    return files


def build_services(files: Iterable[Any], wanted: Sequence[str] | None) -> Services:
    """Return the services of *files* that are *wanted* by their full names (None: all)."""
    by_name = {file.name: file for file in files}
    pool = descriptor_pool.DescriptorPool()
    problems: dict[str, str] = {}
    added: set[str] = set()
    for name in (*by_name, *map(_path_of, _WELL_KNOWN)):  # any of these may be in an Any
        _add(pool, name, by_name, added, problems, ())
    found: list[Any] = []
    skipped: dict[str, str] = {}
    comments: dict[str, str] = {}
    names: set[str] = set()
    for file in by_name.values():
        comments.update(_comments(file))
        for service in file.service:
            name = f"{file.package}.{service.name}" if file.package else service.name
            names.add(name)
            if wanted is not None and name not in wanted:
                continue
            if file.name in problems:
                skipped[name] = problems[file.name]
            else:
                found.append(pool.FindServiceByName(name))
    return Services(pool=pool, found=found, skipped=skipped, comments=comments, names=frozenset(names))


def _add(
    pool: Any, name: str, files: dict[str, Any], added: set[str], problems: dict[str, str], above: tuple[str, ...]
) -> None:
    """Add a file to the pool after those that it imports; what is wrong with it goes to *problems*."""
    if name in added or name in problems:
        return
    file = files.get(name) or known_file(name)
    if file is None:
        problems[name] = f"{name[:200]} is missing"
        return
    if name in above or len(above) > 100:
        problems[name] = f"{name[:200]} imports itself"
        return
    for imported in file.dependency:
        _add(pool, imported, files, added, problems, (*above, name))
        if imported in problems:
            problems.setdefault(name, problems[imported])
    if name in problems:
        return
    try:
        pool.Add(file)
        added.add(name)
    except (TypeError, ValueError) as error:
        problems[name] = f"{name[:200]} is not valid: {str(error)[:300]}"


def _comments(file: Any) -> Iterator[tuple[str, str]]:
    """Yield the full name and the comment of what has one."""
    names = dict(_places(file))
    for location in file.source_code_info.location:
        name = names.get(tuple(location.path))
        text = (location.leading_comments or location.trailing_comments).strip() if name is not None else ""
        if name is not None and text:
            yield name, "\n".join(line.strip() for line in text.splitlines())[:_MOST_COMMENT]


def _places(file: Any) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the path of each service, method, message, field and enumeration, and its full name."""
    package = f"{file.package}." if file.package else ""
    for number, service in enumerate(file.service):
        yield (6, number), f"{package}{service.name}"
        for index, method in enumerate(service.method):
            yield (6, number, 2, index), f"{package}{service.name}.{method.name}"
    for number, message in enumerate(file.message_type):
        yield from _within((4, number), f"{package}{message.name}", message)
    for number, enumeration in enumerate(file.enum_type):
        yield (5, number), f"{package}{enumeration.name}"


def _within(path: tuple[int, ...], name: str, message: Any) -> Iterator[tuple[tuple[int, ...], str]]:
    yield path, name
    for number, field in enumerate(message.field):
        yield (*path, 2, number), f"{name}.{field.name}"
    for number, nested in enumerate(message.nested_type):
        yield from _within((*path, 3, number), f"{name}.{nested.name}", nested)
    for number, enumeration in enumerate(message.enum_type):
        yield (*path, 4, number), f"{name}.{enumeration.name}"
