"""The lines of the control channel, as the first process of a machine reads and writes them. No input or output."""

from __future__ import annotations

import binascii
import json
from typing import Any

CONTROL_VERSION = 1
MAX_LINE = 64 << 10
_MAX_PROGRAM = 16 << 20
_LEAST_ENTROPY = 64
_scan: Any = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
_GUEST: dict[str, tuple[type, ...]] = {
    "command": (list,),
    "env": (dict,),
    "work": (str,),
    "user": (str,),
    "tmpfs": (dict,),
    "memory": (int,),
    "pids": (int,),
    "cpus": (int, float),
    "open_files": (int,),
}
_EACH_TIME: dict[str, tuple[type, ...]] = {"time_ns": (int,), "entropy": (str,)}
_FIELDS: dict[str, dict[str, tuple[type, ...]]] = {
    "load": {"bytes": (int,), "warm": (list,)},
    "begin": {**_GUEST, **_EACH_TIME},
    "cpu": {"id": (int,)},
    "ping": {"id": (int,)},
}
"""What the host may say, with the fields that each of them has."""


class ProtocolError(Exception):
    """A line that the host cannot mean."""


class Lines:
    """Cuts what comes in into lines, and into the raw bytes that follow some of them."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Append what was read."""
        self._data += data

    def take(self) -> bytes | None:
        """Return the next line, None until it is complete. Raises ProtocolError when it is too long."""
        end = self._data.find(b"\n")
        if end > MAX_LINE or (end < 0 and len(self._data) > MAX_LINE):
            raise ProtocolError(f"a line has more than {MAX_LINE} bytes")
        if end < 0:
            return None
        found = bytes(self._data[:end])
        del self._data[: end + 1]
        return found

    def take_bytes(self, size: int) -> bytes | None:
        """Return the next *size* bytes, None until all are there."""
        if len(self._data) < size:
            return None
        found = bytes(self._data[:size])
        del self._data[:size]
        return found


def parse(text: bytes, known: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
    """Return the name of a message and its fields, each of its type. Raises ProtocolError.

    A `begin` that repeats *known*, the guest of a `load`, has only those fields that differ from one restore to the
    next: what was checked before the snapshot costs nothing after it.
    """
    message = _decode(text)
    if not isinstance(message, dict) or len(message) != 1:
        raise ProtocolError("a line is not an object with one name")
    ((name, fields),) = message.items()
    if known is not None and name == "begin" and isinstance(fields, dict):
        rest = {key: value for key, value in fields.items() if key not in _EACH_TIME}
        if rest == known:
            _check_types(name, fields, _EACH_TIME)
            return name, {"time_ns": fields["time_ns"], "entropy": _entropy(fields["entropy"])}
    if name not in _FIELDS or not isinstance(fields, dict):
        raise ProtocolError(f"{str(name)[:40]!r} is not a message")
    _check_types(name, fields, _FIELDS[name])
    if name == "load":
        _check_load(fields)
    if name == "begin":
        _check_guest(name, fields)
        fields["entropy"] = _entropy(fields["entropy"])
    return name, fields


def line(name: str, **fields: Any) -> bytes:
    """Return a message as a line."""
    return json.dumps({name: fields}).encode() + b"\n"


def _decode(text: bytes) -> Any:
    """As `json.loads`, with less around it: the first message after a restore is waited for."""
    try:
        source = text.decode()
        value, end = _scan(source, 0)
    except (ValueError, StopIteration, RecursionError) as error:
        raise ProtocolError("a line is not JSON") from error
    if end != len(source):
        raise ProtocolError("a line is not JSON and nothing more")
    return value


def _check_types(name: str, fields: dict[str, Any], wanted: dict[str, tuple[type, ...]]) -> None:
    for field, kinds in wanted.items():
        if not isinstance(fields.get(field), kinds) or isinstance(fields[field], bool):
            raise ProtocolError(f"{name} has no {field} of the right type")


def _check_load(fields: dict[str, Any]) -> None:
    if not 0 < fields["bytes"] <= _MAX_PROGRAM:
        raise ProtocolError(f"load has {fields['bytes']} bytes")
    if not all(isinstance(language, str) for language in fields["warm"]):
        raise ProtocolError("load has a language that is not a string")
    guest = fields.setdefault("guest", None)
    if guest is not None:
        if not isinstance(guest, dict):
            raise ProtocolError("load has no guest of the right type")
        _check_types("load", guest, _GUEST)
        fields["known"] = dict(guest)
        _check_guest("load", guest)


def _check_guest(name: str, fields: dict[str, Any]) -> None:
    """Check what is in the lists, and replace `user` by its two numbers."""
    if not fields["command"] or not all(isinstance(word, str) and "\0" not in word for word in fields["command"]):
        raise ProtocolError(f"{name} has no command")
    if not all(isinstance(value, str) for value in fields["env"].values()):
        raise ProtocolError(f"{name} has a variable that is not a string")
    if not all(isinstance(size, int) and path.startswith("/") for path, size in fields["tmpfs"].items()):
        raise ProtocolError(f"{name} has a tmpfs that is not a path with a size")
    try:
        user, _, group = fields["user"].partition(":")
        fields["user"] = [int(user), int(group or user)]
    except ValueError as error:
        raise ProtocolError(f"{name} has a user that is not two numbers") from error


def _entropy(text: str) -> bytes:
    try:
        found = binascii.a2b_base64(text)
    except ValueError as error:  # binascii.Error is one
        raise ProtocolError("begin has an entropy that is not base64") from error
    if len(found) < _LEAST_ENTROPY:
        raise ProtocolError(f"begin has less than {_LEAST_ENTROPY} bytes of entropy")
    return found
