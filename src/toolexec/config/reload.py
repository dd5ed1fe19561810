"""Take over changed settings in a running server: all of them, or none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.backend.offering import OffersMore
from toolexec.config.build import Built, backends, choose_tools, endpoint_settings
from toolexec.config.callers import present_by
from toolexec.config.changes import API_KEYS, Changes, changes_between
from toolexec.config.loaded import LoadedConfig
from toolexec.config.parts import auth_settings
from toolexec.errors import AuditError, BackendNotFoundError, ConfigurationError, ToolExecError
from toolexec.errors.hints import did_you_mean
from toolexec.run.live_gate import LiveGate

if TYPE_CHECKING:
    from toolexec.backend.base import Backend
    from toolexec.model.origin import Caller
    from toolexec.run.gate import Gate
    from toolexec.run.live_gate import Era
    from toolexec.server.auth import ApiKey, LiveKeys
    from toolexec.server.endpoints import Endpoints, PreparedEndpoints

__all__ = ["Reload"]

logger: logging.Logger = logging.getLogger(__name__)
_OFFERED: Final = (":+prompt", ":+resource")
_LONGEST: Final = 600.0  # seconds for calls of a removed server to end, where calls have no longest time


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """All that a reload exchanges, made and checked."""

    loaded: LoadedConfig
    changes: Changes
    keys: tuple[ApiKey, ...]
    gate: Gate
    backends: tuple[Backend, ...]
    show: Callable[[], None]
    choose: Mapping[str, Callable[[], None]]
    endpoints: PreparedEndpoints | None = None


class Reload:
    """Takes over what *load* returns into what was *built* for a server, each time it is called.

    What has changed is made first, all of it, and what takes the place of a server is started, for up to the Exec's
    `start_timeout`; then it is exchanged in one turn of the event loop. A call goes by the settings of the moment it
    began, and reaches the backend that it began with. Servers that are the same keep their connections, and so do those
    of which only another part is chosen; one that is out or changed is closed once the calls have ended that began
    before. When anything is wrong nothing changes: the log and `problem` say what. The
    audit log has a record of what was changed, by name.

    *keys* are the API keys of the server, if it takes any, *endpoints* those beside its main one; *notify* is called
    when other tools may be visible. Raises ConfigurationError for an Exec that was not built for a server.
    """

    def __init__(
        self,
        built: Built,
        load: Callable[[], LoadedConfig],
        *,
        keys: LiveKeys | None = None,
        notify: Callable[[], None] = lambda: None,
        endpoints: Endpoints | None = None,
    ) -> None:
        gate = built.gate
        if not isinstance(gate, LiveGate):
            raise ConfigurationError("the settings of a server only can be reloaded: build(loaded, serving=True)")
        self._gate = gate
        self._built = built
        self._load = load
        self._keys = keys
        self._notify = notify
        self._endpoints = endpoints
        self._loaded = built.loaded
        self._by_settings = present_by(built.loaded)
        gate.present = self._present
        self._turn = asyncio.Lock()
        self._work: set[asyncio.Task[None]] = set()
        self.problem: str = ""
        """Why the last reload changed nothing; empty if it succeeded."""

    @property
    def loaded(self) -> LoadedConfig:
        """The settings that hold now."""
        return self._loaded

    @property
    def named(self) -> Sequence[Path]:
        """The files of the settings that were named, without those that they include."""
        return self._loaded.files

    @property
    def files(self) -> Sequence[Path]:
        """The files of the settings, with those that they include."""
        return (*self._loaded.files, *map(Path, self._loaded.settings.sources.include))

    async def __call__(self) -> Changes | None:
        """Read the settings and take over what has changed; return that, or None when they could not be used.

        Of several calls each waits for those before it, and reads what is there then.
        """
        async with self._turn:
            prepared = None
            try:
                prepared = await asyncio.to_thread(self._prepare)
                await self._take_over(prepared)
            except ToolExecError as error:
                return self._failed(_one_line(error), prepared)
            except Exception as error:
                logger.debug("a reload failed", exc_info=True)
                return self._failed(type(error).__name__, prepared)
            self.problem = ""
            changes = prepared.changes
            level = logging.WARNING if changes or changes.restart else logging.INFO
            logger.log(level, "the settings were reloaded; %s", changes)
            return changes

    async def restart(self, name: str) -> None:
        """Replace a server or provider by a new one with the same settings, as if they had changed: calls that began
        before end with the former one. What else has changed in the files stays as it is.

        Raises BackendNotFoundError for a name that the settings do not have, and what making it again raises; then
        nothing has changed.
        """
        async with self._turn:
            known = [*(server.name for server in self._loaded.servers), *self._loaded.providers]
            if name not in known:
                raise BackendNotFoundError(f"the settings have no backend {name!r}; {did_you_mean(name, known)}")
            await self._take_over(await asyncio.to_thread(self._prepare, again=name))
            logger.warning("backend %s is started again", name)

    async def aclose(self) -> None:
        """Wait for no call any more; what is still to be closed is closed with the Exec."""
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)

    def _failed(self, why: str, prepared: _Prepared | None) -> None:
        if prepared is not None and prepared.changes and self._built.audit is not None:
            with suppress(AuditError):  # which the next call reports, too
                self._built.audit.append({"note": "the settings were not reloaded after all"})
        self.problem = f"the settings were not reloaded, those of before stay: {why}"
        logger.error("%s", self.problem)

    def _prepare(self, *, again: str = "") -> _Prepared:
        """Read the settings, and make and check all that has changed; or make the backend *again*, and read nothing."""
        built, maker = self._built, self._built.maker
        loaded = self._loaded if again else self._load()
        changes = changes_between(
            built.loaded,
            self._loaded,
            loaded,
            has_keys=self._keys is not None,
            own_gate=maker is None,
            has_endpoints=self._endpoints is not None,
            chooses=maker is not None and maker.chooses,
            shows=built.shows and built.ex.cassette is None,
        )
        if again:
            changes = replace(changes, changed=(again,))
        gate = self._gate.current
        if maker is not None and changes.of_gate:
            gate = replace(maker, loaded=loaded).remake(gate, changes.of_gate)
            choose_tools(gate, built.ex)
        self._check_names(changes)
        show, choose = self._tools(loaded, changes), self._choices(loaded, changes)
        made = tuple(backend for _, backend in backends(loaded, {*changes.added, *changes.changed}))
        served = None
        if self._endpoints is not None and maker is not None and maker.chooses:
            served = self._endpoints.prepare(endpoint_settings(loaded))
        keys = auth_settings(loaded).api_keys
        gone = sorted(self._keys.gone(keys)) if self._keys is not None else []
        if changes and built.audit is not None:
            facts = {name: names for name, names in changes.to_dict().items() if name != "restart"}
            built.audit.append({"note": "the settings were reloaded", **facts, **({"api_keys": gone} if gone else {})})
        return _Prepared(
            loaded=loaded,
            changes=changes,
            keys=keys,
            gate=gate,
            backends=made,
            endpoints=served,
            show=show,
            choose=choose,
        )

    def _choices(self, loaded: LoadedConfig, changes: Changes) -> Mapping[str, Callable[[], None]]:
        """Check which part is chosen of each server that is the same but for that, and return what exchanges it."""
        if not changes.chosen:
            return {}
        from toolexec.backend.mcp import MCPBackend

        found: dict[str, Callable[[], None]] = {}
        for server in loaded.servers:
            backend = self._built.ex.backends.get(server.name) if server.name in changes.chosen else None
            if isinstance(backend, MCPBackend):
                found[server.name] = backend.prepare_choice(server)
        return found

    def _tools(self, loaded: LoadedConfig, changes: Changes) -> Callable[[], None]:
        """Check the composed tools and transforms of the new settings, and return what exchanges them."""
        if not changes.of_tools:
            return lambda: None
        before = self._loaded.tools
        return self._built.ex.prepare_tools(
            loaded.transforms,
            remove_skills=[before[name].skill.id for name in changes.tools if name in before],
            add_skills=[loaded.tools[name].skill for name in changes.tools if name in loaded.tools],
        )

    async def _take_over(self, prepared: _Prepared) -> None:
        """Start what takes the place of other servers, then exchange everything; raises with nothing exchanged, and
        nothing started."""
        try:
            await self._start_successors(prepared)
            self._exchange(prepared)
        except BaseException:
            await asyncio.gather(*(each.aclose() for each in prepared.backends), return_exceptions=True)
            raise

    async def _start_successors(self, prepared: _Prepared) -> None:
        """Have servers that are called now replaced by ones that are connected: no call waits for a process to start.

        One that takes longer, or fails, takes the place in its turn all the same, as the settings want it.
        """
        ex = self._built.ex
        starting: list[asyncio.Task[None]] = []
        for backend in prepared.backends:
            before = ex.backends.get(backend.name)
            if before is None or not (before.enabled and before.status().available):
                continue
            follow = getattr(backend, "follow", None)
            if follow is not None:
                follow(before)
            starting.append(self._begin(_started(backend)))
        if starting:
            await asyncio.wait(starting, timeout=ex.options.start_timeout)

    def _present(self, caller: Caller) -> Caller | None:
        """Return the caller by the keys of this moment; see `LiveKeys.present`. What is not served has the keys of the
        settings."""
        live = self._endpoints if caller.endpoint else self._keys
        return self._by_settings(caller) if live is None else live.present(caller)

    def _take(self, loaded: LoadedConfig) -> None:
        """Let these settings be those that hold."""
        self._loaded = loaded
        self._by_settings = present_by(loaded)

    def _exchange(self, prepared: _Prepared) -> None:
        """Exchange everything at once; raises before the first step, or not at all."""
        ex, changes = self._built.ex, prepared.changes
        self._check_names(changes)
        if not changes:
            self._take(prepared.loaded)
            return
        era = self._gate.exchange(prepared.gate)
        self._take(prepared.loaded)
        if self._keys is not None and API_KEYS in changes.keys:
            gone = self._keys.replace(prepared.keys)
            if gone:
                logger.warning("API keys that are out or changed: %s", ", ".join(sorted(gone)))
        if self._endpoints is not None and prepared.endpoints is not None:
            self._endpoints.exchange(prepared.endpoints)
        prepared.show()
        for choose in prepared.choose.values():
            choose()
        if prepared.choose:
            self._begin(self._read_tools(prepared.choose))
        if any(each.endswith(_OFFERED) for each in changes.transforms):
            self._begin(self._read_offers())
        out = (*changes.removed, *changes.changed)
        retired = [backend for name in out if (backend := ex.retire(name)) is not None]
        ex.add_backends(*prepared.backends)
        if prepared.backends:
            self._begin(self._connect())
        if retired:
            self._begin(self._close(era, retired))
        self._notify()
        if self._endpoints is not None:
            self._endpoints.notify_changes()

    def _check_names(self, changes: Changes) -> None:
        """Raise ConfigurationError where a backend that the settings know nothing of has the name of a new one."""
        for name in sorted({*changes.added} & {*self._built.ex.backends.names()}):
            raise ConfigurationError(f"a backend named {name} is there already; choose another name")

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    async def _read_tools(self, names: Collection[str]) -> None:
        """Read again the tools of servers of which another part is chosen: what is new is there from then on."""
        for name in names:
            if name in self._built.ex.backends.names():
                await self._built.ex.refresh(name)

    async def _read_offers(self) -> None:
        """Read again what servers offer beside tools: it has its new form from that reading on."""
        for backend in self._built.ex.backends.list(enabled=True):
            if isinstance(backend, OffersMore) and backend.has_offers:
                try:
                    await backend.offers()
                except ToolExecError as error:
                    logger.warning("resources and prompts have their former form: %s", _one_line(error))

    async def _connect(self) -> None:
        try:
            await self._built.ex.start()
        except ConfigurationError:
            return  # it was closed
        except Exception:
            logger.exception("servers were added, and could not be started")

    async def _close(self, era: Era, retired: Sequence[Backend]) -> None:
        """Close backends once the calls of their time have ended, or have had time enough."""
        try:
            async with asyncio.timeout(self._built.ex.options.max_timeout or _LONGEST):
                await era.ended()
        except TimeoutError:
            logger.warning("calls that began before a reload take too long; what they call is closed")
        for backend in retired:
            try:
                await self._built.ex.backends.release(backend)
            except Exception:
                logger.exception("backend %s was removed, and did not close", backend.name)


async def _started(backend: Backend) -> None:
    with suppress(Exception):  # the Exec starts it once more, and says why it fails
        await backend.start()


def _one_line(error: ToolExecError) -> str:
    mistakes = error.details.get("mistakes")
    return "; ".join(mistakes) if mistakes else " ".join(str(error).split())
