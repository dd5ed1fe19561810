"""The embedded sandbox: WebAssembly, in this process."""

from toolexec.runtime.backend.wasm.backend import WasmBackend
from toolexec.runtime.backend.wasm.config import WasmConfig

__all__ = ["WasmBackend", "WasmConfig"]
