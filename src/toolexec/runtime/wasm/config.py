"""How the embedded sandbox is set up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypedDict

from toolexec.errors import ConfigurationError
from toolexec.model.settings import checked
from toolexec.process.steps import BuildStep

MAX_WORKERS: Final = 1024
"""The most worker processes of one backend."""


@checked("WasmConfig")
@dataclass(frozen=True, slots=True, kw_only=True)
class WasmConfig:
    """Settings of a `WasmBackend`.

    `packages` are pure-Python packages from PyPI that programs can import, beside the standard library; a sandbox
    with them is built at its first use. `memory_bytes` and `disk_bytes` are the most that a run may have. `max_guests`
    bounds how many programs run at once; more wait. `pool_size` guests are pre-warmed whenever no program has run for
    a moment. `idle_memory_bytes` is how much memory Python guests may leave to the next ones, reset, until the backend
    is closed: each full MiB saves one run at a time from mapping its own. `workers` is how many processes may run
    Python guests beside this one, when several run at once: 0 for none, `"auto"` for one for each core where there are
    two or more. They are started once runs keep meeting each other, on Linux. `cache_folder` is where built sandboxes
    are kept (None: the user's cache). With `quick_start` the first use of a machine compiles Python without optimising,
    in seconds, and a process in the background, of the lowest priority, does it again for the next process; programs
    take twice as long until then. `on_build_step` receives the steps of a build, in another thread.
    `enable_wasi` lets raw modules use WASI, and `allowed_host_functions` names the functions of the host
    that they may import.

    Raises ConfigurationError for a number below 1 (`pool_size`, `idle_memory_bytes` and `workers` can be 0).
    """

    packages: tuple[str, ...] = ()
    memory_bytes: int = 256 << 20
    disk_bytes: int = 64 << 20
    max_guests: int = 64
    pool_size: int = 2
    idle_memory_bytes: int = 64 << 20
    workers: int | Literal["auto"] = "auto"
    cache_folder: Path | None = None
    quick_start: bool = True
    on_build_step: Callable[[BuildStep], None] | None = None
    enable_wasi: bool = True
    allowed_host_functions: tuple[str, ...] = ("tools.call",)

    def __post_init__(self) -> None:
        for name in ("memory_bytes", "disk_bytes", "max_guests"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("pool_size", "idle_memory_bytes"):
            if getattr(self, name) < 0:
                raise ConfigurationError(f"{name} must be 0 or more, not {getattr(self, name)}")
        if self.workers != "auto" and not (type(self.workers) is int and 0 <= self.workers <= MAX_WORKERS):
            raise ConfigurationError(f'workers must be "auto" or 0 to {MAX_WORKERS}, not {self.workers!r}')


class WasmSettings(TypedDict, total=False):
    """The settings of a `WasmBackend` by keyword: the fields of `WasmConfig`, for type checkers."""

    packages: tuple[str, ...]
    memory_bytes: int
    disk_bytes: int
    max_guests: int
    pool_size: int
    idle_memory_bytes: int
    workers: int | Literal["auto"]
    cache_folder: Path | None
    quick_start: bool
    on_build_step: Callable[[BuildStep], None] | None
    enable_wasi: bool
    allowed_host_functions: tuple[str, ...]
