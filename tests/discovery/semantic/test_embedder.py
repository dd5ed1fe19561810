"""Any function becomes an embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from toolexec.discovery.semantic import Embedder, EmbeddingSearcher, as_embedder
from toolexec.errors import ConfigurationError
from toolexec.model import Tool


def test_a_function_of_many_texts() -> None:
    """Calls the function as it is; the options become the embedder's attributes."""
    made = as_embedder(lambda texts: [[float(len(t))] for t in texts], batch=3, name="lengths", dimensions=1)
    assert isinstance(made, Embedder)
    assert made.embed(["a", "bb"]) == [[1.0], [2.0]]
    found = {name: getattr(made, name) for name in ("name", "batch", "dimensions", "deterministic", "blocks")}
    assert found == {"name": "lengths", "batch": 3, "dimensions": 1, "deterministic": False, "blocks": True}


def test_a_function_of_one_text() -> None:
    """Calls the function once for each string."""
    made = as_embedder(lambda text: [float(len(text))], each=True)
    assert made.embed(["a", "bb", ""]) == [[1.0], [2.0], [0.0]]
    assert made.embed([]) == []


def test_a_coroutine_function_of_one_text() -> None:
    """A few run at the same time, and the order is kept."""
    running = most = 0

    async def embed(text: str) -> list[float]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (int(text) % 3))
        running -= 1
        return [float(text)]

    async def main() -> Sequence[Sequence[float]]:
        answer = as_embedder(embed, each=True).embed([str(i) for i in range(30)])
        assert asyncio.iscoroutine(answer)
        return await answer

    assert asyncio.run(main()) == [[float(i)] for i in range(30)]
    assert 2 <= most <= 8


def test_a_coroutine_function_of_many_texts(shop: list[Tool]) -> None:
    """A searcher takes it without further ado, and never gives it more than it asked for."""
    sizes: list[int] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        sizes.append(len(texts))
        await asyncio.sleep(0)
        return [[1.0, float("rain" in text)] for text in texts]

    searcher = EmbeddingSearcher(as_embedder(embed, batch=2))
    for tool in shop:
        searcher.add(tool)
    try:
        assert searcher.search("will it rain", 1)[0].tool_id == "weather"
    finally:
        searcher.close()
    assert sizes == [1, 2, 2, 1]


def test_its_name_is_the_functions() -> None:
    """Unless another is given."""

    def my_model(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] for _ in texts]

    class Callable:
        def __call__(self, texts: Sequence[str]) -> list[list[float]]:
            return [[1.0] for _ in texts]

    assert getattr(as_embedder(my_model), "name", "").endswith("my_model")
    assert getattr(as_embedder(Callable()), "name", "") == "Callable"


def test_what_cannot_be_one_is_refused() -> None:
    """Something that cannot be called, a batch of nothing."""
    with pytest.raises(ConfigurationError, match="not of str"):
        as_embedder("text-embedding-3-small")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="must be an Embedder or a function, not 3"):
        EmbeddingSearcher(3)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="1 text or more"):
        as_embedder(lambda texts: [], batch=0)
