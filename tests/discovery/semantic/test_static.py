"""The embedder without a network: what it is made of, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from toolexec.discovery.semantic import StaticEmbedder
from toolexec.errors import ConfigurationError, MissingExtraError

np = pytest.importorskip("numpy")
numpy_file = pytest.importorskip("safetensors.numpy")

VOCABULARY = {"[UNK]": 0, "red": 1, "green": 2, "blue": 3}


def model(folder: Path, **tensors: Any) -> Path:
    """A model of three words as model2vec saves it."""
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": VOCABULARY, "unk_token": "[UNK]"},
    }
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    numpy_file.save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def static() -> StaticEmbedder:
    """The one with the package's weights."""
    return StaticEmbedder()


class TestPackage:
    def test_close_in_meaning(self, static: StaticEmbedder) -> None:
        """Different words for the same are closer than words for something else."""
        pay, refund, rain = static.embed(["give the money back", "refund a payment", "it will rain tomorrow"])
        assert pay @ refund > 0.4 > pay @ rain

    def test_shape(self, static: StaticEmbedder) -> None:
        """A row of 256 numbers for each text, of length 1; zeros for an empty text."""
        rows = static.embed(["a text", "", "another"])
        assert rows.shape == (3, static.dimensions) == (3, 256)
        assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 0, 1])
        assert static.embed([]).shape == (0, 256)

    def test_always_the_same(self, static: StaticEmbedder) -> None:
        """Whatever else is in the batch."""
        alone = static.embed(["read a file"])[0]
        assert (static.embed(["x" * 5000, "read a file", "日本語 🚀 </s> <s>"])[1] == alone).all()
        assert static.deterministic
        assert not static.blocks

    def test_it_is_named_after_the_package(self, static: StaticEmbedder) -> None:
        """With its version, so that other weights are other vectors."""
        assert static.name == f"wordllama-{metadata.version('wordllama')}"

    @pytest.mark.full
    def test_nothing_is_loaded_before_it_is_needed(self) -> None:
        """Neither by importing nor by making one; and the package whose weights it takes is never imported."""
        code = """
import sys
from toolexec.discovery.semantic import StaticEmbedder, EmbeddingSearcher, HybridSearcher
made = StaticEmbedder()
print(sorted({"numpy", "tokenizers", "safetensors", "wordllama"} & set(sys.modules)))
made.embed(["x"])
print(sorted({"numpy", "tokenizers", "safetensors", "wordllama", "huggingface_hub", "requests"} & set(sys.modules)))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["[]", "['numpy', 'safetensors', 'tokenizers']"]

    def test_no_weights_in_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another version of it may have none; that is said when they are needed."""
        monkeypatch.setattr(metadata, "files", lambda name: None)
        with pytest.raises(ConfigurationError, match="install"):
            StaticEmbedder().embed(["x"])


class TestFolder:
    def test_a_model_of_ones_own(self, tmp_path: Path) -> None:
        """A path or a text; unknown words count for nothing."""
        folder = model(tmp_path / "colours", embeddings=np.array([[9, 9], [1, 0], [0, 1], [3, 4]], np.float32))
        for place in (folder, str(folder)):
            embedder = StaticEmbedder(place)
            assert (embedder.name, embedder.min_score) == ("static:colours", 0.0)
            rows = embedder.embed(["Red", "red green", "blue what is this", "unknown"])
            assert rows.tolist() == [[1, 0], pytest.approx([0.5**0.5] * 2), pytest.approx([0.6, 0.8]), [0, 0]]

    def test_shared_and_scaled_rows(self, tmp_path: Path) -> None:
        """model2vec's `mapping` and `weights`."""
        tensors = {
            "embeddings": np.array([[1, 0], [0, 1]], np.float16),
            "mapping": np.array([0, 1, 0, 1], np.int32),
            "weights": np.array([1, 1, 3, 1], np.float64),
        }
        rows = StaticEmbedder(model(tmp_path, **tensors)).embed(["red green", "blue"])
        assert rows[0] == pytest.approx(np.array([3, 1]) / 10**0.5)
        assert rows[1].tolist() == [0, 1]

    def test_tokens_beyond_the_table(self, tmp_path: Path) -> None:
        """Tokens beyond the table count for nothing."""
        folder = model(tmp_path, embeddings=np.array([[1, 0], [1, 0]], np.float32))
        assert StaticEmbedder(folder).embed(["red blue", "blue"]).tolist() == [[1, 0], [0, 0]]

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"other": np.ones((4, 2), np.float32)}, "no table of vectors"),
            ({"embeddings": np.ones(4, np.float32)}, "no table of vectors"),
            ({"embeddings": np.ones((0, 2), np.float32)}, "no table of vectors"),
            ({"embeddings": np.full((4, 2), np.nan, np.float32)}, "not finite"),
        ],
    )
    def test_other_tensors_are_refused(self, tmp_path: Path, tensors: dict[str, Any], message: str) -> None:
        """Without a table of finite numbers there are no vectors."""
        with pytest.raises(ConfigurationError, match=message):
            StaticEmbedder(model(tmp_path, **tensors)).embed(["red"])

    @pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
    def test_missing_and_broken_files(self, tmp_path: Path, name: str) -> None:
        """The error names the file or the directory."""
        folder = model(tmp_path / "m", embeddings=np.ones((4, 2), np.float32))
        (folder / name).write_bytes(b"\xff not this")
        with pytest.raises(ConfigurationError, match="cannot be read"):
            StaticEmbedder(folder).embed(["red"])
        (folder / name).unlink()
        with pytest.raises(ConfigurationError, match=f"has no {name}"):
            StaticEmbedder(folder).embed(["red"])


@pytest.mark.parametrize("package", ["numpy", "safetensors", "tokenizers", "wordllama"])
def test_without_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the missing extra at once."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r"toolexec\[semantic\]"):
        StaticEmbedder()
