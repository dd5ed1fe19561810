"""The tiers of the test suite, and what a test does where something it needs is missing.

- **fast** (`make test`): needs nothing but Python. It proves every promise of the README on every path inside the process.
- **full** (`make test-full`): the fast tier, and what needs an engine, a daemon, npm, another Python, or many seconds.
- **soak** (`make test-soak`): what is slow by nature: cycles, kills, and each property with new examples, at depth.

`--tier above` is what the full tier has above the fast one: `make test-full` runs the fast tier, then this.

A test is of the fast tier unless it, or its module, has the mark `full` or `soak`, or its path is listed in `FULL`. The tier
above it reads only files of `FULL`, and those that name the mark.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

TIERS = ("fast", "above", "full", "soak")
_VARIABLE = "TOOLEXEC_TEST_TIER"
_MARK = "mark.full"
_ROOT = Path(__file__).parent

# What the names of files below tests/, or those of packages/, begin with whose tests are all of the full tier, with the reason.
FULL = {
    "process/test_workers.py": "starts a process for each case; tests of killable handlers elsewhere are of the fast tier",
    "backend/providers/openapi/test_mock_server.py": "judges hundreds of requests, by documents that come from npm",
    "conformance/": "the official suites come from npm",
    "release/": "builds wheels and installs them into clean environments",
    "runtime/containers/bubblewrap/": "needs bubblewrap",
    "packages/containers/tests/containerd/": "needs a containerd",
    "packages/containers/tests/docker/": "needs a Docker daemon",
    "packages/containers/tests/gvisor/": "needs runsc",
    "packages/kubernetes/tests/cluster/": "needs runc and root, and a control plane that `make kube` builds",
    "packages/microvms/tests/machines/": "starts virtual machines",
    "packages/remote/tests/test_process.py": "starts servers, with real sandboxes",
    "packages/remote/tests/test_faults.py": "starts servers, and kills them",
    "packages/remote/tests/test_many_runs.py": "starts servers, and kills them",
    "packages/remote/tests/test_network.py": "needs a network namespace",
    "packages/temporal/tests/server/": "starts servers of Temporal, and workers",
    "runtime/containers/test_containers.py": "needs every engine",
    "packages/containers/tests/test_kata.py": "needs a containerd",
    "runtime/unsafe_host/": "starts bash, node and Go on the host",
    "runtime/wasm/test_component.py": "builds components",
    "runtime/wasm/test_instance": "compiles components of its own",
    "runtime/wasm/test_modules.py": "compiles a module for each case",
    "runtime/wasm/test_requirements.py": "builds components",
    "runtime/wasm/test_science.py": "needs the scientific Python, which compiles for a minute",
    "runtime/wasm/test_stdlib.py": "builds a component",
    "runtime/wasm/test_world": "builds a component",
    "process/test_cgroup.py": "needs root",
    "runtime/egress/": "a proxy with real connections and certificates",
    "runtime/guest/bash/": "starts bash on the host",
    "runtime/guest/test_box": "guests of containers, in bubblewrap",
    "runtime/guest/test_bundle.py": "starts every Python there is",
    "runtime/images/": "builds images",
    "server/auth/test_middleware.py": "a server for each case",
    "server/http/test_connections.py": "slow clients by nature",
    "server/http/test_eras.py": "both protocol versions over HTTP; tests of serving are of the fast tier",
    "server/http/test_fairness.py": "many callers at once",
    "server/http/test_limits.py": "hostile requests by the hundred",
}

# The directories whose tests above the fast tier are traced for coverage: what the others run is traced in the fast tier.
TRACED = frozenset(
    {"backend", "cli", "contract", "durable", "exec", "integrations", "net", "process", "runtime", "server", "testing"}
)
# What is not traced in the fast tier either: it reads sources, or measures.
UNTRACED = frozenset(
    {
        "benchmarks",
        "fundamentals",
        "typing",
        "test_docs.py",
        "test_layering.py",
        "test_vocabulary.py",
        "test_waiting.py",
        "test_website.py",
    }
)
# The directories whose tests start processes that run what no test runs in its own process. Coverage doubles the time
# of a process that lives for a second: it is imported there, and writes a file in the end.
CHILDREN_TRACED = frozenset({"backend", "cli", "contract", "durable", "integrations", "process", "runtime"})
# The directories whose property tests are traced, too: what they are about has its coverage above the fast tier.
PROPERTIES_TRACED = frozenset({"durable", "runtime"})

# The directories whose tests have their files in memory above the fast tier, too: most of them are databases and logs,
# and to wait for the disk takes longer than all else.
IN_MEMORY = frozenset({"cassette", "config", "durable", "exec", "run", "server", "workflow"})


def is_in_memory(path: Path) -> bool:
    """Return whether the tests in the file *path* have their files in memory, where there is enough."""
    return _top(path) in IN_MEMORY


def is_traced(path: Path, marks: set[str]) -> bool:
    """Return whether the run needs the coverage of a test in the file *path* with these marks.

    As a rule not that of a property test: tracing costs it nine tenths of its time, for lines that examples reach, too.
    """
    top = _top(path)
    if top is None:  # of a package beside the core
        return "hypothesis" not in marks
    if "hypothesis" in marks and top not in PROPERTIES_TRACED:
        return False
    return top not in UNTRACED and ("full" not in marks or top in TRACED)


def are_children_traced(path: Path) -> bool:
    """Return whether the run needs the coverage of the processes that the tests in the file *path* start."""
    top = _top(path)
    return top is None or top in CHILDREN_TRACED


@cache
def _top(path: Path) -> str | None:
    """Return the directory below tests/ that the file *path* is in, or its own name; None for a file elsewhere."""
    return path.relative_to(_ROOT).parts[0] if _ROOT in path.parents else None


@cache
def is_full_path(path: Path) -> bool:
    """Return whether all tests of the file *path* are of the full tier."""
    for directory in (_ROOT, _ROOT.parent):
        if directory in path.parents:
            return path.relative_to(directory).as_posix().startswith(tuple(FULL))
    return False


def leaves_out(path: Path) -> bool:
    """Return whether the run's tier has no test of the file or directory *path*."""
    tier = os.environ.get(_VARIABLE)
    if tier == "above":
        return path.suffix == ".py" and path.name.startswith("test_") and not names_full_tests(path)
    return tier == "fast" and path.suffix in {"", ".py"} and is_full_path(path)


