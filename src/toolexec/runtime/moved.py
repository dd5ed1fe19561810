"""The former paths of modules that have moved; they work for one release and warn."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from types import ModuleType
from typing import Any, Final

__all__ = ["MOVED", "register_former_paths"]

_HERE: Final = __name__.rpartition(".")[0]
MOVED: Final = {
    "backend": "containers",
    "backend.bubblewrap": "containers.bubblewrap",
    "backend.containerd": "containers.containerd",
    "backend.docker": "containers.docker",
    "backend.gvisor": "containers.gvisor",
    "backend.kata": "containers.kata",
    "backend.unsafe": "unsafe_host",
    "backend.wasm": "wasm",
    "backend.wasm.backend": "wasm.backend",
    "container": "containers",
    "container.backend": "containers.backend",
    "container.builder": "containers.builder",
    "container.config": "containers.config",
    "container.oci": "containers.oci",
    "gateway": "protocol",
    "gateway.base": "protocol.base",
    "gateway.direct": "protocol.direct",
    "gateway.protocol": "protocol.messages",
    "gateway.proxy": "protocol.proxy",
    "image": "images",
    "image.store": "images.store",
    "runtime": "router",
}
"""Former path in this package → the path now; a package comes before what is in it."""


class _Former(ModuleType):
    """Stands for a module under its former path; loads it at the first use."""

    def __init__(self, name: str, now: str) -> None:
        super().__init__(name, f"Moved to {now}.")
        self.__path__ = []  # a package, so that modules of this table can be imported from it
        self._now = now

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(import_module(self._now), name)
        warnings.warn(f"{self.__name__} is {self._now} now", DeprecationWarning, stacklevel=2)
        return value


def register_former_paths() -> None:
    """Make each former path importable.

    A module that is in `sys.modules` once its parent is imported is found there, so no import hook is needed.
    """
    for former, now in MOVED.items():
        module = _Former(f"{_HERE}.{former}", f"{_HERE}.{now}")
        parent, _, name = module.__name__.rpartition(".")
        sys.modules[module.__name__] = module
        setattr(sys.modules[parent], name, module)


register_former_paths()
