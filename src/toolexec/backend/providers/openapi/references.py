"""Other documents that a document refers to: read only where the user allows it, each once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import unquote, urljoin, urlsplit

from toolexec.backend.providers.openapi.document import InvalidPartError, read_document
from toolexec.backend.providers.openapi.servers import host_of
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict, JSONValue

Fetch: TypeAlias = Callable[[str], Awaitable[bytes]]
"""Gets the document at a URL."""

_MAX_DOCUMENTS: Final = 500


async def read_references(
    root: JSONDict, location: str, allowed: bool | Sequence[str], fetch: Fetch, max_bytes: int
) -> JSONDict:
    """Return the documents that *root* refers to, and those that they refer to, by their addresses.

    Every `$ref` to one of them, in *root* too, becomes an absolute address. With *allowed* true these are files in the
    directory of *location* and below, or documents of its host; a list adds hosts and directories. References to
    anything else stay as they are. Raises ConfigurationError for more than 500 documents or *max_bytes*, and for one
    that cannot be read.
    """
    found: JSONDict = {}
    may = _Allowed(location, () if isinstance(allowed, bool) else allowed)
    pending = await asyncio.to_thread(_absolute, root, location, may, is_root=True)
    left = max_bytes
    while pending:
        address = pending.pop()
        if address in found:
            continue
        if len(found) >= _MAX_DOCUMENTS:
            raise ConfigurationError(f"the document refers to more than {_MAX_DOCUMENTS} others")
        data = await _read(address, fetch)
        left -= len(data)
        if left < 0:
            raise ConfigurationError(f"the document and those that it refers to have more than {max_bytes} bytes")
        found[address] = await asyncio.to_thread(read_document, data, address)
        further = await asyncio.to_thread(_absolute, found[address], address, may, is_root=False)
        pending |= further - found.keys()
    return found


async def _read(address: str, fetch: Fetch) -> bytes:
    if host_of(address):
        return await fetch(address)
    try:
        return await asyncio.to_thread(Path(address).read_bytes)
    except OSError as error:
        raise ConfigurationError(f"the document refers to {address}, which cannot be read: {error.strerror}") from error


class _Allowed:
    """Which addresses may be read."""

    def __init__(self, location: str, more: Sequence[str]) -> None:
        host = host_of(location)
        self._hosts = {host} if host else set[str]()
        self._directories: list[Path] = []
        if location and not host:
            self._directories.append(Path(location).resolve().parent)
        for entry in more:
            if entry.startswith((".", "/", "~")):
                self._directories.append(Path(entry).expanduser().resolve())
            else:
                self._hosts.add(entry)

    def address(self, base: str, ref: str) -> str:
        """Return the absolute address of *ref* in the document *base*. Raises InvalidPartError for one not allowed."""
        target = urljoin(base, ref) if host_of(base) else ref
        if urlsplit(target).scheme in ("http", "https"):
            if host_of(target) not in self._hosts:
                raise InvalidPartError(f"{host_of(target)} is not one of the hosts that may be referred to")
            return target
        if host_of(base) or urlsplit(target).scheme:
            raise InvalidPartError(f"{ref[:200]!r} is not an address of HTTP")
        path = (Path(base).parent / unquote(ref)).resolve()
        if not any(path.is_relative_to(directory) for directory in self._directories):
            raise InvalidPartError(f"{path} is not below a directory that may be referred to")
        return str(path)


def _absolute(root: JSONValue, base: str, may: _Allowed, *, is_root: bool) -> set[str]:
    """Write the references of a document with absolute addresses, where these may be read; return the addresses."""
    found: set[str] = set()
    for node in _referring(root):
        address, hash_, fragment = node["$ref"].partition("#")
        if not address and is_root:
            continue
        try:
            target = may.address(base, address) if address else base
        except (InvalidPartError, ValueError):
            continue  # whatever needs it says that it was not allowed
        if target == base and is_root:
            node["$ref"] = f"#{fragment}"
            continue
        node["$ref"] = f"{target}{hash_}{fragment}"
        found.add(target)
    return found


def _referring(root: JSONValue) -> Iterator[JSONDict]:
    """Yield every object that has a `$ref`."""
    pending, seen = [root], set[int]()
    while pending:
        node = pending.pop()
        if not isinstance(node, dict | list) or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node
            pending.extend(node.values())
        else:
            pending.extend(node)
