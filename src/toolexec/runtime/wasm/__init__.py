"""The embedded sandbox: WebAssembly, in this process."""

from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.config import WasmConfig

__all__ = ["WasmBackend", "WasmConfig"]
