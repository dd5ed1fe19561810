"""Tasks of plain calls, as records that servers on many machines share: each may be asked about any of them.

The server that works on a task writes its record, and reads there what others want of it: that it stops, and answers.
A record is encrypted with a key that the task's ID is a part of; the store has no IDs in clear.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolexec.errors import ConfigurationError, StateError
from toolexec.model.json_value import JSONDict
from toolexec.server.kept_results import KeptResults
from toolexec.server.sealing import opened, sealed
from toolexec.server.state import StateStore, key_of
from toolexec.server.tasks import INTERRUPTED, StoredTask, TaskOutcome

logger: logging.Logger = logging.getLogger(__name__)
_INTERNAL_ERROR: Final = -32603  # of JSON-RPC
_SILENT: Final = 10.0  # after so long without a sign, by the clock of who looks, a server is taken for dead
_LONG_SILENT: Final = 600.0  # by the clocks of both
_BEAT: Final = 2.0
_MOST_WATCHED: Final = 1000
_TRIES: Final = 50
_LONGEST: Final = 64 * 1024  # a longer outcome is kept as results are
_MOST_LISTED: Final = 1000
_GONE: Final = "it ran, but its result is not kept any more"
_FACTS: Final = ("tool", "session", "status", "message", "created", "updated", "ttl")
_Change = Callable[[JSONDict], bool]
"""Changes what a record says, and returns whether it did."""


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task of any server: as it is, what it asks by key, as requests on the wire, and the answers that it has not
    taken yet. `stop` says that it is to end."""

    task: StoredTask
    asks: JSONDict
    answers: JSONDict
    stop: bool


