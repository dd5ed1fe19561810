"""The `mcp` extra: configuration works without it, connecting says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest

import toolexec.backend.mcp as package
from toolexec.errors import MissingExtraError

WITHOUT = """
import sys
sys.modules["mcp"] = None
from toolexec import Exec
from toolexec.backend.mcp import MCPServer
from toolexec.errors import MissingExtraError
MCPServer(name="a", command="a")
try:
    Exec().add_mcp("a", command="a")
except MissingExtraError as error:
    print(error)
"""


def test_without_the_extra():
    """Adding a server names the extra to install."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("pip install 'toolexec[mcp]'")


def test_a_missing_extra_is_told_in_this_process(monkeypatch):
    """The same, as the error that callers catch."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    for name in [name for name in sys.modules if name.startswith("toolexec.backend.mcp.")]:
        if name != "toolexec.backend.mcp.config":
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"toolexec\[mcp\]"):
        package.__getattr__("MCPBackend")


def test_other_names_are_unknown():
    """Only what the package offers can be had from it."""
    with pytest.raises(AttributeError, match="no attribute 'Nope'"):
        package.Nope  # noqa: B018
