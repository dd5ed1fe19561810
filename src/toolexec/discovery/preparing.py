"""Compute what an index needs for its first answer, and after many changes, and read long schemas, without holding the
event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar, runtime_checkable

from toolexec.discovery.index import Index
from toolexec.discovery.many import FEW, are_long
from toolexec.model.tool import Tool
from toolexec.process.threads import WorkerThreads

_threads: Final = WorkerThreads(2, spare=2)
_T = TypeVar("_T")


@runtime_checkable
class Prepares(Protocol):
    """An index that computes something about many tools, and keeps it."""

    @property
    def is_prepared(self) -> bool:
        """Whether its answers take no more than a look at `FEW` tools now; must be quick."""
        ...

    def prepare(self) -> None:
        """Compute what is kept; may take seconds. Can be called from any thread."""
        ...


async def prepared(index: Index) -> None:
    """Have *index* compute in a thread what it would otherwise compute at the next question."""
    if isinstance(index, Prepares) and not index.is_prepared:
        await _threads.run(index.prepare)


async def off_loop_if_many(index: Index, work: Callable[[], _T]) -> _T:
    """Return the result of *work*, which looks at all tools of *index*: in a thread where those are many."""
    await prepared(index)
    return await _threads.run(work) if len(index) > FEW else work()


async def off_loop_if_long(tools: Iterable[Tool], work: Callable[[], _T]) -> _T:
    """Return the result of *work*, which reads the schemas of *tools*: in a thread where those are long together."""
    return await _threads.run(work) if are_long(tools) else work()
