"""What a program lacked that failed: a package of Python, or processes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol, runtime_checkable

from toolexec.code.repair.failure import Failure

_DISTRIBUTIONS: Final = {
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "dotenv": "python-dotenv",
    "git": "gitpython",
    "github": "pygithub",
    "MySQLdb": "mysqlclient",
    "psycopg2": "psycopg2-binary",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PROCESS: Final = re.compile(
    r"OSError: \[Errno \d+\] \w+ does not support processes"
    r"|AttributeError: module 'os' has no attribute "
    r"'(?:system|popen|fork|forkpty|exec[lv]\w*|spawn[lv]\w*|posix_spawnp?|wait\w*|WNOHANG)'"
)


@runtime_checkable
class PackageSource(Protocol):
    """A sandbox that knows which packages its programs can import."""

    def packages(self) -> Mapping[str, frozenset[str]]:
        """Return, by language, the distributions that are there beside the standard library. May read files."""
        ...


def missing_module(failure: Failure) -> str:
    """Return the package of Python that the program could not import; "" when it failed otherwise."""
    found = _MISSING.match(failure.message)
    return found[1].partition(".")[0] if found is not None else ""


def needed_process(failure: Failure) -> bool:
    """Return whether the program wanted to start a process where there are none."""
    of_asyncio = failure.message == "NotImplementedError" and "create_subprocess_" in failure.code
    return of_asyncio or _PROCESS.match(failure.message) is not None


def distribution_of(module: str) -> str:
    """Return the name under which the package of a module is installed."""
    return _DISTRIBUTIONS.get(module, module.lower().replace("_", "-"))
