"""Whether the embedded sandbox can be used here, and what is missing if not."""

from __future__ import annotations

from toolexec.errors import ToolExecError
from toolexec.runtime.base import Availability
from toolexec.runtime.requirements import normal_requirements
from toolexec.runtime.wasm.cache import SHIPPED, ComponentCache
from toolexec.runtime.wasm.component import builder_version, installed_version
from toolexec.runtime.wasm.config import WasmConfig


def sandbox_availability(config: WasmConfig) -> Availability:
    """Return whether the sandbox can run here; builds and loads nothing."""
    version = installed_version("wasmtime", "wasmtime")
    if version is None:
        return Availability(ok=False, reason="wasmtime is not installed", remedy="pip install wasmtime")
    wanted = normal_requirements(config.packages)
    try:
        built = ComponentCache(config.cache_folder).has(wanted)
    except ToolExecError as error:
        fix, foreign = "set TOOLEXEC_CACHE to a directory of your own", bool(error.details.get("foreign"))
        return Availability(ok=False, reason=str(error), remedy=fix, is_fault=foreign)
    if built:
        return Availability(ok=True, version=f"wasmtime {version}")
    if SHIPPED.exists() and not wanted:
        return Availability(ok=True, reason="compiled at its first use", version=f"wasmtime {version}")
    if builder_version() is not None:
        return Availability(ok=True, reason="built at its first use", version=f"wasmtime {version}")
    return Availability(
        ok=False,
        reason="the sandbox is not built, and componentize-py, which builds it, is not installed",
        remedy="pip install 'toolexec[sandbox-build]'",
    )