class SharedTasks:
    """The records of tasks at *endpoint*, in what *store* gives. Long outcomes are kept in *results*. *keys* are the
    server's own: the first seals. *clock* gives seconds that only grow."""

    def __init__(
        self,
        store: Callable[[], StateStore | None],
        results: KeptResults,
        keys: tuple[str, ...],
        endpoint: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._watched: dict[str, tuple[float, float]] = {}  # the last sign of a task's server, and since when
        self._store = store
        self._results = results
        self._keys = keys or ("",)
        self._endpoint = endpoint

    async def begin(self, task: StoredTask) -> bool:
        """Keep a new task; return whether it is known to be kept."""
        facts: JSONDict = {name: getattr(task, name) for name in _FACTS}
        facts |= {"seen": time.time(), "asks": {}, "answers": {}, "stop": False}
        text = self._sealed(task.id, task.owner, facts)
        try:
            if (store := self._store()) is None:
                return False
            await store.put("task", self._name(task.id, task.owner), text, _left(task))
            await self._list(store, task)
        except (ConfigurationError, StateError) as error:
            logger.error("a task is not known to other servers: %s", error)
            return False
        return True

    async def beat(self, task: StoredTask, asks: JSONDict) -> SharedTask | None:
        """Have the record say how far a task of this server has come, and that the server lives; return it with the
        answers that it had, which are taken. None where there is no record."""
        taken: JSONDict = {}

        def change(facts: JSONDict) -> bool:
            taken.clear()
            now = {"status": task.status, "message": task.message, "updated": task.updated, "asks": asks}
            is_same = all(facts[name] == value for name, value in now.items()) and not facts["answers"]
            if "outcome" in facts or (is_same and time.time() - facts["seen"] < _BEAT):
                return False
            taken.update(facts["answers"])
            facts |= {**now, "answers": {}, "seen": time.time()}
            return True

        facts = await self._change(task.id, task.owner, _left(task), change)
        if facts is None:
            return None
        return SharedTask(task, asks, taken, facts["stop"])

    async def finish(self, task: StoredTask, outcome: TaskOutcome) -> None:
        """Keep how a task of this server ended; that it was taken for interrupted does not count. Raises StateError,
        and ConfigurationError."""
        tools: JSONDict = {"tools": [*outcome.tools]}
        data: JSONDict = {**tools, "data": outcome.data}
        if len(text := json.dumps(outcome.data)) > _LONGEST:
            await self._results.write(task.id, ("task", task.owner), text.encode(), _left(task))
            data = {**tools, "kept": True}

        def change(facts: JSONDict) -> bool:
            status, message = outcome.status, outcome.message
            facts |= {"status": status, "message": message, "updated": time.time(), "outcome": data, "asks": {}}
            return True

        await self._change(task.id, task.owner, _left(task), change)

    async def find(self, task_id: str, owner: str) -> SharedTask | None:
        """Return the task of *owner* with this ID; one whose server gives no sign while it is asked about has failed.
        None for none. Raises StateError, and ConfigurationError."""

        def change(facts: JSONDict) -> bool:
            if "outcome" in facts or not self._is_silent(self._name(task_id, owner), facts["seen"]):
                return False
            error = {"code": _INTERNAL_ERROR, "message": INTERRUPTED}
            facts |= {"status": "failed", "message": INTERRUPTED, "updated": time.time(), "outcome": {"data": error}}
            return True

        try:
            facts = await self._change(task_id, owner, None, change)
        except StateError:
            self._watched.clear()  # no server can give a sign meanwhile
            raise
        if facts is None or time.time() >= facts["created"] + facts["ttl"]:
            return None
        about: Any = {name: facts[name] for name in _FACTS}
        outcome: Any = facts.get("outcome") or {}
        found: JSONDict | None = outcome.get("data")
        if outcome.get("kept"):
            whole = await self._results.read(task_id, ("task", owner))
            found = json.loads(whole) if whole is not None else {"code": _INTERNAL_ERROR, "message": _GONE}
            about |= {} if whole is not None else {"status": "failed", "message": _GONE}
        task = StoredTask(id=task_id, owner=owner, outcome=found, tools=outcome.get("tools", ()), **about)
        return SharedTask(task, {} if outcome else facts["asks"], facts["answers"], facts["stop"])

    async def stop(self, task: StoredTask) -> None:
        """Have the server of a task stop it. Raises StateError, and ConfigurationError."""

        def change(facts: JSONDict) -> bool:
            facts["stop"] = True
            return True

        await self._change(task.id, task.owner, _left(task), change)

    async def answer(self, task: StoredTask, replies: Mapping[str, JSONDict]) -> None:
        """Give the server of a task the answers to what it asks; others are ignored, and so is a second one. Raises
        StateError, and ConfigurationError."""

        def change(facts: JSONDict) -> bool:
            new = {key: reply for key, reply in replies.items() if key in facts["asks"] and key not in facts["answers"]}
            facts["answers"] |= new
            return bool(new)

        await self._change(task.id, task.owner, _left(task), change)

    async def list_ids(self, owner: str, session: str) -> list[str]:
        """Return the IDs of the tasks of *owner*, or of an anonymous *session*, the newest first. Raises StateError,
        and ConfigurationError."""
        store = self._store()
        name = self._list_name(owner, session)
        text = await store.get("task", name) if store is not None and name else None
        return [task_id for task_id, _ in reversed(self._ids(name, text))]

    def _is_silent(self, name: str, seen: float) -> bool:
        """Return whether a server gives no sign after that at *seen*, while this one has looked."""
        now, before = self._clock(), self._watched.get(name)
        if before is None or before[0] != seen:
            if len(self._watched) >= _MOST_WATCHED:
                del self._watched[next(iter(self._watched))]
            self._watched[name] = before = (seen, now)
        return now - before[1] > _SILENT or time.time() - seen > _LONG_SILENT

    # -- records ------------------------------------------------------------------------------------------------

    async def _change(self, task_id: str, owner: str, ttl: float | None, change: _Change) -> JSONDict | None:
        """Change a record, as no other server does meanwhile, and return what it says; None where there is none."""
        store, name = self._store(), self._name(task_id, owner)
        if store is None:
            return None
        for _ in range(_TRIES):
            text = await store.get("task", name)
            data = opened(text, self._keys, task_id, self._about(owner)) if text is not None else None
            if text is None or data is None:
                return None
            facts: JSONDict = json.loads(data)
            if not change(facts):
                return facts
            left = facts["created"] + facts["ttl"] - time.time() if ttl is None else ttl
            if await store.swap("task", name, text, self._sealed(task_id, owner, facts), max(left, 0.0)):
                return facts
        raise StateError("the record of a task is changed by too many at once")

    async def _list(self, store: StateStore, task: StoredTask) -> None:
        """Put a task on the list of its owner."""
        name = self._list_name(task.owner, task.session)
        for _ in range(_TRIES if name else 0):
            text, now = await store.get("task", name), time.time()
            ids = [each for each in self._ids(name, text) if each[1] > now]
            ids = [*ids[1 - _MOST_LISTED :], (task.id, task.created + task.ttl)]
            new = sealed(json.dumps(ids).encode(), self._keys[0], name, ("tasks",))
            ttl = max(until for _, until in ids) - now
            if await (store.add("task", name, new, ttl) if text is None else store.swap("task", name, text, new, ttl)):
                return

    def _ids(self, name: str, text: str | None) -> list[tuple[str, float]]:
        data = opened(text, self._keys, name, ("tasks",)) if text is not None else None
        return [(str(task_id), float(until)) for task_id, until in json.loads(data or b"[]")]

    def _list_name(self, owner: str, session: str) -> str:
        """Return the name of a list; empty where it cannot be kept: IDs are written only with a key of the server."""
        if not self._keys[0]:
            return ""
        return key_of(self._endpoint, "tasks", *(("owner", owner) if owner else ("session", session)))

    def _name(self, task_id: str, owner: str) -> str:
        return key_of(self._endpoint, "task", task_id, owner)

    def _about(self, owner: str) -> tuple[str, ...]:
        return ("task", self._endpoint, owner)

    def _sealed(self, task_id: str, owner: str, facts: JSONDict) -> str:
        return sealed(json.dumps(facts).encode(), self._keys[0], task_id, self._about(owner))


def _left(task: StoredTask) -> float:
    """Return how long, in seconds, a task is still kept."""
    return max(task.created + task.ttl - time.time(), 0.0)
