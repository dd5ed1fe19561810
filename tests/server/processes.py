"""`toolexec serve` as a process that can be killed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import server_environment


def environment(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a server that keeps its state in *tmp_path*."""
    return server_environment(XDG_STATE_HOME=str(tmp_path / "state"))


@contextmanager
def served(words: list[str], tmp_path: Path) -> Generator[str]:
    """Run a server over HTTP, and give its address; it is killed at the end."""
    process = subprocess.Popen(
        [*words, "--transport", "http"], stderr=subprocess.PIPE, text=True, env=environment(tmp_path)
    )
    with process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr.readline, "")
            yield next(found[1] for line in lines if (found := re.search(r"at (http://\S+)", line)))
        finally:
            process.kill()