@cache
def names_full_tests(path: Path) -> bool:
    """Return whether the file *path* may have tests of the full tier: all of its are, or it names the mark itself."""
    return is_full_path(path) or _MARK in path.read_text("utf-8")


def choose(tier: str) -> None:
    """Record the tier that this run was asked for, for this process and its workers."""
    os.environ[_VARIABLE] = tier


def wants(marks: set[str]) -> bool:
    """Return whether the run's tier has a test with these marks: `fast` and `full` leave out what is above them, `above` also the fast ones; `soak` is alone, with all properties."""
    tier = os.environ.get(_VARIABLE, "full")
    if tier == "soak":
        return "soak" in marks or "hypothesis" in marks
    return "soak" not in marks and (tier == "full" or ("full" in marks) == (tier == "above"))


def missing(what: str, fix: str) -> NoReturn:
    """End a test that needs *what*, which is not on this machine; *fix* is the command that installs it.

    The test is skipped with that reason. In CI, which installs everything, it fails; and in the fast tier too, where no
    test may depend on what a machine happens to have.
    """
    reason = f"{what}; `{fix}` installs it"
    if os.environ.get(_VARIABLE) == "fast":
        pytest.fail(f"{reason}; mark this test as full: the fast tier needs nothing but Python")
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason, allow_module_level=True)
