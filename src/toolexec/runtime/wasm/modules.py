"""Raw WebAssembly modules: core modules with WASI preview 1 and the tools, and nothing of the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from time import monotonic
from typing import Any, Final

import wasmtime
from wasmtime import Linker, Module

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import ConfigurationError, InvalidRequestError
from toolexec.model.json_value import JSONObject
from toolexec.runtime.base import Availability
from toolexec.runtime.protocol.hostcalls import HostCalls
from toolexec.runtime.protocol.recorded_calls import host_calls
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.wasm import module_tools, preview1
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.core import CoreGuest, CoreInstance
from toolexec.runtime.wasm.core_ffi import kinds_of
from toolexec.runtime.wasm.engine import new_engine
from toolexec.runtime.wasm.guest import ExitCalled, InstanceFailed, InstanceStopped
from toolexec.runtime.wasm.guest_run import (
    GuestEnd,
    GuestRuns,
    describe_end,
    fuel_of,
    time_and_chance,
)
from toolexec.runtime.wasm.markers import MarkerScanner
from toolexec.runtime.wasm.module_source import CompiledModules, check_imports, module_bytes

PAGE_BYTES: Final = 65_536
_VERSION: Final = version("wasmtime")
_HOST_FUNCTIONS: Final = frozenset({"tools.call"})
_MOST_PAGES: Final = 65_536  # 4 GiB: all that a module can address
_ENTRY: Final = "_start"
_INITIALIZE: Final = "_initialize"


@dataclass(slots=True)
class _Run:
    """What one run of a module has, beside its request."""

    request: ExecuteRequest
    pages: int
    granted: Mapping[str, Sequence[str]]
    guest: CoreGuest
    instance: CoreInstance
    markers: MarkerScanner
    linked: tuple[Linker, list[object]]


class ModuleLanguage:
    """Runs core WebAssembly modules, the language `wasm`.

    The module comes from the request's metadata (`wasm_module`: bytes, `wasm_module_b64`: base64), or the code is one
    in the text format. It runs from the export `_start`, or the one that the metadata's `wasm_entry` names (a function
    without parameters; `_initialize` comes before it). What that returns is the value; else the last line of stdout
    that is `__OUT__:` and JSON, or `{"__out": …}`. An exit code other than 0 is a failure.
    """

    languages: frozenset[str] = frozenset({"wasm"})

    def __init__(
        self,
        config: WasmConfig,
        *,
        max_memory_pages: int | None = None,
        max_module_bytes: int = 32 << 20,
        compiled_modules: int = 32,
    ) -> None:
        """*config* says whether there is WASI, and which functions of the host a module may import (`tools.call`, with
        `tools.read` beside it; none in the profile `hardened`, where the clock is a virtual one, too).

        The memory of a module is bounded by `memory_bytes` of *config*, as for every language of the sandbox, and by
        *max_memory_pages* (of 64 KiB) if that is given; a request can only lower it. *compiled_modules* is how many
        modules are kept compiled in memory. Raises ConfigurationError for an unknown host function, or a number that
        makes no sense.
        """
        if max_memory_pages is not None and not 1 <= max_memory_pages <= _MOST_PAGES:
            raise ConfigurationError(f"max_memory_pages must be from 1 to {_MOST_PAGES}, not {max_memory_pages}")
        if max_module_bytes < 1 or compiled_modules < 1:
            raise ConfigurationError("max_module_bytes and compiled_modules must be at least 1")
        unknown = sorted(set(config.allowed_host_functions) - _HOST_FUNCTIONS)
        if unknown:
            raise ConfigurationError(
                f"unknown host functions {', '.join(unknown)}; there is {', '.join(sorted(_HOST_FUNCTIONS))}"
            )
        self.config = config
        self._most_pages = min(max_memory_pages or _MOST_PAGES, max(config.memory_bytes // PAGE_BYTES, 1))
        self._max_module_bytes = max_module_bytes
        self._compiled = compiled_modules
        self._runs = GuestRuns(config.max_guests)

    @cached_property
    def _engine(self) -> wasmtime.Engine:
        return new_engine()

    @cached_property
    def _modules(self) -> CompiledModules:
        return CompiledModules(self._engine, self._compiled)

    @cached_property
    def _linked(self) -> tuple[Linker, list[object]]:
        """Everything that may be granted; what a module may import is checked before it is linked."""
        linker = Linker(self._engine)
        return linker, [*preview1.define_preview1(linker), *module_tools.define_tools(linker)]

    async def check(self) -> Availability:
        """Always available: there is nothing but wasmtime to have."""
        return Availability(ok=True, version=f"wasmtime {_VERSION}")

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run the module of *request*; see `SandboxBackend.execute`.

        Raises InvalidRequestError for what is not a module, is too large, or imports what it is not granted, and
        InvalidRequestError for files, for less memory than a page, and for an entry that the module does not have.
        """
        started = monotonic()
        ends = started + request.seconds
        pages = self._pages(request)
        if request.files:
            raise InvalidRequestError("a raw module has no files; give it what it needs as args, env or stdin")
        assert request.gateway is not None
        calls = host_calls(RequestServer(request.gateway), request.output, ends)
        run = self._prepare(request, pages, calls)

        def _stop() -> None:
            run.instance.stop()
            calls.stop()

        try:
            end, late = await self._runs.run(lambda: self._run(run), stop=_stop, ends=calls.deadline)
        finally:
            await calls.aclose()
        result = describe_end(request, end, late=late, started=started)
        run.markers.close()
        result.stdout = run.markers.without_marker(result.stdout)
        return result

    async def aclose(self) -> None:
        """Stop what runs."""
        await self._runs.aclose()

    def _pages(self, request: ExecuteRequest) -> int:
        most, asked = self._most_pages, request.limits.memory_bytes
        if not asked:
            return most
        if asked < PAGE_BYTES:
            raise InvalidRequestError(
                f"a module's memory is counted in pages of {PAGE_BYTES} bytes; a limit of {asked} is less than one",
                details={"memory_bytes": asked},
            )
        return min(most, asked // PAGE_BYTES)

    def _prepare(self, request: ExecuteRequest, pages: int, calls: HostCalls) -> _Run:
        hardened = request.profile == "hardened"
        clock, random = time_and_chance(request, clock=not hardened, calls=calls)
        markers = MarkerScanner()
        guest = CoreGuest(
            clock=clock,
            random=random,
            output=request.output,
            args=request.args,
            env=request.env,
            stdin=request.stdin,
            calls=module_tools.ModuleTools(calls.exchange),
            hear=markers.feed,
        )
        instance = CoreInstance(self._engine, guest, memory_bytes=pages * PAGE_BYTES, fuel=fuel_of(request))
        return _Run(request, pages, self._granted(hardened), guest, instance, markers, self._linked)

    def _granted(self, hardened: bool) -> Mapping[str, Sequence[str]]:
        granted: dict[str, Sequence[str]] = {}
        if self.config.enable_wasi:
            granted[preview1.MODULE] = tuple(preview1.SIGNATURES)
        if "tools.call" in self.config.allowed_host_functions and not hardened:
            granted[module_tools.MODULE] = ("call", "read")
        return granted

    # -- in the guest's thread ------------------------------------------------------------------------------------

    def _run(self, run: _Run) -> GuestEnd:
        end = GuestEnd()
        try:
            module = self._modules.get(module_bytes(run.request, self._max_module_bytes))
            check_imports(module, run.granted)
            end.payload = _json_value(self._value(run, module))
        except (InstanceFailed, InstanceStopped) as failure:
            exited = isinstance(failure.__cause__, ExitCalled) and failure.__cause__.exit_code == 0
            end.payload = {"value": None} if exited else None
            end.failure = None if exited else failure
        finally:
            run.guest.finish()
            end.details = {
                "runtime": "wasmtime",
                "version": _VERSION,
                "profile": run.request.profile or "standard",
                "max_memory_pages": run.pages,
                "enable_wasi": self.config.enable_wasi,
                "fuel_used": run.instance.fuel_used,
                "memory_used": run.instance.memory_bytes,
            }
            run.instance.close()
        if end.payload == {"value": None}:
            run.markers.close()
            end.payload = {"value": run.markers.value}
        return end

    def _value(self, run: _Run, module: Module) -> Any:
        """Run *module* to its end; what its entry returned."""
        entry = run.request.metadata.get("wasm_entry") or _ENTRY
        functions = {item.name: item.type for item in module.exports if isinstance(item.type, wasmtime.FuncType)}
        kind = functions.get(entry)
        results = kinds_of(kind.results) if kind is not None else None
        if kind is None and entry == _ENTRY and not functions:
            run.instance.start(run.linked[0], module)  # a module without any function does nothing, and that well
            return None
        if kind is None or kind.params or results is None:
            ready = sorted(name or "" for name, item in functions.items() if not item.params)
            raise InvalidRequestError(
                f"the module exports no function {str(entry)[:100]!r} without parameters; metadata 'wasm_entry' "
                f"can name one of: {', '.join(ready[:20]) or 'there are none'}",
                code="invalid_module",
            )
        instance = run.instance
        try:
            instance.start(run.linked[0], module)
        except InstanceFailed as failure:
            _refuse_unfit(failure, run.pages)
            raise
        first = functions.get(_INITIALIZE)
        if entry != _ENTRY and first is not None and not first.params and not first.results:
            instance.call(instance.function(_INITIALIZE, "", ""))
        return instance.call(instance.function(entry, "", results))


def _refuse_unfit(failure: InstanceFailed, pages: int) -> None:
    """Raises InvalidRequestError for a module that could not be instantiated; a start function that failed is none."""
    if "exceeds memory limits" in failure.report:
        raise InvalidRequestError(
            f"the module needs more memory from the start than the {pages} pages that it may have; raise the limit",
            code="invalid_module",
        ) from failure
    if "memory count too high" in failure.report:
        raise InvalidRequestError(
            "the module has several memories; it may have one, so that the limit on memory holds for all it uses",
            code="invalid_module",
        ) from failure
    if "table count too high" in failure.report or "table minimum size" in failure.report:
        raise InvalidRequestError(
            "the module has more, or larger, tables than it may have", code="invalid_module"
        ) from failure
    if "incompatible import type" in failure.report:
        raise InvalidRequestError(
            f"an import of the module has another signature than what there is: {failure.message}",
            code="invalid_module",
        ) from failure


def _json_value(value: Any) -> JSONObject:
    """Return the payload for what an entry returned; JSON has no NaN and no infinity."""
    numbers = value if isinstance(value, list) else [value]
    if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
        return {"error": {"kind": "ValueError", "message": f"the entry returned {value}, which JSON does not have"}}
    return {"value": value}
