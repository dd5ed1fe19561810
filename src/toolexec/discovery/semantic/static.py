"""Vectors of strings without a network: the mean of learned vectors of their tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.model.settings import checked

_EXTRA = "semantic"
_NEEDS = ("numpy", "safetensors", "tokenizers")
_PACKAGE = "wordllama"
_MAX_TOKENS = 512


@checked("StaticEmbedder")
class StaticEmbedder:
    """An embedder that looks up a vector for each token of a text and takes their mean, normalised to length 1: some
    60 us a text, always the same, no network. It needs the `semantic` extra.

    The weights are those in the `wordllama` package: 32,000 tokens with 256 numbers, 16 MB, MIT licence. Their authors
    trained them from the token embeddings of Llama 2 70B, Phi 3 medium and others with the same tokens; whether the
    licences of those models bind you too is for you to judge. *directory* is a model of your own instead, as model2vec
    saves it: `tokenizer.json` and `model.safetensors`.

    Files are read at the first use. Raises MissingExtraError without the packages, and ConfigurationError, when first
    used, for files that are not there or cannot be read.
    """

    deterministic = True
    blocks = False
    batch = 64

    def __init__(self, directory: Path | str | None = None) -> None:
        needed = _NEEDS if directory is not None else (*_NEEDS, _PACKAGE)
        if any(find_spec(package) is None for package in needed):
            raise MissingExtraError(_EXTRA, needed_for="the static embedder")
        self._directory = Path(directory) if directory is not None else None
        self.name: str = (
            f"static:{self._directory.name}" if self._directory else f"{_PACKAGE}-{metadata.version(_PACKAGE)}"
        )
        # Measured with the package's weights: strings with nothing in common are below, what is looked for is above.
        self.min_score: float = 0.25 if directory is None else 0.0
        self._lock = threading.Lock()
        self._model: _Model | None = None

    @property
    def dimensions(self) -> int:
        """How long a vector is; reads the files. Raises ConfigurationError when that fails."""
        return self._loaded().dimensions

    def embed(self, strings: Sequence[str], /) -> Any:
        """Return a numpy array with a row for each text; all zeros for one without tokens. Raises as `dimensions`
        does."""
        return self._loaded().embed(strings)

    def _loaded(self) -> _Model:
        with self._lock:
            if self._model is None:
                self._model = _Model(*(_files_in(self._directory) if self._directory else _files_of_package()))
            return self._model


class _Model:
    def __init__(self, tokenizer: Path, weights: Path) -> None:
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        try:
            tensors: dict[str, Any] = load_file(weights)
            self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        except (SafetensorError, OSError) as error:
            raise ConfigurationError(f"the embedding model in {weights.parent} cannot be read: {error}") from error
        except Exception as error:  # tokenizers raises plain ones
            raise ConfigurationError(f"the tokenizer {tokenizer} cannot be read: {error}") from error
        self._np: Any = np
        self._table = self._table_of(tensors, weights)
        self.dimensions: int = self._table.shape[1]
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        unknown: int | None = self._tokenizer.token_to_id(getattr(self._tokenizer.model, "unk_token", None) or "")
        self._unknown = -1 if unknown is None else unknown

    def embed(self, strings: Sequence[str]) -> Any:
        np = self._np
        sums = np.zeros((len(strings), self.dimensions), np.float32)
        for row, text in zip(sums, strings, strict=True):
            # One by one: a batch would be encoded by threads of the library's own, which do not survive a fork.
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids[:_MAX_TOKENS]
            tokens = np.array(ids, np.intp)
            known = tokens[(tokens != self._unknown) & (tokens < len(self._table))]
            self._table[known].sum(axis=0, out=row)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        return sums / np.where(lengths > 0, lengths, 1.0)  # a mean has the direction of the sum

    def _table_of(self, tensors: dict[str, Any], weights: Path) -> Any:
        """Return a row for each token; with model2vec, tokens may share one (`mapping`), scaled for each
        (`weights`)."""
        np = self._np
        table: Any = tensors.get("embeddings", tensors.get("embedding.weight"))
        if table is None or table.ndim != 2 or not table.size:
            raise ConfigurationError(f"{weights} has no table of vectors called `embeddings`")
        table = table.astype(np.float32)
        if "mapping" in tensors:
            table = table[np.clip(tensors["mapping"].astype(np.int64), 0, len(table) - 1)]
        if "weights" in tensors and len(tensors["weights"]) == len(table):
            table *= tensors["weights"].astype(np.float32)[:, None]
        if not np.isfinite(table).all():
            raise ConfigurationError(f"{weights} has numbers that are not finite")
        return table


def _files_in(directory: Path) -> tuple[Path, Path]:
    files = (directory / "tokenizer.json", directory / "model.safetensors")
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ConfigurationError(
            f"the directory {directory} has no {' and no '.join(missing)}; save a model2vec model there"
        )
    return files


def _files_of_package() -> tuple[Path, Path]:
    """Found by the package's list of files: importing it would set up logging and look for a network."""
    endings = {"safetensors": ".safetensors", "json": "_tokenizer_config.json"}
    files = metadata.files(_PACKAGE) or ()
    found = {kind: Path(str(f.locate())) for f in files for kind, end in endings.items() if f.name.endswith(end)}
    if set(found) != set(endings) or not all(path.is_file() for path in found.values()):
        raise ConfigurationError(f"the package {_PACKAGE} that is installed has no weights in it; install 0.4 of it")
    return found["json"], found["safetensors"]
