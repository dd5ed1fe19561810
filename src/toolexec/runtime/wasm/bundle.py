"""Python packages in memory: modules, data files and metadata of packages, importable where no file system is.

This file is copied into the component, so it imports nothing of toolexec.
"""

from __future__ import annotations

import importlib
import io
import marshal
import pkgutil
import sys
import zlib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from importlib.abc import InspectLoader, MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import Distribution, DistributionFinder
from importlib.resources.abc import Traversable, TraversableResources
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any, Final, NamedTuple

_ROOT: Final = "/packages"
_SKIPPED: Final = {"__main__", "conftest", "test", "tests", "testing"}
_INFO: Final = ".dist-info"


class Bundle(MetaPathFinder):
    """An importer of packages whose *files* are held in memory, keyed by their path (`"pkg/data.txt"`).

    `importlib.resources`, `pkgutil.get_data` and `importlib.metadata` find what belongs to the packages, too.
    """

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files: dict[str, bytes] = dict(files)
        self._folders = {str(parent) for name in self.files for parent in PurePosixPath(name).parents} - {"."}

    @classmethod
    def read(cls, folder: Path) -> Bundle:
        """Read all files below *folder*, but for compiled ones; the bundle is empty if that does not exist."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return cls({path.relative_to(folder).as_posix(): path.read_bytes() for path in paths})

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module *fullname* if it is one of the packages'."""
        base = fullname.replace(".", "/")
        for name in (f"{base}/__init__.py", f"{base}.py"):
            if name in self.files:
                loader = _Loader(self, fullname, f"{_ROOT}/{name}")
                spec = ModuleSpec(fullname, loader, origin=loader.path, is_package=name.endswith("/__init__.py"))
                spec.has_location = True
                if spec.submodule_search_locations is not None:
                    spec.submodule_search_locations.append(f"{_ROOT}/{base}")
                return spec
        if base in self._folders and any(name.startswith(f"{base}/") and name.endswith(".py") for name in self.files):
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = [f"{_ROOT}/{base}"]
            return spec
        return None

    def find_distributions(self, context: DistributionFinder.Context | None = None) -> Iterable[Distribution]:
        """Return the metadata of the packages, for `importlib.metadata`."""
        wanted = None if context is None or context.name is None else _normal(context.name)
        for folder in sorted(self._folders):
            if folder.endswith(_INFO) and wanted in (None, _normal(folder.partition("-")[0])):
                yield _Metadata(self, folder)

    def modules(self) -> list[str]:
        """Return the names of all modules, parents first; without `__main__` and tests."""
        names: set[str] = set()
        for name in self.files:
            path = PurePosixPath(name)
            if path.suffix == ".py":
                parts = path.parts[:-1] if path.name == "__init__.py" else (*path.parts[:-1], path.stem)
                if all(part.isidentifier() and part not in _SKIPPED for part in parts):
                    names.update(".".join(parts[: end + 1]) for end in range(len(parts)))
        return sorted(names)

    def preload(self) -> dict[str, str]:
        """Import all modules; gives name → error of those that failed, which may well be imported later."""
        failed: dict[str, str] = {}
        for name in self.modules():
            try:
                importlib.import_module(name)
            except BaseException as error:  # whatever a package does when it is imported
                failed[name] = f"{type(error).__name__}: {error}"
        return failed

    def data(self, path: str) -> bytes:
        """Return what the file *path* holds; raises FileNotFoundError."""
        try:
            return self.files[path.removeprefix(f"{_ROOT}/")]
        except KeyError:
            raise FileNotFoundError(path) from None


class _Kept(NamedTuple):
    code: bytes
    origin: str | None
    locations: list[str] | None


