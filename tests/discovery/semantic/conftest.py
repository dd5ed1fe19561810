"""What the tests of semantic search share: an embedder without weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

import pytest

from toolexec.discovery.words import words_of
from toolexec.model import Tool


class WordEmbedder:
    """Each word of a text counts for one of 512 numbers, so texts are close when they share words. It notes each call,
    and raises `error`, if there is one, for a text with the word `poison`, or for all when `down`."""

    name = "words"
    dimensions = 512
    deterministic = True
    blocks = False
    batch = 4

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.error: Exception = RuntimeError("the key is s3cret")
        self.down = False

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        self.calls.append(list(texts))
        if self.down or any("poison" in text for text in texts):
            raise self.error
        return [self.vector(text) for text in texts]

    def vector(self, text: str) -> list[float]:
        numbers = [0.0] * self.dimensions
        for word in words_of(text):
            numbers[crc32(word.encode()) % self.dimensions] += 1.0
        return numbers

    def embedded(self) -> list[str]:
        """All texts so far, in order."""
        return [text for call in self.calls for text in call]


@pytest.fixture
def embedder() -> WordEmbedder:
    """An embedder that notes what it was asked."""
    return WordEmbedder()


@pytest.fixture
def make_tool() -> Callable[..., Tool]:
    """Makes a tool of an ID and a description."""

    def make(tool_id: str, description: str = "", tags: tuple[str, ...] = ()) -> Tool:
        namespace, _, name = tool_id.rpartition(":")
        schema = {"type": "object", "properties": {"colour": {"type": "string"}}}
        return Tool(name=name, namespace=namespace, description=description, tags=tags, input_schema=schema)

    return make


@pytest.fixture
def shop(make_tool: Callable[..., Tool]) -> list[Tool]:
    """Five tools."""
    return [
        make_tool("mail:send", "Send a letter to somebody"),
        make_tool("mail:delete", "Throw a letter away"),
        make_tool("files:read", "Read text from disk", ("text",)),
        make_tool("files:write", "Write text to disk", ("text",)),
        make_tool("weather", "Tell whether it rains"),
    ]
