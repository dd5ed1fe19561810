"""Leave a backend alone that fails all the time, until it may have recovered."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from typing import Final, Literal, TypeAlias

from toolexec.discovery.index import Registered
from toolexec.errors import BackendUnavailableError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.settings import checked
from toolexec.run.layer import CallEnd, ObserverLayer
from toolexec.run.repeating import above_zero, backend_failed, circuit_key
from toolexec.run.resolve import Find, resolved
from toolexec.run.runner import Runner
from toolexec.run.types import Result

__all__ = ["Breaker", "BreakerState"]

BreakerState: TypeAlias = Literal["closed", "open", "half_open"]
_MAX_CIRCUITS: Final = 10_000


@checked("Breaker")
class Breaker:
    """A part of a `Gate`: after *failures* calls in a row that a backend did not answer, no call reaches it for *reset*
    seconds; then *probes* calls at a time may try, and the first that is answered closes the circuit again.

    Calls in the meantime raise BackendUnavailableError with the code `circuit_open` and `details["retry_after"]`, with
    nothing done. What counts are retryable failures: a connection that is lost or cannot be made, a time limit, a
    backend that is down or overloaded. An error that the tool itself reports is an answer; arguments that are refused,
    rate limits and cancelled calls count neither way. Each backend has a circuit of its own, and so has each local
    tool.

    *clock* gives seconds. Raises ConfigurationError for numbers that make no sense.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        reset: float = 30.0,
        probes: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        above_zero("failures", failures, 1)
        above_zero("reset", reset)
        above_zero("probes", probes, 1)
        self.failures = failures
        self.reset = reset
        self.probes = probes
        self._clock = clock
        self._circuits: dict[Hashable, _Circuit] = {}
        self._lock = threading.Lock()

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that keeps calls of *inner* from backends that fail all the time."""
        return _Guarded(self, inner, find)

    def state(self, entry: Registered) -> BreakerState:
        """Return the state of the circuit that calls of the tool *entry* go through."""
        with self._lock:
            circuit = self._circuits.get(circuit_key(entry))
            if circuit is None or circuit.opened is None:
                return "closed"
            return "open" if self._clock() < circuit.opened + self.reset else "half_open"

    def enter(self, entry: Registered) -> tuple[_Circuit, bool]:
        """Let a call of the tool *entry* pass; return its circuit, and whether the call tries an open one. Raises
        BackendUnavailableError where it is open."""
        key = circuit_key(entry)
        with self._lock:
            circuit = self._circuits.get(key)
            if circuit is None:
                circuit = self._circuits[key] = _Circuit()
                if len(self._circuits) > _MAX_CIRCUITS:
                    del self._circuits[next(iter(self._circuits))]
            if circuit.opened is None:
                return circuit, False
            wait = circuit.opened + self.reset - self._clock()
            if wait > 0 or circuit.probing >= self.probes:
                raise self._refusal(entry, circuit, wait)
            circuit.probing += 1
            return circuit, True

    def leave(self, circuit: _Circuit, failed: bool | None, *, probing: bool) -> None:
        """Count how a call ended: *failed*, answered, or None where that is not known."""
        with self._lock:
            if probing:
                circuit.probing -= 1
            if failed is False:
                if probing or circuit.opened is None:  # else a late answer to a call from before
                    circuit.failures = 0
                    circuit.opened = None
            elif failed:
                circuit.failures += 1
                if circuit.failures >= self.failures and (circuit.opened is None or probing):
                    circuit.opened = self._clock()

    def _refusal(self, entry: Registered, circuit: _Circuit, wait: float) -> BackendUnavailableError:
        seconds = max(math.ceil(wait), 1)
        backend = entry.binding.backend
        what = f"the backend {backend}" if entry.binding.kind != "local" else entry.tool.id
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
    """How calls of one backend went: failures in a row, when it opened, if it is open, and calls that try it."""

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
        circuit, probing = breaker.enter(resolved(call, self._find))

        def end(result: Result | None, failure: BaseException | None) -> None:
            error = failure if result is None else result.error
            if error is None:
                failed = None if result is None else False
            else:
                failed = backend_failed(error) if isinstance(error, ToolExecError) else None
            if failed is not False or probing or circuit.failures:
                breaker.leave(circuit, failed, probing=probing)

        return end
