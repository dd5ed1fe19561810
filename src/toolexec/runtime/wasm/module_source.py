"""Raw WebAssembly modules: where one comes from, and its compiled form in the private cache."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from wasmtime import Engine, FuncType, Module, WasmtimeError, wat2wasm

from toolexec.code.types import ExecuteRequest
from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.process.private import PrivateDirectory
from toolexec.runtime.wasm.cache import default_directory
from toolexec.runtime.wasm.engine import engine_fingerprint
from toolexec.version import __version__

_KEYS: Final = ("wasm_module", "wasm_module_b64")
_MAGIC: Final = b"\0asm"
_CORE: Final = b"\1\0\0\0"
_MAX_TEXT: Final = 1 << 20
_SHOWN: Final = 12


def module_bytes(request: ExecuteRequest, max_bytes: int) -> bytes:
    """Return the module of a request: from its metadata, else its code, which is WAT (`(module …)`).

    Both keys of the metadata take bytes and base64, padded or not. Raises InvalidRequestError.
    """
    for key in _KEYS:
        given = request.metadata.get(key)
        if given:
            return _checked(_decoded(key, given, max_bytes), max_bytes)
    text = request.code.strip()
    if not _is_wat(text):
        raise InvalidRequestError(
            "there is no WebAssembly module: give its bytes as metadata 'wasm_module', base64 as 'wasm_module_b64', "
            "or the text format, starting with (module, as the code",
            code="invalid_module",
        )
    if len(text) > _MAX_TEXT:
        raise InvalidRequestError(
            f"a module in the text format has at most {_MAX_TEXT} characters, not {len(text)}", code="invalid_module"
        )
    try:
        return _checked(bytes(wat2wasm(text)), max_bytes)
    except WasmtimeError as error:
        raise InvalidRequestError(
            f"the text of the module is not valid: {_short(error)}", code="invalid_module"
        ) from error


def _is_wat(text: str) -> bool:
    """Return whether *text* starts with `(module`, after comments."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith(";;")), "")
    return first.replace(" ", "").startswith("(module")


def _decoded(key: str, given: Any, max_bytes: int) -> bytes:
    if isinstance(given, bytes | bytearray | memoryview):
        data = bytes(given)
        if data.startswith(_MAGIC):
            return data
        given = data.decode("ascii", "replace")
    if not isinstance(given, str):
        raise InvalidRequestError(
            f"metadata {key!r} must be bytes or base64, not {type(given).__name__}", code="invalid_module"
        )
    text = "".join(given.split()).rstrip("=")
    if len(text) > max_bytes * 4 // 3 + 4:
        raise InvalidRequestError(_too_large(len(text) * 3 // 4, max_bytes), code="invalid_module")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequestError(
            f"metadata {key!r} is neither a module nor base64: {error}", code="invalid_module"
        ) from error


def _checked(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise InvalidRequestError(_too_large(len(data), max_bytes), code="invalid_module")
    if not data.startswith(_MAGIC):
        raise InvalidRequestError(
            f"a WebAssembly module starts with the bytes 00 61 73 6d, not {data[:4].hex(' ')}", code="invalid_module"
        )
    if data[4:8] != _CORE:
        raise InvalidRequestError(
            "this is a component (or of an unknown version); only core modules can be run, "
            "such as those that compilers make for wasm32-wasip1",
            code="invalid_module",
        )
    return data


def _too_large(size: int, most: int) -> str:
    return f"the module has {size} bytes; at most {most} are taken"


class CompiledModules:
    """Compiled modules by content, the *most* of them that were used last."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._modules: OrderedDict[bytes, Module] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, data: bytes) -> Module:
        """Return the compiled module; compiles it at most once at a time. Raises InvalidRequestError. Blocks."""
        key = hashlib.sha256(data).digest()
        with self._lock:
            found = self._modules.get(key)
            if found is not None:
                self._modules.move_to_end(key)
                return found
        try:
            module = Module(self._engine, data)
        except WasmtimeError as error:
            raise InvalidRequestError(f"the module is not valid: {_short(error)}", code="invalid_module") from error
        with self._lock:
            self._modules[key] = module
            while len(self._modules) > self._most:
                self._modules.popitem(last=False)
        return module

    def __len__(self) -> int:
        return len(self._modules)


def check_imports(module: Module, granted: Mapping[str, Sequence[str]]) -> None:
    """Raise InvalidRequestError that lists what *module* imports and *granted* (functions by module) does not have."""
    missing: list[str] = []
    for item in module.imports:
        name = item.name or ""
        if not isinstance(item.type, FuncType) or name not in granted.get(item.module, ()):
            missing.append(f"{item.module}.{name}")
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        offered = ", ".join(
            f"{within}.{names[0]}" if len(names) == 1 else f"{within}.{{{', '.join(names[:4])}, ...}}"
            for within, names in granted.items()
            if names
        )
        raise InvalidRequestError(
            f"the module imports what it is not granted: {', '.join(missing[:_SHOWN])}{more}; "
            f"granted are {offered or 'no imports at all'}",
            details={"imports": missing},
            code="invalid_module",
        )


def _short(error: WasmtimeError) -> str:
    return " ".join(str(error).split())[:500]


_KEPT: Final = 4


def load_module(engine: Engine, wasm: bytes, folder: Path | None = None) -> Module:
    """Return *wasm*, compiled for an *engine* of `new_engine`: from the cache beside *folder*, the directory of the
    sandboxes, or compiled now and kept there.

    Without a usable directory, it is compiled in memory. Raises ConfigurationError when *wasm* is not a module.
    """
    try:
        where = folder or default_directory()
        with PrivateDirectory(where.with_name(f"{where.name}-modules")) as private:
            return _load(private, engine, wasm)
    except ConfigurationError:
        return _compile(engine, wasm)


def _load(folder: PrivateDirectory, engine: Engine, wasm: bytes) -> Module:
    parts = json.dumps([hashlib.sha256(wasm).hexdigest(), engine_fingerprint(), __version__])
    name = f"{hashlib.sha256(parts.encode()).hexdigest()}.cwasm"
    module = _stored(folder, engine, name)
    if module is not None:
        return module
    with folder.locked():
        module = _stored(folder, engine, name)
        if module is None:
            module = _compile(engine, wasm)
            folder.store(name, bytes(module.serialize()), {"toolexec": __version__})
            folder.tidy()
            for file in folder.files()[_KEPT:]:
                folder.remove(file.name)
    return module


def _stored(folder: PrivateDirectory, engine: Engine, name: str) -> Module | None:
    file = folder.open(name)
    if file is None:
        return None
    with file:
        try:
            return Module.deserialize_file(engine, file.path)
        except WasmtimeError:  # such as one made by a machine with another processor
            return None


def _compile(engine: Engine, wasm: bytes) -> Module:
    try:
        return Module(engine, wasm)
    except WasmtimeError as error:
        raise ConfigurationError(f"a module of the sandbox is damaged; reinstall its package: {error}") from error