class Deferred(MetaPathFinder, InspectLoader):
    """An importer of modules that it keeps as compressed code: they take a tenth of the memory of loaded ones."""

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}

    def keep(self, name: str, path: Sequence[str] | None = None, *, without: Container[str] = ()) -> None:
        """Keep the module *name*, found in *path*, if it is not loaded, and all modules below it but *without*."""
        spec = PathFinder.find_spec(name, path)
        if name in without or spec is None or not isinstance(spec.loader, SourceLoader):
            return
        locations = spec.submodule_search_locations
        if name not in sys.modules:
            code = spec.loader.get_code(name)
            packed = zlib.compress(marshal.dumps(code), 9)
            self._kept[name] = _Kept(packed, spec.origin, None if locations is None else [*locations])
        for below in pkgutil.iter_modules(locations or (), f"{name}."):
            if not below.name.endswith(".__main__"):
                self.keep(below.name, locations, without=without)

    def offer(self, package: ModuleType) -> None:
        """Have the attributes of *package* lead to its modules that are kept, as if they were loaded."""
        start = f"{package.__name__}."
        below = {name[len(start) :] for name in self._kept if name.startswith(start)}

        def load(name: str) -> ModuleType:
            if name in below:
                return importlib.import_module(start + name)
            raise AttributeError(f"module {start[:-1]!r} has no attribute {name!r}")

        if below and "__getattr__" not in vars(package):
            vars(package)["__getattr__"] = load

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the module *fullname* if it is one of those that are kept."""
        kept = self._kept.get(fullname)
        if kept is None:
            return None
        spec = ModuleSpec(fullname, self, origin=kept.origin, is_package=kept.locations is not None)
        spec.has_location = True
        if kept.locations is not None:
            spec.submodule_search_locations = [*kept.locations]
        return spec

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code of a module that is kept."""
        kept = self._kept.get(fullname)
        return None if kept is None else marshal.loads(zlib.decompress(kept.code))  # noqa: S302 - made by `keep`

    def is_package(self, fullname: str) -> bool:
        """Return whether *fullname* is kept and has modules below it."""
        kept = self._kept.get(fullname)
        return kept is not None and kept.locations is not None

    def get_source(self, fullname: str) -> str | None:
        """Return None: no source is kept."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Load the module."""
        super().exec_module(module)
        self.offer(module)


class Refusals(MetaPathFinder):
    """Says why a module cannot be had. *reasons* has name → reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self._reasons = dict(reasons)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError with the reason, if there is one."""
        reason = self._reasons.get(fullname)
        if reason is not None:
            raise ModuleNotFoundError(f"no module {fullname!r} in the sandbox: {reason}", name=fullname)
        return None


class _Loader(SourceLoader):
    def __init__(self, bundle: Bundle, name: str, path: str) -> None:
        self.bundle = bundle
        self.name = name
        self.path = path

    def get_filename(self, fullname: str) -> str:
        return self.path

    def get_data(self, path: str) -> bytes:
        return self.bundle.data(path)

    def get_resource_reader(self, fullname: str) -> TraversableResources:
        return _Resources(self.bundle, self.path.removeprefix(f"{_ROOT}/").rpartition("/")[0])


class _Resources(TraversableResources):
    def __init__(self, bundle: Bundle, folder: str) -> None:
        self._bundle = bundle
        self._folder = folder

    def files(self) -> _Entry:
        return _Entry(self._bundle, self._folder)


class _Entry(Traversable):
    """A file or directory of a bundle."""

    def __init__(self, bundle: Bundle, path: str) -> None:
        self._bundle = bundle
        self._path = path

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    def iterdir(self) -> Iterator[_Entry]:
        start = f"{self._path}/"
        inside = (name[len(start) :] for name in self._bundle.files if name.startswith(start))
        for name in sorted({rest.partition("/")[0] for rest in inside}):
            yield _Entry(self._bundle, start + name)

    def is_dir(self) -> bool:
        return any(name.startswith(f"{self._path}/") for name in self._bundle.files)

    def is_file(self) -> bool:
        return self._path in self._bundle.files

    def joinpath(self, *descendants: Any) -> _Entry:
        return _Entry(self._bundle, str(PurePosixPath(self._path, *descendants)))

    __truediv__ = joinpath

    def open(self, mode: str = "r", encoding: str | None = None, errors: str | None = None, **_: Any) -> Any:
        stream = io.BytesIO(self._bundle.data(self._path))
        return stream if "b" in mode else io.TextIOWrapper(stream, encoding or "utf-8", errors)

    def read_bytes(self) -> bytes:
        return self._bundle.data(self._path)

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")


class _Metadata(Distribution):
    def __init__(self, bundle: Bundle, folder: str) -> None:
        self._bundle = bundle
        self._folder = folder

    def read_text(self, filename: str) -> str | None:
        data = self._bundle.files.get(f"{self._folder}/{filename}")
        return None if data is None else data.decode("utf-8", "replace")

    def locate_file(self, path: Any) -> Any:
        return PurePosixPath(_ROOT, path)


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")
