"""The private cache of built and compiled sandboxes: each is made once, and then mapped into memory."""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Final, Self, TypeVar

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.model.json_value import JSONObject
from toolexec.process.caches import cache_directory
from toolexec.process.private import OpenFile, PrivateDirectory, StoredFile
from toolexec.process.steps import OnStep, run_work
from toolexec.runtime.requirements import normal_requirements
from toolexec.runtime.wasm.component import (
    Component,
    build_component,
    builder_version,
    inputs_digest,
    installed_version,
)
from toolexec.runtime.wasm.precompiled import precompiled_code
from toolexec.runtime.wasm.requirements import EXTRA
from toolexec.version import __version__

SHIPPED: Final = Path(__file__).with_name("python.wasm")
"""The component that wheels bring along, with its description in `python.json`; a source tree has none."""

_T = TypeVar("_T")
_Build = Callable[..., Component]
_Compile = Callable[[bytes], bytes]
_USUAL_SECONDS: Final = 12.0
_KEPT: Final = 6
_COMPILED: Final = ".cwasm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedComponent:
    """One sandbox in the cache, or brought along by the wheel."""

    requirements: tuple[str, ...]
    """The packages asked for when it was built; empty for the plain sandbox."""
    packages: Mapping[str, str]
    """Name → version of all packages in it."""
    python: str
    """Version of the Python in it."""
    sha256: str
    """Of the component."""
    shipped: bool
    """Whether it came with the wheel."""
    current: bool
    """Whether it would be used now; if not, it was made by another version and goes away by itself."""
    compiled: int
    """How many compiled forms of it there are; one for each version of wasmtime and way to run it."""
    size: int
    """What it takes in the cache directory, in bytes."""
    used: datetime | None
    """When it was last used; None for never."""


def default_directory() -> Path:
    """Return the directory `sandbox` in the user's cache directory, see `cache_directory`."""
    return cache_directory("sandbox")


