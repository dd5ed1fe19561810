"""Backends by name: made by factories, found for bindings, started and stopped together."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from toolexec.backend.base import Backend, BackendFactory, KeepsSessions
from toolexec.backend.local import LocalBackend
from toolexec.errors import BackendError, BackendNotFoundError, ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.binding import Binding, BindingKind
from toolexec.model.ids import check_segment
from toolexec.model.json_value import JSONObject
from toolexec.model.settings import unknown_setting


class BackendRegistry:
    """Knows every backend; `resolve` finds the one for a binding at the moment of the call, so that backends may be
    registered at any time. Safe to use from several threads; `async with` starts and stops all backends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._only_local: LocalBackend | None = None
        self._backends: dict[str, Backend] = {}
        self._factories: dict[str, BackendFactory] = {"mcp": _mcp_factory}
        self._on_missing: dict[BindingKind, Callable[[str], Backend]] = {}
        self._stand_ins: dict[tuple[BindingKind, str], Backend] = {}
        self._running: set[str] = set()
        self._retired: list[Backend] = []
        self._closing: list[Backend] = []
        self._listeners: list[Callable[[Backend], None]] = []

    def register(self, backend: Backend | str, function: Callable[..., Any] | None = None) -> Backend:
        """Add a backend (without starting it), or a function as a local backend of that name; returns the backend.

        Raises BackendError for a name in use, ConfigurationError for what is not a backend and for a name that cannot
        be part of an ID.
        """
        if isinstance(backend, str):
            name, backend = backend, LocalBackend(backend)
            if function is None:
                raise ConfigurationError(f"register({name!r}, function) needs the function")
            backend.register(name, function)
        if not isinstance(getattr(backend, "name", None), str):
            raise ConfigurationError(f"register takes a backend, or a name and a function, not {backend!r}")
        problem = check_segment(backend.name)
        if problem:
            raise ConfigurationError(f"the backend's name {problem}")
        with self._lock:
            if backend.name in self._backends:
                raise BackendError(
                    f"a backend named {backend.name} is registered already; unregister it or choose another name",
                    backend=backend.name,
                    code="backend_exists",
                )
            self._backends[backend.name] = backend
            self._only_local = self._find_only_local()
            listeners = list(self._listeners)
        for listener in listeners:
            listener(backend)
        return backend

    def on_backend(self, listener: Callable[[Backend], None]) -> Callable[[], None]:
        """Have *listener* called with each backend, those that there are now and those that are registered later;
        returns how to stop that."""
        with self._lock:
            self._listeners.append(listener)
            known = list(self._backends.values())
        for backend in known:
            listener(backend)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    async def unregister(self, name: str) -> None:
        """Remove a backend and close it; unknown names are ignored. What closing raises is passed on."""
        with self._lock:
            backend = self._backends.pop(name, None)
            self._only_local = self._find_only_local()
            self._running.discard(name)
        if backend is not None:
            await self._close(backend)

    def end_session(self, session: str) -> None:
        """Have backends close what they keep for a session that is over."""
        with self._lock:
            known = [*self._backends.values(), *self._retired]
        for backend in known:
            if isinstance(backend, KeepsSessions):
                backend.end_session(session)

    def retire(self, name: str) -> Backend | None:
        """Take a backend out without closing it, and return it; None where there is none of that name.

        It is not listed any more and may be replaced. Until it is released, calls that were on their way to it arrive,
        unless there is another one of its name by then.
        """
        with self._lock:
            backend = self._backends.pop(name, None)
            self._only_local = self._find_only_local()
            self._running.discard(name)
            if backend is not None:
                self._retired.append(backend)
        return backend

    async def release(self, backend: Backend) -> None:
        """Close a backend that was retired. What closing raises is passed on."""
        with self._lock:
            self._retired = [each for each in self._retired if each is not backend]
        await self._close(backend)

    def register_factory(self, kind: str, factory: BackendFactory) -> None:
        """Have *factory* make the backends of this kind, in place of an earlier one; raises ConfigurationError for an
        empty kind."""
        if not kind or not callable(factory):
            raise ConfigurationError("register_factory(kind, factory) needs a kind and a callable")
        with self._lock:
            self._factories[kind] = factory

    def create(self, kind: str, name: str, config: JSONObject | None = None) -> Backend:
        """Make a backend with its kind's factory and register it.

        Raises BackendNotFoundError for a kind without factory, and whatever the factory and `register` raise.
        """
        with self._lock:
            factory = self._factories.get(kind)
            known = sorted(self._factories)
        if factory is None:
            hint = did_you_mean(kind, known, otherwise=f"there is one for {', '.join(known)}")
            raise BackendNotFoundError(f"there is no factory for backends of kind {kind!r}; {hint}")
        return self.register(factory(name, config or {}))

    def on_missing(self, kind: BindingKind, make: Callable[[str], Backend]) -> None:
        """Have *make* supply a backend when a binding of this kind names one that is not registered. It is made once,
        and closed by `stop_all`; it is not listed, and gives way to one that is registered under its name."""
        self._on_missing[kind] = make

    def get(self, name: str) -> Backend | None:
        """Return the backend, or None."""
        return self._backends.get(name)

    def names(self) -> list[str]:
        """Return all names in alphabetical order."""
        with self._lock:
            return sorted(self._backends)

    def list(self, *, kind: str | None = None, enabled: bool | None = None) -> Sequence[Backend]:
        """Backends in order of registration, only those of *kind*, or those that are (not) *enabled*, if given."""
        with self._lock:
            backends = list(self._backends.values())
        return [b for b in backends if kind in (None, b.kind) and enabled in (None, b.enabled)]

    def resolve(self, binding: Binding) -> Backend:
        """Return the backend that hosts *binding*; raises BackendNotFoundError with what there is instead."""
        if binding.kind == "local" and self._only_local is not None:
            return self._only_local
        backend = self._backends.get(binding.backend)
        if binding.kind == "local":
            if isinstance(backend, LocalBackend) and (len(self._backends) == 1 or backend.has(binding.tool)):
                return backend
            found = self._resolve_local(binding.tool) or backend
            return found if found is not None and found.kind == "local" else self._missing(binding)
        if backend is not None and backend.kind == binding.kind:
            return backend
        return self._missing(binding)

    def _find_only_local(self) -> LocalBackend | None:
        """Return the backend of every local binding, as long as there is just one and it goes by the usual name."""
        found = [backend for backend in self._backends.values() if isinstance(backend, LocalBackend)]
        return found[0] if len(found) == 1 and found[0].name == "local" else None

    def _resolve_local(self, name: str) -> Backend | None:
        """Return the local backend that has the handler: the one named before the colon, else the only one that knows
        it."""
        prefix = name.partition(":")[0]
        named = self._backends.get(prefix)
        if isinstance(named, LocalBackend) and named.has(name):
            return named
        having = [b for b in self.list(kind="local") if isinstance(b, LocalBackend) and b.has(name)]
        return having[0] if len(having) == 1 else None

    def _missing(self, binding: Binding) -> Backend:
        for retired in self._retired:
            if (retired.kind, retired.name) == (
                binding.kind,
                binding.backend,
            ) and binding.backend not in self._backends:
                return retired
        make = self._on_missing.get(binding.kind)
        if make is not None:
            key = binding.kind, binding.backend
            return self._stand_ins.get(key) or self._stand_ins.setdefault(key, make(binding.backend))
        same = [b.name for b in self.list(kind=binding.kind)]
        known = did_you_mean(binding.backend, same) or "there are none of this kind"
        raise BackendNotFoundError(
            f"no {binding.kind} backend named {binding.backend!r} is registered; {known}",
            backend=binding.backend,
            op="execute",
        )

    async def start_all(self) -> None:
        """Start all enabled backends at the same time.

        When some fail, all that were not running before are closed again and an ExceptionGroup has every failure. A
        cancelled start closes them as well.
        """
        backends = self.list(enabled=True)
        fresh = [b for b in backends if b.name not in self._running]
        try:
            results = await asyncio.gather(*(b.start() for b in backends), return_exceptions=True)
            failures = _failures(backends, results)
        except BaseException:
            await _close_all(fresh)
            raise
        if failures:
            await _close_all(fresh)
            raise ExceptionGroup("some backends did not start; the others were stopped again", failures)
        self._running.update(b.name for b in backends)

    async def stop_all(self) -> None:
        """Close every backend, whatever happens to the others; then raise an ExceptionGroup of all failures, if any.

        Those that are being closed count, and those whose closing was cancelled.
        """
        with self._lock:
            backends = [*self._backends.values(), *self._stand_ins.values(), *self._retired, *self._closing]
            self._stand_ins.clear()
            self._retired, self._closing = [], []
            self._running.clear()
        failures = _failures(backends, await _close_all(backends))
        if failures:
            raise ExceptionGroup("some backends did not stop cleanly", failures)

    async def _close(self, backend: Backend) -> None:
        """Close a backend that is out; where that is cancelled, it is left to `stop_all`."""
        with self._lock:
            self._closing.append(backend)
        try:
            await backend.aclose()
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._closed(backend)
            raise
        self._closed(backend)

    def _closed(self, backend: Backend) -> None:
        with self._lock:
            self._closing = [each for each in self._closing if each is not backend]

    async def __aenter__(self) -> Self:
        await self.start_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop_all()


async def _close_all(backends: Sequence[Backend]) -> Sequence[BaseException | None]:
    return await asyncio.gather(*(b.aclose() for b in backends), return_exceptions=True)


def _failures(backends: Sequence[Backend], results: Sequence[BaseException | None]) -> list[Exception]:
    failures: list[Exception] = []
    for backend, result in zip(backends, results, strict=True):
        if isinstance(result, Exception):
            result.add_note(f"backend: {backend.name}")
            failures.append(result)
        elif isinstance(result, BaseException):
            failures.append(BackendError(f"backend {backend.name}: {type(result).__name__}", backend=backend.name))
    return failures


def _mcp_factory(name: str, config: JSONObject) -> Backend:
    from toolexec.backend.mcp import MCPBackend, MCPServer

    known = set(inspect.signature(MCPServer).parameters) - {"name"}
    for key in config.keys() - known:
        raise unknown_setting(f"MCP server {name}", key, sorted(known))
    return MCPBackend(MCPServer(name=name, **config))
