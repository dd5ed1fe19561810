"""The files of a script: given with the request, read and written by host calls, and handed back when they changed."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.runtime.backend.wasm.files import MemoryFiles

__all__ = ["ScriptFiles"]

_MOST_FILES = 1024


class ScriptFiles:
    """Files by relative path, at most *max_bytes* in all.

    Raises InvalidRequestError for a path that leads elsewhere, and for more than fits.
    """

    def __init__(self, given: Mapping[str, bytes], max_bytes: int) -> None:
        _check_paths(given, max_bytes)
        self._given = dict(given)
        self._files = dict(given)
        self._max_bytes = max_bytes

    def changed(self) -> dict[str, bytes]:
        """The files that are new, or no longer as they were given."""
        return {path: data for path, data in self._files.items() if self._given.get(path) != data}

    def handle(self, request: str) -> str:
        """The answer to a request of the guest, both JSON: `{"value": …}` or `{"error": "…"}`."""
        try:
            return json.dumps({"value": self._do(json.loads(request))})
        except (_RefusedError, InvalidRequestError) as error:
            return json.dumps({"error": str(error)})

    def _do(self, request: Mapping[str, Any]) -> Any:
        op, path = request.get("op"), str(request.get("path", ""))
        if op == "list":
            return sorted(self._files)
        if op == "write":
            return self._write(path, request)
        if path not in self._files:
            raise _RefusedError(f"there is no file {path!r}; files.list() names those that there are")
        if op == "remove":
            del self._files[path]
            return None
        data = self._files[path]
        if op == "bytes":
            return base64.b64encode(data).decode()
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise _RefusedError(f"{path!r} is not text in UTF-8; use files.readBytes") from None

    def _write(self, path: str, request: Mapping[str, Any]) -> None:
        try:
            data = base64.b64decode(request["bytes"]) if "bytes" in request else str(request["text"]).encode()
        except (KeyError, binascii.Error, UnicodeEncodeError, TypeError) as error:
            raise _RefusedError(f"{path!r} cannot be written: {error}") from None
        after = {**self._files, path: data}
        if len(after) > _MOST_FILES:
            raise _RefusedError(f"there can be {_MOST_FILES} files at most")
        _check_paths(after, self._max_bytes)
        self._files = after


class _RefusedError(Exception):
    """What was asked for cannot be done; the script gets the text."""


def _check_paths(files: Mapping[str, bytes], max_bytes: int) -> None:
    try:
        MemoryFiles.from_mapping(files, max_bytes=max_bytes, now=lambda: 0)
    except ConfigurationError as error:
        raise InvalidRequestError(str(error), details=error.details) from error
