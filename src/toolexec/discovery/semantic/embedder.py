"""What turns strings into vectors: the seam, and how any function becomes one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from toolexec.errors import ConfigurationError

Vector: TypeAlias = Sequence[float]
"""The numbers of one text; a row of a numpy array will do."""

Embed: TypeAlias = Callable[[Sequence[str]], Sequence[Vector] | Awaitable[Sequence[Vector]]]
"""Turns strings into one vector each, in their order."""

EmbedOne: TypeAlias = Callable[[str], Vector | Awaitable[Vector]]
"""Turns one text into its vector."""

_AT_ONCE = 8


@runtime_checkable
class Embedder(Protocol):
    """Turns strings into vectors whose cosine says how close the strings are in meaning.

    `embed` may be a coroutine function. Vectors all have the same length and finite numbers; they need not be of length
    1. It may raise anything. It may be called on several threads at once, unless it `blocks`: then it is called on one
    thread and event loop of the searcher's own.

    It may also have these attributes:

    - `name`: which model this is; vectors that were kept under another name are made again (default: the class's name)
    - `dimensions`: the length of its vectors (default: that of the first)
    - `deterministic`: whether a text always has the same vector (default False); only then can results be paged
    - `blocks`: whether a call may take long, or forever, so that it needs a time limit (default True)
    - `batch`: how many strings it takes in a call (default 64)
    - `min_score`: a cosine up to which strings have nothing to do with each other (default 0)
    """

    def embed(self, strings: Sequence[str], /) -> Sequence[Vector] | Awaitable[Sequence[Vector]]:
        """Return one vector for each text, in their order."""
        ...


class _FunctionEmbedder:
    def __init__(self, function: Embed, options: dict[str, Any]) -> None:
        self._function = function
        self.name: str = options["name"]
        self.dimensions: int | None = options["dimensions"]
        self.deterministic: bool = options["deterministic"]
        self.blocks: bool = options["blocks"]
        self.batch: int = options["batch"]

    def embed(self, strings: Sequence[str], /) -> Sequence[Vector] | Awaitable[Sequence[Vector]]:
        return self._function(strings)


def as_embedder(
    function: Embed | EmbedOne,
    *,
    each: bool = False,
    batch: int = 64,
    name: str = "",
    dimensions: int | None = None,
    deterministic: bool = False,
    blocks: bool = True,
) -> Embedder:
    """Make an embedder of a function, sync or async, that takes a list of at most *batch* strings; with *each*, of one
    that takes a single text (an async one is called for 8 strings at a time).

    The other options are the attributes of an `Embedder`; *name* is the function's own when left out. Raises
    ConfigurationError for something that cannot be called, and for a batch below 1.
    """
    if not callable(function):
        raise ConfigurationError(f"an embedder is made of a function, not of {type(function).__name__}")
    if batch < 1:
        raise ConfigurationError(f"a batch has 1 text or more, not {batch}")
    options = {
        "name": name or getattr(function, "__qualname__", type(function).__name__),
        "dimensions": dimensions,
        "deterministic": deterministic,
        "blocks": blocks,
        "batch": batch,
    }
    return _FunctionEmbedder(_one_by_one(function) if each else function, options)  # type: ignore[arg-type]


def _one_by_one(function: Callable[..., Any]) -> Callable[[Sequence[str]], Any]:
    def embed(strings: Sequence[str]) -> Any:
        first = function(strings[0]) if strings else None
        if inspect.isawaitable(first):
            return _gather(first, function, strings[1:])
        return [first, *(function(text) for text in strings[1:])] if strings else []

    return embed


async def _gather(first: Awaitable[Any], function: Callable[..., Awaitable[Any]], strings: Sequence[str]) -> list[Any]:
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(text: str) -> Any:
        async with room:
            return await function(text)

    return [await first, *await asyncio.gather(*(one(text) for text in strings))]
