"""The embedded sandbox: WebAssembly, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.runtime.wasm.backend import WasmBackend
    from toolexec.runtime.wasm.config import WasmConfig
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.runtime.wasm.backend": ("WasmBackend",),
            "toolexec.runtime.wasm.config": ("WasmConfig",),
        },
    )

__all__ = ["WasmBackend", "WasmConfig"]
