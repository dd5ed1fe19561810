"""Pure-Python packages for the sandbox: what may be asked for, and how it is fetched."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.process.steps import OnStep, run_command

if TYPE_CHECKING:
    from importlib.metadata import Distribution

EXTRA: Final = "sandbox-build"
_TIME_ZONES: Final = "tzdata"
_GUEST_PYTHON: Final = "3.14"
_USUAL_SECONDS: Final = 4.0
_CAP_SECONDS: Final = 300.0
_NOT_FOUND: Final = re.compile(r"(?:No matching distribution found for|satisfies the requirement) ([^\s(]+)")
_NATIVE: Final = (".so", ".pyd", ".dylib", ".dll")
# Where packages come from stays the user's choice; other settings would put files elsewhere or let more packages in.
_KEPT: Final = frozenset(
    {"PIP_CACHE_DIR", "PIP_CERT", "PIP_CLIENT_CERT", "PIP_CONFIG_FILE", "PIP_CONSTRAINT", "PIP_EXTRA_INDEX_URL"}
    | {"PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_NO_CACHE_DIR", "PIP_NO_INDEX", "PIP_PRE", "PIP_PROXY", "PIP_RETRIES"}
    | {"PIP_TIMEOUT", "PIP_TRUSTED_HOST"}
)


def install_packages(
    requirements: Sequence[str], target: Path, *, work: Path, progress: OnStep | None = None
) -> dict[str, str]:
    """Fetch *requirements* and what they need into the directory *target*, with pip; gives name → version of all.

    Only wheels without native code get in: they are unpacked, none of their code runs. *work* is a directory for logs.
    Raises ConfigurationError that names the package which has no such wheel, cannot be found or cannot be fetched, or
    says that pip is missing.
    """
    if not requirements:
        return {}
    if find_spec("pip") is None:
        raise ConfigurationError(
            f"adding {', '.join(requirements)} to the sandbox needs pip, which {sys.executable} does not have; "
            f"install it with: {sys.executable} -m ensurepip"
        )
    environment = {key: value for key, value in os.environ.items() if key in _KEPT or not key.startswith("PIP_")}
    command = [sys.executable, "-m", "pip", "install", "--target", str(target), "--only-binary=:all:"]
    command += ["--platform", "any", "--implementation", "py", "--abi", "none", "--python-version", _GUEST_PYTHON]
    command += ["--no-compile", "--no-input", "--disable-pip-version-check", "--no-warn-conflicts", "--quiet", "--"]
    code, output = run_command(
        [*command, *requirements],
        directory=work,
        environment=environment,
        name="packages",
        message=f"fetching {', '.join(requirements)}",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    if code != 0:
        raise _refusal(requirements, output)
    _refuse_native(target)
    return _versions(target)


def add_time_zones(target: Path) -> dict[str, str]:
    """Copy the time zones of the `tzdata` package into the directory *target*; gives its name and version.

    What is there already stays. Raises MissingExtraError when the package is not installed.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    if not (target / _TIME_ZONES).exists():
        try:
            zones = distribution(_TIME_ZONES)
        except PackageNotFoundError as error:
            raise MissingExtraError(EXTRA, needed_for="building the sandbox (its time zones)") from error
        _copy(zones, target)
    versions = _versions(target)
    return {_TIME_ZONES: versions[_TIME_ZONES]}


def _copy(package: Distribution, target: Path) -> None:
    for path in package.files or []:
        if ".." not in path.parts and "__pycache__" not in path.parts:
            copy = target / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(Path(str(package.locate_file(path))).read_bytes())


def _versions(target: Path) -> dict[str, str]:
    from importlib.metadata import distributions

    found = {re.sub(r"[-_.]+", "-", item.name).lower(): item.version for item in distributions(path=[str(target)])}
    return dict(sorted(found.items()))


def _refusal(requirements: Sequence[str], output: str) -> ConfigurationError:
    match = _NOT_FOUND.search(output)
    if match is None:
        return ConfigurationError(
            f"cannot fetch {', '.join(requirements)} for the sandbox; pip said: {output or 'nothing'}",
            details={"packages": list(requirements), "output": output},
        )
    name = re.split(r"[\[<>=!~]", match[1])[0]
    wanted_by = "" if any(re.match(rf"{re.escape(name)}\b", text) for text in requirements) else " (needed by another)"
    return ConfigurationError(
        f"package {name!r}{wanted_by} cannot go into the sandbox: there is no pure-Python wheel of it; packages with "
        f"native code cannot run there. Or the name or version does not exist: {match[1]}",
        details={"packages": list(requirements), "package": name, "output": output},
    )


def _refuse_native(target: Path) -> None:
    for path in sorted(target.rglob("*")):
        if path.suffix in _NATIVE:
            name = path.relative_to(target).parts[0]
            raise ConfigurationError(
                f"package {name!r} cannot go into the sandbox: it has native code ({path.name})",
                details={"package": name},
            )
