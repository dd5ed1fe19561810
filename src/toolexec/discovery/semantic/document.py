"""What is said about a tool to an embedder."""

from __future__ import annotations

from toolexec.discovery.summary import Metadata
from toolexec.discovery.words import words_of
from toolexec.model.tool import Tool

__all__ = ["MAX_TEXT", "document_text", "plain_text"]

MAX_TEXT = 2000
"""How many characters of a tool or a query an embedder gets to see."""


def document_text(tool: Tool) -> str:
    """The tool in words: its namespace and name, its description, its tags.

    Not its parameters: on the labelled set of `benchmarks/ranking`, they made search by meaning worse.
    """
    name = " ".join(words_of(f"{tool.namespace} {tool.name}"))
    parts = (name, tool.title, Metadata(tool.meta).summary, tool.description, " ".join(tool.tags))
    return plain_text(". ".join(part for part in parts if part))


def plain_text(text: str) -> str:
    """One lower-case line of at most 2,000 characters that can be encoded: lone surrogates become question marks."""
    line = " ".join(text[: 4 * MAX_TEXT].lower().split())[:MAX_TEXT]
    return line.encode("utf-8", "replace").decode("utf-8")
