"""Queues of durable runs in files of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolexec.config.load import load_settings
from toolexec.config.parts import exec_options
from toolexec.durable.queues import Queue
from toolexec.errors import ConfigurationError
from toolexec.exec.options import Options


def _file(directory: Path, text: str) -> Path:
    path = directory / "toolexec.toml"
    path.write_text(text)
    return path


def test_queues_of_a_file_are_those_of_the_exec(tmp_path: Path) -> None:
    """Queues come to those that a Python file has given."""
    path = _file(tmp_path, "[queues.mail]\nconcurrency = 5\nrate = [10, 1.0]\n[queues.slow]\n")
    loaded = load_settings([path])
    mail = Queue(concurrency=5, rate=(10, 1.0))
    assert loaded.queues == {"mail": mail, "slow": Queue()}
    assert loaded.queue_origins["mail"] == f"{path}:1"
    own = Options(queues={"own": Queue(), "slow": mail})
    assert exec_options(loaded, own).queues == {"own": Queue(), "mail": mail, "slow": Queue()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[queues.mail]\nconcurency = 5", "queues.mail: unknown key concurency; did you mean concurrency"),
        ("[queues.mail]\nconcurrency = -5", "concurrency must be 0 or more"),
        ('[queues.mail]\nrate = "fast"', "rate must be"),
        ("[queues]\nmail = 5", "queues.mail: a queue must be a table"),
        ("queues = 5", "queues must be a table of queues"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, message: str, tmp_path: Path) -> None:
    """The file and the line, the queue and the key."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings([_file(tmp_path, text)])
    assert message in str(caught.value)
    assert "toolexec.toml, line" in str(caught.value)
