"""Search by meaning: the tools whose vectors are closest to the query's."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from toolexec.discovery.explanation import Explanation
from toolexec.discovery.search import Accept, Hits, best
from toolexec.discovery.semantic.embedder import Embed, Embedder, Vector, as_embedder
from toolexec.discovery.semantic.guard import Fault, GuardedEmbedder
from toolexec.discovery.semantic.vectors import InMemoryVectors, VectorEntry, VectorStore
from toolexec.discovery.summary import Metadata
from toolexec.discovery.words import words_of
from toolexec.errors import ConfigurationError
from toolexec.model.binding import Binding
from toolexec.model.settings import checked
from toolexec.model.tool import Tool

logger: logging.Logger = logging.getLogger(__name__)

_QUICK = 200
_SPARE_VECTORS = 1000
_NO_LIMIT = 1e9


MAX_TEXT = 2000
"""How many characters of a tool or a query an embedder gets to see."""


def document_text(tool: Tool) -> str:
    """Return the tool in words: its namespace and name, its description, its tags.

    Not its parameters: on the labelled set of `benchmarks/ranking`, they made search by meaning worse.
    """
    name = " ".join(words_of(f"{tool.namespace} {tool.name}"))
    parts = (name, tool.title, Metadata(tool.meta).summary, tool.description, " ".join(tool.tags))
    return plain_text(". ".join(part for part in parts if part))


def plain_text(text: str) -> str:
    """Return one lower-case line of at most 2,000 characters that can be encoded: lone surrogates become question
    marks."""
    line = " ".join(text[: 4 * MAX_TEXT].lower().split())[:MAX_TEXT]
    return line.encode("utf-8", "replace").decode("utf-8")


@checked("EmbeddingSearcher")
class EmbeddingSearcher:
    """Ranks tools by the cosine of their vector and the query's.

    *embedder* is an `Embedder` or a function; see `as_embedder`. New and changed tools get their vectors at the next
    search, in batches, and only if *store* (default: `InMemoryVectors`) has none that was made by the same embedder
    from the same text. *text* says what of a tool is embedded (default: `document_text`). Strings are put in lower case
    and cut at 2,000 characters. Hits have a cosine above *min_score* (default: the embedder's, or 0).

    A call of an embedder that `blocks` may take *timeout* seconds, and a search begins no further one after that time:
    the rest is left to the next search. An embedder that fails is not asked again for *pause* seconds. Either way the
    answer's `note` says what is missing: a search never raises because of an embedder or a store.

    Raises ConfigurationError for a timeout or pause that is not positive, and a min_score outside of 0 to 1.
    """

    name = "embedding"

    def __init__(
        self,
        embedder: Embedder | Embed,
        *,
        store: VectorStore | None = None,
        text: Callable[[Tool], str] = document_text,
        min_score: float | None = None,
        timeout: float = 5.0,
        pause: float = 30.0,
    ) -> None:
        if not timeout > 0 or not pause > 0:
            raise ConfigurationError(f"timeout and pause are seconds above 0, not {timeout!r} and {pause!r}")
        made = embedder if isinstance(embedder, Embedder) else as_embedder(embedder)
        lowest: float = getattr(made, "min_score", 0.0) if min_score is None else min_score
        if not 0 <= lowest <= 1:
            raise ConfigurationError(f"min_score is a cosine from 0 to 1, not {lowest!r}")
        self._guard = GuardedEmbedder(made, pause=pause)
        self.deterministic: bool = self._guard.deterministic
        """Whether the embedder says that a text always has the same vector."""
        self._store: VectorStore = InMemoryVectors() if store is None else store
        self._text = text
        self._min_score = lowest
        self._timeout = timeout if self._guard.blocks else _NO_LIMIT
        self._lock = threading.Lock()
        self._embedding = threading.Lock()
        self._live: set[str] = set()
        self._new: dict[str, Tool] = {}  # added, not looked at yet
        self._pending: dict[str, tuple[str, str]] = {}  # the text to embed, and its mark
        self._marks = dict(self._store.marks())  # of all vectors in the store
        self._batch = self._guard.batch
        self._fresh: set[str] = set()  # the tools whose vector in the store is that of what they are now

    @property
    def blocks(self) -> bool:
        """Whether the next search may take long, so that an event loop should have it done by a thread: when the
        embedder blocks or is used for the first time, or when much is to be embedded."""
        return self._guard.blocks or not self._guard.used or len(self._new) + len(self._pending) > _QUICK

    def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
        """Take in a new tool, or the new form of a known one; its vector is made at the next search."""
        with self._lock:
            self._live.add(tool.id)
            self._new[tool.id] = tool
            self._pending.pop(tool.id, None)
            self._fresh.discard(tool.id)

    def remove(self, tool_id: str) -> None:
        """Forget a tool; unknown IDs are ignored. Its vector is kept for a while: servers come back."""
        with self._lock:
            self._live.discard(tool_id)
            self._new.pop(tool_id, None)
            self._pending.pop(tool_id, None)
            self._fresh.discard(tool_id)

    def search(self, query: str, limit: int, accept: Accept | None = None) -> Hits:
        """Return the best hits; `note` says when some tools, or all, could not be searched."""
        if limit < 1:
            return Hits()
        if not query.strip():
            with self._lock:
                live = dict.fromkeys(self._live, 0.0)
            return Hits(best(live, limit, accept))
        text = plain_text(query)
        if not words_of(text):
            return Hits()
        ends = time.monotonic() + self._timeout
        vector = self._guard.query(text, self._timeout)
        if isinstance(vector, Fault):
            return Hits(note=_off(vector))
        fault = self._catch_up(ends)
        try:
            hits = self._store.search(vector, limit, self._accept(accept), above=self._min_score)
        except Exception as error:
            return Hits(note=_off(_store_fault(error)))
        return Hits(hits, note=self._what_is_missing(fault))

    def scores(self, query: str, tool_ids: Iterable[str]) -> dict[str, float]:
        """Return the cosines above `min_score` of these tools, where there are vectors already; none for a query
        without words, or when the embedder fails."""
        (cosines,) = self.cosines([query], tool_ids)
        return {tool_id: cosine for tool_id, cosine in cosines.items() if cosine > self._min_score}

    def cosines(self, queries: Sequence[str], tool_ids: Iterable[str]) -> list[dict[str, float]]:
        """Return for each query the cosines of these tools, where there are vectors already, however low; none for a
        query without words, or when the embedder fails. Queries that were not asked lately are embedded in one call."""
        strings = [plain_text(query) for query in queries]
        vectors = self._vectors([text for text in strings if words_of(text)])
        with self._lock:
            known = [tool_id for tool_id in tool_ids if tool_id in self._fresh]
        try:
            return [self._store.scores(vectors[text], known) if text in vectors else {} for text in strings]
        except Exception as error:
            _store_fault(error)
            return [{} for _ in strings]

    def _vectors(self, strings: Sequence[str]) -> dict[str, Vector]:
        vectors = self._guard.queries(strings, self._timeout)
        return {} if isinstance(vectors, Fault) else dict(zip(strings, vectors, strict=True))

    def explain(self, query: str, tool_id: str) -> Explanation | None:
        """Return the cosine as the part `embedding`; None when the query does not find the tool."""
        cosine = self.scores(query, [tool_id]).get(tool_id)
        return Explanation(parts={self.name: cosine}) if cosine is not None else None

    def prepare(self) -> int:
        """Make all vectors now that are not there yet, however long it takes; returns how many tools are left without
        one because the embedder failed."""
        self._catch_up(time.monotonic() + _NO_LIMIT)
        with self._lock:
            return len(self._live) - len(self._fresh)

    def close(self) -> None:
        """Release the embedder's thread and of the store."""
        self._guard.close()
        self._store.close()

    def _accept(self, accept: Accept | None) -> Accept | None:
        with self._lock:
            if len(self._fresh) == len(self._marks):  # then there is nothing else in the store
                return accept
        fresh = self._fresh
        return fresh.__contains__ if accept is None else lambda tool_id: tool_id in fresh and accept(tool_id)

    def _what_is_missing(self, fault: Fault | None) -> str:
        with self._lock:
            missing, total = len(self._new) + len(self._pending), len(self._live)
        if not missing:
            return ""
        because = f": {fault.reason}" if fault is not None else ""
        return f"{missing} of {total} tools are not searched by meaning yet{because}"

    # -- making vectors -----------------------------------------------------------------------------------------

    def _catch_up(self, ends: float) -> Fault | None:
        """Make vectors until all are there or time is over; the fault that ended it, if any."""
        if not self._new and not self._pending:
            return None
        if not self._embedding.acquire(timeout=max(ends - time.monotonic(), 0)):
            return None
        try:
            self._look_at_new()
            self._drop_spare()
            while time.monotonic() < ends:
                with self._lock:
                    batch = dict(islice(self._pending.items(), self._batch))
                if not batch:
                    return None
                fault = self._embed(batch)
                if fault is not None:
                    self._put_last(batch)
                    return fault
                self._batch = min(self._batch * 2, self._guard.batch)
            return None
        except Exception as error:
            return _store_fault(error)
        finally:
            self._embedding.release()

    def _look_at_new(self) -> None:
        with self._lock:
            new = dict(self._new)
        for tool_id, tool in new.items():
            text = self._text_of(tool)
            mark = hashlib.blake2b(f"{self._guard.name}\0{text}".encode(), digest_size=12).hexdigest()
            with self._lock:
                if self._new.get(tool_id) is not tool:
                    continue
                del self._new[tool_id]
                if self._marks.get(tool_id) == mark:
                    self._fresh.add(tool_id)
                else:
                    self._pending[tool_id] = (text, mark)

    def _text_of(self, tool: Tool) -> str:
        try:
            return plain_text(self._text(tool))
        except Exception:
            logger.exception("no text could be made of %s to search it by meaning; its name is taken", tool.id)
            return plain_text(tool.id)

    def _embed(self, batch: dict[str, tuple[str, str]]) -> Fault | None:
        """Make the vectors of a batch. A text that the embedder does not take is found by halving, and left out."""
        strings = list(dict.fromkeys(text for text, _ in batch.values()))
        vectors = self._guard.vectors(strings, "documents", self._timeout)
        if isinstance(vectors, Fault):
            if vectors.lasting:
                return vectors
            if len(batch) == 1:
                self._leave_out(batch, vectors)
                return None
            items = list(batch.items())
            middle = len(items) // 2
            return self._embed(dict(items[:middle])) or self._embed(dict(items[middle:]))
        by_text = dict(zip(strings, vectors, strict=True))
        with self._lock:  # whatever happens from here on, the store may have vectors that are not those of the tools
            self._marks |= dict.fromkeys(batch, "")
        self._store.add([VectorEntry(tool_id, by_text[text], mark) for tool_id, (text, mark) in batch.items()])
        with self._lock:
            for tool_id, (text, mark) in batch.items():
                self._marks[tool_id] = mark
                if self._pending.get(tool_id) == (text, mark):
                    del self._pending[tool_id]
                    self._fresh.add(tool_id)
        return None

    def _put_last(self, batch: Iterable[str]) -> None:
        """What failed may have been the reason: next time it comes after all others, and fewer are tried at once."""
        self._batch = max(self._batch // 2, 1)
        with self._lock:
            for tool_id in batch:
                if tool_id in self._pending:
                    self._pending[tool_id] = self._pending.pop(tool_id)

    def _leave_out(self, batch: dict[str, tuple[str, str]], fault: Fault) -> None:
        with self._lock:
            for tool_id, entry in batch.items():
                if self._pending.get(tool_id) == entry:
                    del self._pending[tool_id]
        logger.warning("%s is not searched by meaning: %s", next(iter(batch)), fault.reason)

    def _drop_spare(self) -> None:
        """Forget the vectors of tools that are gone, once they are many."""
        with self._lock:
            most = max(_SPARE_VECTORS, len(self._live) // 4)
            if len(self._marks) - len(self._fresh) <= most:
                return
            spare = [tool_id for tool_id in self._marks if tool_id not in self._live]
            if len(spare) <= most:
                return
            for tool_id in spare:
                del self._marks[tool_id]
        self._store.remove(spare)


def _off(fault: Fault) -> str:
    return f"search by meaning is off: {fault.reason}"


def _store_fault(error: Exception) -> Fault:
    logger.warning(
        "the vector store failed: %s", error if isinstance(error, ConfigurationError) else type(error).__name__
    )
    return Fault(f"the vector store failed ({type(error).__name__})", lasting=True)
