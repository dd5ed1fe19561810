"""Compiled modules in the private cache, so that only the first process of a machine compiles them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from wasmtime import Engine, Module, WasmtimeError

from toolexec.errors import ConfigurationError
from toolexec.process.private import PrivateFolder
from toolexec.runtime.backend.wasm.cache import default_folder
from toolexec.runtime.backend.wasm.engine import engine_fingerprint
from toolexec.version import __version__

__all__ = ["load_module"]

_KEPT: Final = 4


def load_module(engine: Engine, wasm: bytes, folder: Path | None = None) -> Module:
    """*wasm*, compiled for an *engine* of `new_engine`: from the cache beside *folder* (that of the sandboxes), or made
    now and kept there.

    Without a folder that can be used, it is compiled in memory. Raises ConfigurationError when *wasm* is no module.
    """
    try:
        where = folder or default_folder()
        with PrivateFolder(where.with_name(f"{where.name}-modules")) as private:
            return _load(private, engine, wasm)
    except ConfigurationError:
        return _compile(engine, wasm)


def _load(folder: PrivateFolder, engine: Engine, wasm: bytes) -> Module:
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


def _stored(folder: PrivateFolder, engine: Engine, name: str) -> Module | None:
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