class CompiledComponent:
    """A compiled component that was checked and is held open, as a context manager.

    `path` leads to the file as it was checked, whatever happens to the cache in the meantime, until it is closed.
    """

    def __init__(self, file: OpenFile, name: str, component: Component) -> None:
        self._file = file
        self.path: str = file.path
        self.name = name
        self.component = component

    def close(self) -> None:
        """Release the file; what was loaded from it stays."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ComponentCache:
    """The cache in *directory* (default: `default_directory()`), safe to use from any number of processes and threads.

    *shipped* is the component that the installation brought along, *build* what builds one; both are of use to tests
    and to a project that ships its own sandbox.
    """

    def __init__(
        self, directory: Path | None = None, *, shipped: Path = SHIPPED, build: _Build = build_component
    ) -> None:
        self.directory: Path = directory or default_directory()
        self._shipped = shipped
        self._description = shipped.with_suffix(".json")
        self._build = build

    def load(
        self,
        load: Callable[[str], _T],
        *,
        fingerprint: str,
        compile: _Compile,
        quick: _Compile | None = None,
        packages: Sequence[str] = (),
        progress: OnStep | None = None,
    ) -> _T:
        """Return what *load* makes of the compiled component at its path; the file is open during that call only.

        A compiled form that *load* refuses by raising is discarded and made once more, here. For the rest see `get`.
        """
        ways = _ways(fingerprint, compile, quick)
        with self._get(packages, ways, progress) as compiled:
            try:
                return load(compiled.path)
            except Exception:  # such as one made by a machine with another processor
                name = compiled.name
        with PrivateDirectory(self.directory) as directory, directory.locked(progress):
            directory.remove(name)
        with self._get(packages, ways, progress, precompiled=False) as compiled:
            return load(compiled.path)

    def get(
        self,
        *,
        fingerprint: str,
        compile: _Compile,
        quick: _Compile | None = None,
        packages: Sequence[str] = (),
        progress: OnStep | None = None,
    ) -> CompiledComponent:
        """Return the compiled component with *packages*, checked and open; close it, or use it as a context manager.

        What is missing, damaged, not ours or of another version is made again: the component is the one that the wheel
        brought, or is built (10 s); then *compile* makes the machine's code of its bytes (10 s), unless a wheel brought
        that, too (see `precompiled_code`). With *quick*, a quicker compiler does where *compile* has not done it yet:
        `optimise` does it later. Of several processes one does that, and the others wait.
        *fingerprint* says how *compile* was set up; another setup needs another one. *progress* receives all steps.
        Blocks, so keep it off an event loop.

        Raises ConfigurationError when the directory cannot be used or written to, a package cannot be had, or building
        fails; MissingExtraError when it must be built and the `sandbox-build` extra is missing; and what *compile* and
        *progress* raise. Nothing half-made is left.
        """
        return self._get(packages, _ways(fingerprint, compile, quick), progress)

    def _get(
        self,
        packages: Sequence[str],
        ways: Mapping[str, _Compile],
        progress: OnStep | None,
        *,
        precompiled: bool = True,
    ) -> CompiledComponent:
        wanted = normal_requirements(packages)
        with PrivateDirectory(self.directory) as directory:
            found = self._first_compiled(directory, wanted, ways)
            if found is None:
                with directory.locked(progress):
                    found = self._first_compiled(directory, wanted, ways)
                    if found is None:
                        found = self._make(directory, wanted, ways, progress, precompiled=precompiled)
        return found

    def lacks(self, *, fingerprint: str, packages: Sequence[str] = ()) -> bool:
        """Return whether the component is there with no other compiled form than the quick one."""
        wanted = normal_requirements(packages)
        with PrivateDirectory(self.directory) as directory:
            component = self._known(directory, wanted)
            return component is not None and directory.about(_compiled_name(component, fingerprint)) is None

    def optimise(self, *, fingerprint: str, compile: _Compile, packages: Sequence[str] = ()) -> bool:
        """Compile the component, which is there, if that is not done and no other process is at it; whether it was.

        Nothing waits for it meanwhile. The quick form is discarded. Raises ConfigurationError, and what *compile* does.
        """
        wanted = normal_requirements(packages)
        with PrivateDirectory(self.directory) as directory, directory.claimed("optimise") as ours:
            if not ours or not self.lacks(fingerprint=fingerprint, packages=packages):
                return False
            with directory.locked():
                component, data = self._component_bytes(directory, wanted, None)
            compiled = compile(data)
            with directory.locked():
                self._store(directory, component, fingerprint, compiled)
                directory.remove(_compiled_name(component, _quick(fingerprint)))
        return True

    def list(self) -> list[CachedComponent]:
        """Return everything in the cache and what the wheel brought, last used first. Raises ConfigurationError."""
        with PrivateDirectory(self.directory) as directory:
            shipped = self._shipped_component(())
            rows: dict[str, _Row] = {} if shipped is None else {shipped.sha256: _Row(shipped)}
            for file in directory.files():
                component = _component_of(file.about)
                if component is not None:
                    rows.setdefault(component.sha256, _Row(component)).add(file)
            return [row.public(shipped, self._known(directory, row.component.requirements)) for row in rows.values()]

    def has(self, packages: Sequence[str] = ()) -> bool:
        """Return whether the component with *packages* is there, or a wheel brought it. Raises ConfigurationError."""
        with PrivateDirectory(self.directory) as directory:
            return self._known(directory, normal_requirements(packages)) is not None

    def remove(self, packages: Sequence[str] | None = None) -> int:
        """Forget the sandbox with *packages* (`()` for the plain one), or all with None; gives the bytes set free.

        What the wheel brought stays, only its compiled forms go. Raises ConfigurationError.
        """
        wanted = None if packages is None else normal_requirements(packages)
        freed = 0
        with PrivateDirectory(self.directory) as directory, directory.locked():
            for file in directory.files():
                component = _component_of(file.about)
                if wanted is None or (component is not None and component.requirements == wanted):
                    directory.remove(file.name)
                    freed += file.size
            directory.tidy()
        return freed

    def _first_compiled(
        self, directory: PrivateDirectory, wanted: tuple[str, ...], fingerprints: Iterable[str]
    ) -> CompiledComponent | None:
        found = (self._compiled(directory, wanted, fingerprint) for fingerprint in fingerprints)
        return next((compiled for compiled in found if compiled is not None), None)

    def _compiled(
        self, directory: PrivateDirectory, wanted: tuple[str, ...], fingerprint: str
    ) -> CompiledComponent | None:
        component = self._known(directory, wanted)
        if component is None:
            return None
        name = _compiled_name(component, fingerprint)
        about = directory.about(name)
        if about is None or about.get("name") != name:
            return None
        file = directory.open(name)
        return None if file is None else CompiledComponent(file, name, component)

    def _known(self, directory: PrivateDirectory, wanted: tuple[str, ...]) -> Component | None:
        """Return the component to be used for *wanted*, if there is one, by its description alone."""
        shipped = self._shipped_component(wanted)
        if shipped is not None:
            return shipped
        about = directory.about(_component_name(wanted))
        component = None if about is None else _component_of(about)
        return component if component is not None and self._is_current(component, wanted) else None

    def _is_current(self, component: Component, wanted: tuple[str, ...]) -> bool:
        # Without the builder nothing newer could be made, and what is there has all it needs.
        return (
            component.requirements == wanted
            and component.inputs == inputs_digest()
            and builder_version() in (None, component.builder)
        )

    def _shipped_component(self, wanted: tuple[str, ...]) -> Component | None:
        """Return what the wheel brought, if it fits the files of this installation."""
        if wanted:
            return None
        try:
            component = Component.from_json(json.loads(self._description.read_text("utf-8")))
        except (OSError, ValueError):
            return None
        return component if component.inputs == inputs_digest() and not component.requirements else None

    def _make(
        self,
        directory: PrivateDirectory,
        wanted: tuple[str, ...],
        ways: Mapping[str, _Compile],
        progress: OnStep | None,
        *,
        precompiled: bool,
    ) -> CompiledComponent:
        full, (fingerprint, compile) = next(iter(ways)), [*ways.items()][-1]
        component = self._shipped_component(wanted)
        code = precompiled_code(self._description, full) if component is not None and precompiled else None
        if component is not None and code is not None:
            fingerprint = full  # it has all optimisations; those for one processor alone make programs no faster
        else:
            component, data = self._component_bytes(directory, wanted, progress)
            code = run_work(
                lambda: compile(data),
                name="compile",
                message="compiling the sandbox for this machine",
                usual_seconds=_USUAL_SECONDS,
                progress=progress,
            )
        name = self._store(directory, component, fingerprint, code)
        file = directory.open(name)
        if file is None:
            raise ConfigurationError(f"{self.directory} does not keep what is written to it; set TOOLEXEC_CACHE=/path")
        return CompiledComponent(file, name, component)

    def _store(self, directory: PrivateDirectory, component: Component, fingerprint: str, compiled: bytes) -> str:
        """Keep a compiled form; its name."""
        name = _compiled_name(component, fingerprint)
        directory.store(name, compiled, {"name": name, "component": component.to_json(), "toolexec": __version__})
        _prune(directory, {name, _component_name(component.requirements)})
        return name

    def _component_bytes(
        self, directory: PrivateDirectory, wanted: tuple[str, ...], progress: OnStep | None
    ) -> tuple[Component, bytes]:
        """Return the component and its description: the wheel's, else the cache's if it is intact, else a new one."""
        known = self._known(directory, wanted)
        if known is not None and known == self._shipped_component(wanted):
            return known, self._shipped_bytes(known)
        if known is not None:
            file = directory.open(_component_name(wanted))
            if file is not None:
                with file:
                    return known, file.read()
        return self._build_component(directory, wanted, progress)

    def _shipped_bytes(self, component: Component) -> bytes:
        try:
            data = self._shipped.read_bytes()
        except OSError as error:
            raise ConfigurationError(f"cannot read {self._shipped}: {error.strerror}; reinstall toolexec") from error
        if hashlib.sha256(data).hexdigest() != component.sha256:
            raise ConfigurationError(f"{self._shipped} is damaged; reinstall toolexec")
        return data

    def _build_component(
        self, directory: PrivateDirectory, wanted: tuple[str, ...], progress: OnStep | None
    ) -> tuple[Component, bytes]:
        with TemporaryDirectory(prefix="toolexec-build-") as work:
            target = Path(work) / "python.wasm"
            try:
                component = self._build(target, packages=wanted, progress=progress)
            except MissingExtraError as error:
                if wanted:
                    raise
                raise ConfigurationError(
                    "the sandbox is not part of this installation (a wheel has it, a source tree does not) and must be "
                    f"built once; install what builds it with: pip install 'toolexec[{EXTRA}]'",
                    details={"extra": EXTRA},
                ) from error
            data = target.read_bytes()
        directory.store(_component_name(wanted), data, {"component": component.to_json(), "toolexec": __version__})
        return component, data


class _Row:
    """What the cache has of one component, while it is counted."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self._compiled = 0
        self._size = 0
        self._used: float | None = None

    def add(self, file: StoredFile) -> Self:
        """Count *file*."""
        self._compiled += file.name.endswith(_COMPILED)
        self._size += file.size
        self._used = max(self._used or 0.0, file.used)
        return self

    def public(self, shipped: Component | None, known: Component | None) -> CachedComponent:
        """Return the row as callers see it; *known* is what would be used for these packages now."""
        return CachedComponent(
            requirements=self.component.requirements,
            packages=self.component.packages,
            python=self.component.python,
            sha256=self.component.sha256,
            shipped=self.component == shipped,
            current=self.component == known,
            compiled=self._compiled,
            size=self._size,
            used=None if self._used is None else datetime.fromtimestamp(self._used, UTC),
        )


