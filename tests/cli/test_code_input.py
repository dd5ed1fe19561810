"""From words to a program and the settings of its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.cli.code_input import CodeOptions, Program, read_program, read_settings, read_size
from toolexec.errors import ConfigurationError, InvalidLimitsError

EMPTY = Program(text="1")


@pytest.mark.parametrize(
    ("suffix", "language"),
    [(".py", "python"), (".js", "javascript"), (".mjs", "javascript"), (".sh", "bash"), (".go", "go"), (".txt", "")],
)
def test_a_name_says_the_language(tmp_path: Path, suffix: str, language: str) -> None:
    """Unless another one is given; an unknown one leaves it to the Exec."""
    path = tmp_path / f"program{suffix}"
    path.write_bytes(b"\xef\xbb\xbfcode")
    assert read_program(CodeOptions(file=str(path))) == Program(text="code", language=language)
    assert read_program(CodeOptions(file=str(path), language="go")).language == "go"


def test_there_must_be_code() -> None:
    """A file, stdin or -e."""
    with pytest.raises(ConfigurationError, match="after -e"):
        read_program(CodeOptions())


def test_code_must_be_readable(tmp_path: Path) -> None:
    """Text, or a module, in a file that is there."""
    with pytest.raises(ConfigurationError, match=r"cannot read .*nothing\.py: No such file"):
        read_program(CodeOptions(file=str(tmp_path / "nothing.py")))
    (tmp_path / "x.py").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="neither UTF-8 text nor a WebAssembly module"):
        read_program(CodeOptions(file=str(tmp_path / "x.py")))


@pytest.mark.parametrize(
    ("text", "size"), [("64M", 64 << 20), ("1.5k", 1536), ("2 GB", 2 << 30), ("10", 10), ("3MiB", 3 << 20)]
)
def test_sizes(text: str, size: int) -> None:
    """Powers of 1024."""
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1T", "0", "1e9", "0.1"])
def test_what_is_no_size(text: str) -> None:
    """The message says how one is written."""
    with pytest.raises(ConfigurationError, match="64M"):
        read_size(text)


def test_the_unsafe_profile() -> None:
    """--unsafe means dev, and is the opt-in."""
    settings = read_settings(CodeOptions(unsafe=True), EMPTY)
    assert settings.get("profile") == "dev"
    assert settings.get("unsafe_opt_in") is True
    assert read_settings(CodeOptions(), EMPTY).get("profile") == ""


def test_limits_are_checked() -> None:
    """Before anything is run."""
    with pytest.raises(InvalidLimitsError, match="cpus"):
        read_settings(CodeOptions(cpus=-1), EMPTY)
    with pytest.raises(ConfigurationError, match="not a size"):
        read_settings(CodeOptions(memory="lots"), EMPTY)


@pytest.mark.parametrize("word", ["=x", ""])
def test_a_variable_needs_a_name(word: str) -> None:
    """The message says how it is written."""
    with pytest.raises(ConfigurationError, match="NAME=VALUE"):
        read_settings(CodeOptions(env=[word]), EMPTY)


def test_a_variable_of_ours_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt name is no empty value."""
    monkeypatch.delenv("NOT_HERE", raising=False)
    with pytest.raises(ConfigurationError, match="no variable NOT_HERE"):
        read_settings(CodeOptions(env=["NOT_HERE"]), EMPTY)


def test_files_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their own, or another; a path may have an equals sign itself."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b").write_bytes(b"1")
    (tmp_path / "c").write_bytes(b"2")
    assert read_settings(CodeOptions(files=["a=b", "c=d/e", "a=b=x"]), EMPTY).get("files") == {
        "a=b": b"1",
        "d/e": b"2",
        "x": b"1",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [(["c", "c"], "there are two"), (["c="], "there is no"), (["gone"], "cannot read gone"), (["."], "there is no")],
)
def test_files_that_make_no_sense(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    """Each is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").write_bytes(b"2")
    with pytest.raises(ConfigurationError, match=message):
        read_settings(CodeOptions(files=words), EMPTY)
