"""Everything that a component can see of the world, defined on a linker, once for all guests.

wasmtime's own WASI is never linked: there is no host file, socket, variable or clock behind any of this. What is not
defined here ends the guest that calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wasmtime import Engine
from wasmtime.component import Component, ComponentInstanceType, FuncType, Linker, LinkerInstance, ResourceType

from toolexec.runtime.wasm import ffi, filesystem, streams
from toolexec.runtime.wasm.guest import RESOURCE_TYPES, Guest, Thing
from toolexec.runtime.wasm.refused import RefusedError
from toolexec.runtime.wasm.streams import HostFunction
from toolexec.runtime.wasm.values import adapt


class Network(Thing):
    """A network that nothing can be done with."""

    kind = "network"


def _denied(_guest: Guest, *_arguments: Any) -> None:
    raise RefusedError("access-denied")


FUNCTIONS: Mapping[str, Mapping[str, HostFunction]] = {
    **streams.FUNCTIONS,
    **filesystem.FUNCTIONS,
    "wasi:sockets/instance-network": {"instance-network": lambda guest: guest.handles.own(Network())},
    "wasi:sockets/tcp-create-socket": {"create-tcp-socket": _denied},
    "wasi:sockets/udp-create-socket": {"create-udp-socket": _denied},
    "wasi:sockets/ip-name-lookup": {"resolve-addresses": _denied},
}
"""The functions by interface, without its version, and name."""


def _drop(guest: Guest, number: int) -> None:
    guest.handles.drop(number)


class World:
    """A linker with all that *component* imports. Keep it as long as any instance that was made with its `linker`."""

    def __init__(self, engine: Engine, component: Component) -> None:
        self.linker: Linker = Linker(engine)
        self._engine = engine
        self._keep: list[object] = []
        self.linker.allow_shadowing = True
        self.linker.define_unknown_imports_as_traps(component)
        with component.type as kind, self.linker.root() as root:
            for name, extern in kind.imports(engine).items():
                self._define(root, name, extern.ty)

    def _define(self, root: LinkerInstance, name: str, kind: object) -> None:
        if isinstance(kind, ComponentInstanceType):
            functions = FUNCTIONS.get(name.partition("@")[0], {})
            with root.add_instance(name) as instance:
                self._define_interface(instance, kind, functions)
        elif name == "exchange":
            self._keep.append(ffi.define_exchange(root, name, Guest.exchange))
        elif name == "post":
            self._keep.append(ffi.define_post(root, name, Guest.post))

    def _define_interface(
        self, instance: LinkerInstance, kind: ComponentInstanceType, functions: Mapping[str, HostFunction]
    ) -> None:
        for name, extern in kind.exports(self._engine).items():
            item = extern.ty
            if isinstance(item, ResourceType) and name in RESOURCE_TYPES:
                self._keep.append(ffi.define_resource(instance, name, RESOURCE_TYPES[name], _drop))
            elif isinstance(item, FuncType) and name in functions:
                self._keep.append(ffi.define_callback(instance, name, adapt(functions[name], item)))
