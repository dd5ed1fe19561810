"""Search by meaning: embedders, stores of vectors, and searchers that rank by them, alone or beside words."""

from toolexec.discovery.semantic.embedder import Embed, Embedder, EmbedOne, Vector, as_embedder
from toolexec.discovery.semantic.hybrid import Fusion, HybridSearcher
from toolexec.discovery.semantic.searcher import EmbeddingSearcher
from toolexec.discovery.semantic.static import StaticEmbedder
from toolexec.discovery.semantic.vectors import InMemoryVectors, VectorEntry, VectorStore

__all__ = [
    "Embed",
    "EmbedOne",
    "Embedder",
    "EmbeddingSearcher",
    "Fusion",
    "HybridSearcher",
    "InMemoryVectors",
    "StaticEmbedder",
    "Vector",
    "VectorEntry",
    "VectorStore",
    "as_embedder",
]
