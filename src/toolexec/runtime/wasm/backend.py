"""The embedded sandbox: WebAssembly in this process, nothing to install or start."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import InvalidRequestError, SandboxError, ToolExecError
from toolexec.errors.extras import unix_needed
from toolexec.runtime.base import Availability, SandboxSession
from toolexec.runtime.requirements import normal_requirements
from toolexec.runtime.wasm.config import WasmConfig, WasmSettings
from toolexec.runtime.wasm.enforced import enforced_by_wasm

if TYPE_CHECKING:
    from toolexec.runtime.wasm.python import PythonLanguage


class WasmLanguage(Protocol):
    """Runs programs of some languages inside of WebAssembly, in this process."""

    languages: frozenset[str]

    async def check(self) -> Availability:
        """Return whether it can run something here and now."""
        ...

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program that was validated, within its deadline; see `SandboxBackend.execute`."""
        ...

    async def aclose(self) -> None:
        """Stop what runs and free everything."""
        ...


_HOMES = {
    "python": ("toolexec.runtime.wasm.python", "PythonLanguage"),
    "wasm": ("toolexec.runtime.wasm.modules", "ModuleLanguage"),
    "javascript": ("toolexec.runtime.wasm.javascript", "JavaScriptLanguage"),
    "python-science": ("toolexec.runtime.wasm.science", "ScienceLanguage"),
}


class WasmBackend:
    """Runs Python, JavaScript and raw WebAssembly modules, each program in a fresh guest.

    A guest has no clock, random numbers, files or network but those that the run is given, memory and CPU within its
    limits, and no way out but the gateway. Code and libraries of a language are loaded at its first use.
    """

    kind = "wasm"
    isolation = "wasm"
    languages: frozenset[str] = frozenset(_HOMES)
    interrupts = False
    """A guest that is stopped ends in the middle of an instruction, and nothing in it would see a request to stop."""
    cancels_tasks = False
    """Closing it stops guests, and never cancels the task of a run: a run in a session needs none of its own."""
    replays: frozenset[str] = frozenset({"python", "javascript"})
    """The languages whose programs do the same again when they get the same answers."""

    def __init__(self, config: WasmConfig | None = None, **settings: Unpack[WasmSettings]) -> None:
        """Settings are those of `WasmConfig`, as one object, by keyword, or both: keywords then change the object's.

        Raises ConfigurationError for an unknown setting and for an invalid value."""
        self.config: WasmConfig = replace(config, **settings) if config is not None else WasmConfig(**settings)
        self._loaded: dict[str, WasmLanguage] = {}

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """Return which limits would hold for *request*. Raises InvalidRequestError for an unknown language."""
        self._language(_language_of(request))
        return enforced_by_wasm(request)

    async def check(self) -> Availability:
        """Return whether Python can run in it here; `check_language` checks another language."""
        return await self.check_language("python")

    async def check_language(self, language: str) -> Availability:
        """Return whether programs in *language* can run in it here. Raises InvalidRequestError for an unknown one."""
        try:
            return await self._language(language).check()
        except InvalidRequestError:
            raise
        except ToolExecError as error:
            return Availability(ok=False, reason=str(error))

    def packages(self) -> dict[str, frozenset[str]]:
        """Return the packages that Python has here, by language; see `PackageSource`."""
        from toolexec.runtime.wasm.science import science_packages

        own = frozenset(re.split(r"[^a-z0-9-]", name)[0] for name in normal_requirements(self.config.packages))
        return {**({"python": own} if own else {}), "python-science": science_packages()}

    async def start(self) -> None:
        """Have Python ready, so that the first run is quick: builds the sandbox if need be.

        Raises SandboxUnavailableError.
        """
        await self._python().start()

    async def start_workers(self) -> None:
        """Have Python ready, and two worker processes, so that programs which run at once go there from the first ones
        on, and those that compute for long have a lower priority than others: for hosts that run those of several
        tenants. Without workers it is `start`.

        Raises SandboxUnavailableError.
        """
        await self._python().start_workers()

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program; see `SandboxBackend.execute`."""
        try:
            return await self._language(_language_of(request)).execute(request)
        except SandboxError as error:
            error.locate(op="execute", backend=self.kind)
            raise

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """Open a guest that keeps its state from run to run: Python only. See `SessionBackend.open_session`."""
        if (request.language or "python") != "python":
            raise InvalidRequestError(f"only python has sessions here, not {request.language}", backend=self.kind)
        return await self._python().open_session(request)

    async def aclose(self) -> None:
        """Stop what runs and free everything."""
        loaded, self._loaded = [*self._loaded.values()], {}
        await asyncio.gather(*(language.aclose() for language in loaded))

    def _python(self) -> PythonLanguage:
        language: Any = self._language("python")
        return language

    def _language(self, name: str) -> WasmLanguage:
        name = name or "python"
        known = self._loaded.get(name)
        if known is None:
            if name not in _HOMES:
                raise InvalidRequestError(
                    f"the wasm sandbox does not run {name}; it runs {', '.join(sorted(_HOMES))}", backend=self.kind
                )
            module, kind = _HOMES[name]
            with unix_needed("the sandbox wasm"):
                make: Callable[[WasmConfig], WasmLanguage] = getattr(import_module(module), kind)
            known = self._loaded[name] = make(self.config)
        return known


def _language_of(request: ExecuteRequest) -> str:
    """Return the language that is meant: with the metadata `packages: science`, Python is the one with numpy and
    pandas."""
    if (request.language or "python") == "python" and request.metadata.get("packages") == "science":
        return "python-science"
    return request.language
