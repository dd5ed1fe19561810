"""What tests need to start real MCP servers, and to find those that come from npm."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

__all__ = ["npm_folder", "require_npm_server", "server_environment"]

_ENTRIES = {
    "everything": "@modelcontextprotocol/server-everything/dist/index.js",
    "filesystem": "@modelcontextprotocol/server-filesystem/dist/index.js",
}


def server_environment(**extra: str) -> dict[str, str]:
    """The environment for a server that a test starts: ours, but not measured for coverage, which has been seen to crash
    Python 3.11 servers that run tools in threads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")} | extra


def npm_folder() -> Path:
    """The folder that holds `node_modules`: TOOLEXEC_NPM, else `toolexec/npm` in the user's cache folder."""
    given = os.environ.get("TOOLEXEC_NPM")
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "toolexec" / "npm"


def require_npm_server(name: str) -> list[str]:
    """The command line of the server `everything` or `filesystem`.

    Where it is not installed the test is skipped with the way to get it; in CI, which installs it, the test fails.
    """
    entry = npm_folder() / "node_modules" / _ENTRIES[name]
    node = shutil.which("node")
    if node is not None and entry.is_file():
        return [node, str(entry)]
    missing = "node is not installed" if node is None else f"the npm server {name} is not in {npm_folder()}"
    reason = f"{missing}; `bash .ci/run` installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
