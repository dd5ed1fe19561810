"""Build the WebAssembly component: CPython with the guest program, the standard library and added packages in it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.process.steps import KILLED, OnStep, run_command
from toolexec.runtime.guest.sources import source_of
from toolexec.runtime.requirements import normal_requirements
from toolexec.runtime.wasm.memory_image import in_directory, with_immortal_objects
from toolexec.runtime.wasm.requirements import (
    EXTRA,
    add_time_zones,
    install_packages,
)

if TYPE_CHECKING:
    from toolexec.model.json_value import JSONDict  # a wheel is built where no dependency is installed

GUEST: Final = Path(__file__).parents[1] / "guest" / "python"
"""The directory of the guest program, which the component has as the package `toolexec_guest`."""

_HERE: Final = Path(__file__).parent
_COPIES: Final = {
    "app.py": "toolexec_world.py",
    "bundle.py": "toolexec_bundle.py",
    "stdlib.py": "toolexec_stdlib.py",
}
_ENTRY: Final = "from toolexec_world import WitWorld, settle\n\nsettle()\n"
"""The module `toolexec_app`, which the builder imports: the code of a module is freed once it has run, and that of
`app.py` must be gone when `settle` fills the holes in memory.
"""

_WORLD: Final = "world.wit"
_AFTER: Final = "memory_image.py"  # what is done to the component in the end
_USUAL_SECONDS: Final = 10.0
_CAP_SECONDS: Final = 300.0
_TOO_LARGE: Final = "too much data is being copied between the host and the guest"
_COMMAND: Final = "import sys; from componentize_py import script; sys.argv[0] = 'componentize-py'; sys.exit(script())"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What is known of a built component; `to_json` and `from_json` keep it beside the file."""

    sha256: str
    size: int
    """In bytes."""
    python: str
    """Version of the Python in it, such as `"3.14.0"`."""
    inputs: str
    """Digest of the files that it was built from; see `inputs_digest`."""
    builder: str
    """Version of componentize-py."""
    requirements: tuple[str, ...] = ()
    """What was asked for, in one spelling, sorted."""
    packages: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name → version of every added package, also those that others needed."""
    failed: Mapping[str, str] = field(default_factory=dict[str, str])
    """Module → error of those modules of added packages that could not be imported."""

    def to_json(self) -> JSONDict:
        """Return it as JSON-able data."""
        return {**asdict(self), "requirements": list(self.requirements)}

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Read what `to_json` gave; raises ValueError when *data* is something else."""
        try:
            if type(data["size"]) is not int:
                raise TypeError
            return cls(
                sha256=_text(data["sha256"]),
                size=data["size"],
                python=_text(data["python"]),
                inputs=_text(data["inputs"]),
                builder=_text(data["builder"]),
                requirements=tuple(_text(item) for item in data["requirements"]),
                packages=_strings(data["packages"]),
                failed=_strings(data["failed"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the description of a component") from error


def build_component(
    target: Path,
    *,
    packages: Sequence[str] = (),
    guest: Path = GUEST,
    progress: OnStep | None = None,
) -> Component:
    """Build the component into the file *target* and say what it is; takes about ten seconds.

    *packages* are names of pure-Python packages, with versions if need be; they are fetched with pip, along with what
    they need, and imported once during the build. Nothing else of this Python's packages gets into the component. A
    file that is there is replaced once the new one is complete; on any error it stays.

    Raises MissingExtraError without the `sandbox-build` extra, and ConfigurationError for a package that cannot be
    fetched, has native code or cannot be imported, and when the build fails.
    """
    requirements = normal_requirements(packages)
    builder = builder_version()
    if builder is None:
        raise MissingExtraError(EXTRA, needed_for="building the sandbox")
    near = _reserve(target)
    try:
        with tempfile.TemporaryDirectory(prefix="toolexec-build-") as name:
            component = _build(Path(name), near, requirements, guest, builder, progress)
        near.replace(target)
    except OSError as error:
        raise ConfigurationError(f"building the sandbox failed: {error}") from error
    finally:
        near.unlink(missing_ok=True)
    return component


def _reserve(target: Path) -> Path:
    """Return a new file beside *target*, so that the last step is a rename, and an unusable directory is
    found first.
    """
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    except OSError as error:
        raise ConfigurationError(f"cannot write {target}: {error.strerror or error}") from error
    os.close(descriptor)
    return Path(name)


def _build(
    work: Path, target: Path, requirements: tuple[str, ...], guest: Path, builder: str, progress: OnStep | None
) -> Component:
    app = _lay_out(work, guest)
    found = install_packages(requirements, app / "toolexec_packages", work=work, progress=progress)
    found |= add_time_zones(app / "toolexec_packages")
    built = work / "python.wasm"
    report = _componentize(work, app, built, progress)
    data = with_immortal_objects(built.read_bytes(), (app / "objects.bin").read_bytes())
    stand_in = app / "directory.txt"
    if stand_in.is_file():
        data = in_directory(data, stand_in.read_text("utf-8"))
    target.write_bytes(data)
    return Component(
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        python=report["python"],
        inputs=inputs_digest(guest),
        builder=builder,
        requirements=requirements,
        packages=dict(sorted(found.items())),
        failed=report["failed"],
    )


def builder_version() -> str | None:
    """Return the version of componentize-py, or None where it is not installed."""
    return installed_version("componentize_py", "componentize_py")


def installed_version(module: str, package: str) -> str | None:
    """Return the version of the installed *package* that has *module*, or None; spell *package* as its directory.

    `importlib.metadata` knows it too, but takes longer to import than a sandbox takes to start.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return None
    directories = sorted(Path(spec.origin).parents[1].glob(f"{package}-*.dist-info"))
    return directories[-1].name.removesuffix(".dist-info").rpartition("-")[2] if directories else "unknown"


def inputs_digest(guest: Path = GUEST) -> str:
    """Return a digest of our files that a component is built from; a change of one requires a new component."""
    digest = hashlib.sha256()
    for name, path in _inputs(guest):
        data = path.read_bytes()
        digest.update(f"{name} {len(data)}\n".encode())
        digest.update(data)
    digest.update(_ENTRY.encode())
    return digest.hexdigest()


def _inputs(guest: Path) -> Iterator[tuple[str, Path]]:
    for name in (*_COPIES, _WORLD, _AFTER):
        yield name, _HERE / name
    for path in sorted(guest.rglob("*.py")):
        yield f"guest/{path.relative_to(guest).as_posix()}", source_of(path)


def _lay_out(work: Path, guest: Path) -> Path:
    """Return the directory of the program in the component: our files, the guest program, and a place for packages."""
    app = work / "app"
    for name, copy in _COPIES.items():
        (app / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_HERE / name, app / copy)
    (app / "toolexec_app.py").write_text(_ENTRY, "utf-8")
    shutil.copyfile(_HERE / _WORLD, work / _WORLD)
    for path in guest.rglob("*.py"):
        copy = app / "toolexec_guest" / path.relative_to(guest)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source_of(path), copy)
    # Looks like a virtual environment without packages: the builder would otherwise take in those of the host.
    (work / "empty" / "lib" / "python3" / "site-packages").mkdir(parents=True)
    (app / "toolexec_packages").mkdir()
    return app


def _componentize(work: Path, app: Path, built: Path, progress: OnStep | None) -> JSONDict:
    """Run the builder; gives what the program in the component reported of itself."""
    options = ["--quiet", "--wit-path", _WORLD, "--world", "sandbox"]
    code, output = run_command(
        [sys.executable, "-c", _COMMAND, *options, "componentize", "-p", app.name, "toolexec_app", "-o", built.name],
        directory=work,
        environment={**os.environ, "VIRTUAL_ENV": str(work / "empty"), "RUST_BACKTRACE": "0"},
        name="build",
        message="building Python for the sandbox",
        usual_seconds=_USUAL_SECONDS,
        cap_seconds=_CAP_SECONDS,
        progress=progress,
    )
    report = app / "report.json"
    found = json.loads(report.read_text("utf-8")) if report.is_file() else {"failed": {}}
    _check_packages(found["failed"])
    if code != 0:
        raise _failure(code, output)
    return found


def _failure(code: int, output: str) -> ConfigurationError:
    """Return what the builder's exit code and output mean."""
    if _TOO_LARGE in output:
        why = "the packages take too much memory when they are imported; the whole may take some 128 MiB"
    elif code == KILLED:
        why = f"it took more than {_CAP_SECONDS:.0f} s; a package may never come to an end when it is imported"
    else:
        why = f"exit code {code}: {output or 'no output'}"
    return ConfigurationError(f"building the sandbox failed: {why}", details={"output": output})


def _check_packages(failed: Mapping[str, str]) -> None:
    """A submodule may need what is not there; a package that cannot be imported at all is of no use."""
    for name, error in failed.items():
        if "." not in name:
            raise ConfigurationError(
                f"package {name!r} cannot be imported in the sandbox: {error}", details={"package": name}
            )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _strings(value: Any) -> dict[str, str]:
    return {_text(key): _text(item) for key, item in value.items()}