def _component_of(about: JSONObject) -> Component | None:
    try:
        return Component.from_json(about.get("component"))
    except ValueError:
        return None


def _component_name(wanted: tuple[str, ...]) -> str:
    """Another one for each version of the guest: two installations on a machine do not undo each other's work."""
    return f"{_digest('component', inputs_digest(), *wanted)}.wasm"


def _compiled_name(component: Component, fingerprint: str) -> str:
    """Another one for everything that machine code depends on, or that a change of must not go unnoticed."""
    machine = (sys.platform, platform.machine(), _processor(), installed_version("wasmtime", "wasmtime") or "")
    return _digest("compiled", component.sha256, fingerprint, __version__, *machine) + _COMPILED


def _ways(fingerprint: str, compile: _Compile, quick: _Compile | None) -> dict[str, _Compile]:
    """Return what may be used by its fingerprint, the best first; the last one is made where there is none."""
    return {fingerprint: compile} if quick is None else {fingerprint: compile, _quick(fingerprint): quick}


def _quick(fingerprint: str) -> str:
    """Return the fingerprint of the quick compiler that stands in for another one."""
    return f"{fingerprint}-quick"


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _processor() -> str:
    """Return what the processor can do, so that machines which share a home directory do not undo each other's work."""
    try:
        with open("/proc/cpuinfo", "rb", buffering=0) as file:  # noqa: PTH123 - unbuffered: the first processor will do
            lines = file.read(8192).splitlines()
    except OSError:
        return ""
    return next((line.decode("ascii", "replace") for line in lines if line[:5].lower() in (b"flags", b"featu")), "")


def _prune(directory: PrivateDirectory, keep: set[str]) -> None:
    """Forget what was not used for longest, beyond a few of each kind, and the rests of writers that died."""
    directory.tidy()
    for kind in (_COMPILED, ".wasm"):
        same = [file.name for file in directory.files() if file.name.endswith(kind)]
        for name in same[_KEPT:]:
            if name not in keep:
                directory.remove(name)
