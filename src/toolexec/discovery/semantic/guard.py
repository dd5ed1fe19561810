"""Calls of an embedder that may fail, hang or answer nonsense: vectors or a reason, never an exception."""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolexec.discovery.semantic.embedder import Embedder, Vector
from toolexec.discovery.semantic.rows import MAX_DIMENSIONS, finite
from toolexec.discovery.semantic.side_loop import LateError, SideLoop
from toolexec.errors import ConfigurationError, MissingExtraError

logger: logging.Logger = logging.getLogger(__name__)

Purpose: TypeAlias = Literal["query", "documents"]
"""What strings are for. Each has a pause of its own: documents that make an embedder hang must not keep queries off."""

_PROBE = "tools"
_MAX_NAME = 80
_KNOWN_QUERIES = 256


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there are no vectors, in words that may be shown to anyone. `lasting`: other strings would fare no better."""

    reason: str
    lasting: bool


class GuardedEmbedder:
    """An embedder with a time limit for calls, checks of what it gives, and a pause of so many seconds after it failed.

    An embedder that does not block is called on the caller's thread, without a limit.
    """

    def __init__(self, embedder: Embedder, *, pause: float) -> None:
        self._embedder = embedder
        name: object = getattr(embedder, "name", None)
        batch: object = getattr(embedder, "batch", 64)
        self.name: str = (name if isinstance(name, str) and name else type(embedder).__name__)[:_MAX_NAME]
        self.deterministic: bool = getattr(embedder, "deterministic", False) is True
        self.blocks: bool = getattr(embedder, "blocks", True) is not False
        self.batch: int = batch if isinstance(batch, int) and batch > 0 else 64
        self._pause = pause
        self._side = SideLoop("toolexec-embedder")
        self._lock = threading.Lock()
        self._dimensions: int | None = None
        self._off: dict[Purpose, tuple[float, Fault]] = {}
        self._queries: OrderedDict[str, Vector] = OrderedDict()

    def query(self, text: str, seconds: float) -> Vector | Fault:
        """Return the vector of a query; those of the last 256 are kept."""
        found = self.queries([text], seconds)
        return found if isinstance(found, Fault) else found[0]

    def queries(self, strings: Sequence[str], seconds: float) -> Sequence[Vector] | Fault:
        """Return the vector of each query; those that are not kept are made in one call, *batch* at most."""
        with self._lock:
            known = {text: self._queries[text] for text in strings if text in self._queries}
            for text in known:
                self._queries.move_to_end(text)
        missing = [text for text in dict.fromkeys(strings) if text not in known]
        for start in range(0, len(missing), self.batch):
            batch = missing[start : start + self.batch]
            vectors = self.vectors(batch, "query", seconds)
            if isinstance(vectors, Fault):
                return vectors
            known.update(zip(batch, vectors, strict=True))
        with self._lock:
            self._queries.update((text, known[text]) for text in missing)
            while len(self._queries) > _KNOWN_QUERIES:
                self._queries.popitem(last=False)
        return [known[text] for text in strings]

    def vectors(self, strings: Sequence[str], purpose: Purpose, seconds: float) -> Sequence[Vector] | Fault:
        """Return one vector for each text, or why not."""
        off = self.off(purpose)
        if off is not None:
            return off
        try:
            return self._call(strings, seconds)
        except TimeoutError as error:
            return self._switch_off(purpose, error)
        except Exception as error:
            failure = error
        try:  # is it the embedder, or these strings?
            self._call([_PROBE], seconds)
        except Exception as error:
            return self._switch_off(purpose, error)
        return Fault(f"the embedder {self.name} does not take the text ({type(failure).__name__})", lasting=False)

    @property
    def used(self) -> bool:
        """Whether it has given vectors already; the first ones may take longer."""
        return self._dimensions is not None

    def off(self, purpose: Purpose) -> Fault | None:
        """Return why the embedder is not asked just now, or None."""
        with self._lock:
            until, fault = self._off.get(purpose, (0.0, None))
            return fault if time.monotonic() < until else None

    def close(self) -> None:
        """End the embedder's thread; see `SideLoop.close`."""
        self._side.close()

    def _call(self, strings: Sequence[str], seconds: float) -> Sequence[Vector]:
        given = self._ask(strings, seconds)
        if inspect.iscoroutine(given):
            given.close()
            raise _WrongShapeError("a coroutine; an embedder that awaits must not say that it never blocks")
        try:
            count, length = len(given), self._length(given[0])
            vectors = finite(given, length)
        except (TypeError, ValueError, OverflowError, LookupError):
            count = vectors = None
        if vectors is None or count != len(strings):
            expected = f"vectors of {self._dimensions} numbers" if self._dimensions else "vectors"
            raise _WrongShapeError(f"it did not give {len(strings)} {expected}, all finite")
        self._dimensions = len(vectors[0])
        return vectors

    def _ask(self, strings: Sequence[str], seconds: float) -> Any:
        try:
            if self.blocks:
                return self._side.call(lambda: self._embedder.embed(strings), seconds)
            return self._embedder.embed(strings)
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a panic of a library in Rust
            raise RuntimeError(type(error).__name__) from error

    def _length(self, vector: Any) -> int:
        length: Any = self._dimensions or getattr(self._embedder, "dimensions", None) or len(vector)
        if not isinstance(length, int) or not 1 <= length <= MAX_DIMENSIONS:
            raise ValueError(length)
        return length

    def _switch_off(self, purpose: Purpose, error: Exception) -> Fault:
        """Remember that it does not work. Notes quote nothing but what is safe to show: other errors may hold secrets,
        and those of a configuration the names of files, which are for the log."""
        shown = isinstance(error, MissingExtraError | LateError | _WrongShapeError)
        fault = Fault(f"the embedder {self.name} failed ({error if shown else type(error).__name__})", lasting=True)
        with self._lock:
            self._off[purpose] = (time.monotonic() + self._pause, fault)
        detail = f": {error}" if isinstance(error, ConfigurationError) and not shown else ""
        logger.warning("%s%s; it is tried again in %g s", fault.reason, detail, self._pause)
        return fault


class _WrongShapeError(ValueError):
    """What the embedder gave are not the vectors that were asked for."""
