"""Leave a backend alone that fails all the time, until it may have recovered."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.errors import BackendUnavailableError
from toolexec.model.call import ToolCall
from toolexec.model.declared import setting
from toolexec.model.settings import checked
from toolexec.run.circuits import circuit_keys, verdicts
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.settings import BreakerSettings
from toolexec.run.types import Result

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]
_MAX_CIRCUITS: Final = 10_000


@checked("Breaker")
@dataclass(eq=False, repr=False, kw_only=True)
class Breaker(BreakerSettings):
    """A part of a `Gate`: after *failures* calls in a row that a backend did not answer, no call reaches it for *reset*
    seconds; then *probes* calls at a time may try, and the first that is answered closes the circuit again.

    Calls in the meantime raise BackendUnavailableError with the code `circuit_open` and `details["retry_after"]`, with
    nothing done. What counts are retryable failures. A backend that cannot be reached, that loses the connection or
    does not answer in time is left alone as a whole; a tool that answers with a failure, such as an endpoint with the
    status 500, is left alone itself, and the others of its backend go on. An error that says no is an answer; arguments
    that are refused, rate limits (also the service's own, the status 429) and cancelled calls count neither way. Each
    backend has a circuit of its own, and so has each of its tools and each local tool.

    *clock* gives seconds. Raises ConfigurationError for numbers that make no sense.
    """

    probes: int = setting(1, "How many calls at a time may try a backend that was left alone.", least=1)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._circuits: dict[Hashable, _Circuit] = {}
        self._lock = threading.Lock()

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that keeps calls of *inner* from backends that fail all the time."""
        return _Guarded(self, inner, find)

    def state(self, entry: Registered) -> BreakerState:
        """Return the state of the circuits that calls of the tool *entry* go through: that of the one least closed."""
        with self._lock:
            found = [self._circuits.get(key) for key in circuit_keys(entry)]
            opened = [each.opened for each in found if each is not None and each.opened is not None]
            if not opened:
                return "closed"
            return "open" if self.clock() < max(opened) + self.reset else "half_open"

    def enter(self, entry: Registered, keys: tuple[Hashable, ...]) -> tuple[bool, ...]:
        """Let a call of the tool *entry* pass the circuits *keys*; return for each whether the call tries an open one.
        Raises BackendUnavailableError where one is open."""
        circuits = self._circuits
        if not circuits:
            return (False,) * len(keys)
        with self._lock:
            found = [circuits.get(key) for key in keys]
            for place, circuit in enumerate(found):
                if circuit is not None and circuit.opened is not None:
                    wait = circuit.opened + self.reset - self.clock()
                    if wait > 0 or circuit.probing >= self.probes:
                        whole = place == 0 and entry.binding.kind != "local"
                        raise _refusal(entry, circuit, wait, whole=whole)
            for circuit in found:
                if circuit is not None and circuit.opened is not None:
                    circuit.probing += 1
            return tuple(circuit is not None and circuit.opened is not None for circuit in found)

    def leave(self, keys: tuple[Hashable, ...], probing: tuple[bool, ...], failed: tuple[bool | None, ...]) -> None:
        """Count how a call ended at each of its circuits: *failed*, answered, or None where that is not known."""
        with self._lock:
            for key, is_probe, has_failed in zip(keys, probing, failed, strict=True):
                self._count(key, has_failed, is_probe=is_probe)

    def is_quiet(self) -> bool:
        """Return whether nothing has failed since the last answers."""
        return not self._circuits

    def _count(self, key: Hashable, failed: bool | None, *, is_probe: bool) -> None:
        circuit = self._circuits.get(key)
        if circuit is not None and is_probe:
            circuit.probing -= 1
        if failed is False:
            if circuit is not None and (is_probe or circuit.opened is None):  # else a late answer, from before
                del self._circuits[key]
        elif failed:
            if circuit is None:
                circuit = self._add(key)
            circuit.failures += 1
            if circuit.failures >= self.failures and (circuit.opened is None or is_probe):
                circuit.opened = self.clock()

    def _add(self, key: Hashable) -> _Circuit:
        circuit = self._circuits[key] = _Circuit()
        if len(self._circuits) > _MAX_CIRCUITS:
            del self._circuits[next(iter(self._circuits))]
        return circuit


def _refusal(entry: Registered, circuit: _Circuit, wait: float, *, whole: bool) -> BackendUnavailableError:
    seconds = max(math.ceil(wait), 1)
    backend = entry.binding.backend
    what = f"the backend {backend}" if whole else entry.tool.id
    return BackendUnavailableError(
        f"{what} failed {circuit.failures} times in a row and is left alone; try again in {seconds} s, "
        "or use another tool",
        tool_id=entry.tool.id,
        op="breaker",
        backend=backend,
        code="circuit_open",
        details={"retry_after": seconds, "failures": circuit.failures},
    )


class _Circuit:
    """How calls of one backend or tool went: failures in a row, when it opened, if it did, and calls that try it.

    There is one only as long as the last call failed.
    """

    __slots__ = ("failures", "opened", "probing")

    def __init__(self) -> None:
        self.failures: int = 0
        self.opened: float | None = None
        self.probing: int = 0


class _Guarded(ObserverLayer):
    def __init__(self, breaker: Breaker, inner: Runner, find: Find) -> None:
        super().__init__(inner)
        self._breaker = breaker
        self._find = find

    def begin(self, call: ToolCall) -> CallEnd:
        breaker = self._breaker
        entry = resolved(call, self._find)
        keys = circuit_keys(entry)
        probing = breaker.enter(entry, keys)

        def end(result: Result | None, failure: BaseException | None) -> None:
            error = failure if result is None else result.error
            if error is not None:
                breaker.leave(keys, probing, verdicts(keys, error))
            elif result is None:
                breaker.leave(keys, probing, (None,) * len(keys))
            elif not breaker.is_quiet():
                breaker.leave(keys, probing, (False,) * len(keys))

        return end
