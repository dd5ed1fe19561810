"""JavaScript in the embedded sandbox."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from toolexec.code.repair.watch import MOST_LINES, WatchedRequest
from toolexec.code.types import CodeResult, ExecuteRequest, Output
from toolexec.errors import (
    ConfigurationError,
    InvalidRequestError,
    MissingExtraError,
    ProtocolError,
    SandboxUnavailableError,
)
from toolexec.model.json_value import JSONObject, has_surrogate
from toolexec.runtime.base import Availability
from toolexec.runtime.protocol.hostcalls import HostCalls, result_payload
from toolexec.runtime.protocol.recorded_calls import host_calls
from toolexec.runtime.protocol.server import RequestServer
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.files import MemoryFiles
from toolexec.runtime.wasm.guest import make_clock, make_random
from toolexec.runtime.wasm.guest_run import (
    GuestEnd,
    GuestRuns,
    describe_end,
    fuel_of,
    time_and_chance,
)

if TYPE_CHECKING:
    from wasmtime import Engine, Linker, Module

    from toolexec.runtime.wasm.core import CoreGuest, CoreInstance
    from toolexec.runtime.wasm.quickjs import Image

_MOST_FILES = 1024


class ScriptFiles:
    """Files by relative path, at most *max_bytes* in all.

    Raises InvalidRequestError for a path that leads elsewhere, and for more than fits.
    """

    def __init__(self, given: Mapping[str, bytes], max_bytes: int) -> None:
        self._given = dict(given)
        self._files = dict(given)
        self._max_bytes = max_bytes
        self._tree: MemoryFiles | None = self._fitted()

    def changed(self) -> dict[str, bytes]:
        """Return the files that are new, or no longer as they were given."""
        return {path: data for path, data in self._files.items() if self._given.get(path) != data}

    def handle(self, request: str) -> str:
        """Return the answer to a request of the guest, both JSON: `{"value": …}` or `{"error": "…"}`."""
        try:
            return json.dumps({"value": self._do(json.loads(request))})
        except (_RefusedError, InvalidRequestError) as error:
            return json.dumps({"error": str(error)})

    def _do(self, request: JSONObject) -> Any:
        op, path = request.get("op"), str(request.get("path", ""))
        if op == "list":
            return sorted(self._files)
        if op == "write":
            return self._write(path, request)
        if path not in self._files:
            raise _RefusedError(f"there is no file {path!r}; files.list() names those that there are")
        if op == "remove":
            del self._files[path]
            self._tree = None  # its directory may be gone with it
            return None
        data = self._files[path]
        if op == "bytes":
            return base64.b64encode(data).decode()
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise _RefusedError(f"{path!r} is not text in UTF-8; use files.readBytes") from None

    def _write(self, path: str, request: JSONObject) -> None:
        try:
            data = base64.b64decode(request["bytes"]) if "bytes" in request else str(request["text"]).encode()
        except (KeyError, binascii.Error, UnicodeEncodeError, TypeError) as error:
            raise _RefusedError(f"{path!r} cannot be written: {error}") from None
        if has_surrogate(path):
            raise _RefusedError(f"a file cannot be called {path!r}: half a character is not a name")
        if path not in self._files and len(self._files) >= _MOST_FILES:
            raise _RefusedError(f"there can be {_MOST_FILES} files at most")
        tree, self._tree = self._tree or self._fitted(), None  # fitted again if this file does not fit
        with _as_bad_requests():
            if path in self._files:
                tree.remove_file(tree.root, path)
            tree.put(path, data)
        self._files[path], self._tree = data, tree

    def _fitted(self) -> MemoryFiles:
        """Return the files as the tree that they would be on a disk."""
        with _as_bad_requests():
            return MemoryFiles.from_mapping(self._files, max_bytes=self._max_bytes, now=lambda: 0)


class _RefusedError(Exception):
    """What was asked for cannot be done; the script gets the text."""


@contextmanager
def _as_bad_requests() -> Generator[None, None, None]:
    try:
        yield
    except ConfigurationError as error:
        raise InvalidRequestError(str(error), details=error.details) from error


_PACKAGE: Final = "quickjs-rs"
_FITS: Final = "0.2.6"
_EXTRA: Final = "javascript"
_GUEST: Final = [
    Path(__file__).with_name("javascript_locale.js"),
    Path(__file__).with_name("javascript_values.js"),
    Path(__file__).parents[1] / "guest" / "javascript" / "large.cjs",
    Path(__file__).with_name("javascript_guest.js"),
]
_WATCH: Final = Path(__file__).with_name("javascript_watch.js")
_FUNCTIONS: Final = ("exchange", "post", "sleep", "file", "finish")
_NO_MEMORY: Final = "InternalError: out of memory"
_FULL: Final = 0.9
"""The share of the memory from which on a program that fails without a word has most likely used it up."""


class _Loaded:
    """What all runs share: an engine, the interpreter, and its imports."""

    def __init__(self, folder: Path | None) -> None:
        from wasmtime import Linker

        from toolexec.runtime.wasm import quickjs
        from toolexec.runtime.wasm.engine import new_engine
        from toolexec.runtime.wasm.module_source import load_module

        self.engine: Engine = new_engine()
        self.module: Module = load_module(self.engine, _interpreter().read_bytes(), folder)
        wrong = quickjs.misfits(self.module)
        if wrong:
            raise SandboxUnavailableError(
                f"{_PACKAGE} {_installed()} does not fit (its {', '.join(wrong)}); "
                f"install the release that does: pip install {_PACKAGE}=={_FITS}"
            )
        self.linker: Linker = Linker(self.engine)
        self.kept = quickjs.define_imports(self.linker)
        self.image = self._build()

    def _build(self) -> Image:
        """Return the state that every run begins from: made once, for it takes longer than most runs."""
        from toolexec.runtime.wasm.core import CoreGuest, CoreInstance
        from toolexec.runtime.wasm.quickjs import QuickJS

        guest = CoreGuest(clock=make_clock(0.0), random=make_random(0), output=Output())
        instance = CoreInstance(self.engine, guest, memory_bytes=None, fuel=None)
        try:
            quick = QuickJS(instance, guest, dict.fromkeys(_FUNCTIONS, lambda *_: ""))
            return quick.build(self.linker, self.module, [part.read_text("utf-8") for part in _GUEST])
        finally:
            instance.close()


class JavaScriptLanguage:
    """Runs JavaScript programs, each in a fresh QuickJS compiled to WebAssembly.

    A program finds `tools`, `console`, `println`, timers, `files`, `env`, `args` and `stdin`, and nothing of the host:
    no modules, network, processes. Calls of tools are promises, and those that are made together run together.
    `await` and `return` work at the top; the value is that of `return`, else of `__out`, else of a final expression.
    """

    languages: frozenset[str] = frozenset({"javascript", "js"})

    def __init__(self, config: WasmConfig) -> None:
        self.config = config
        self._runs = GuestRuns(config.max_guests)
        self._loading = asyncio.Lock()
        self._loaded: _Loaded | None = None

    async def check(self) -> Availability:
        """Return whether the interpreter is installed; loads nothing."""
        try:
            _interpreter()
        except MissingExtraError as error:
            return Availability(ok=False, reason=str(error), remedy=f"pip install 'toolexec[{_EXTRA}]'")
        return Availability(ok=True, version=f"{_PACKAGE} {_installed()}")

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program; see `SandboxBackend.execute`. The first use of a machine compiles the interpreter.

        Raises SandboxUnavailableError without the interpreter, InvalidRequestError for files that cannot be.
        """
        loaded = await self._load()
        started = monotonic()
        ends = started + request.seconds
        from toolexec.runtime.wasm.javascript import ScriptFiles

        assert request.gateway is not None
        disk = request.limits.disk_bytes
        files = ScriptFiles(request.files, min(disk, self.config.disk_bytes) if disk else self.config.disk_bytes)
        calls = host_calls(RequestServer(request.gateway), request.output, ends)
        guest, instance = self._prepare(loaded, request, calls)

        def _stop() -> None:
            instance.stop()
            calls.stop()

        def _work() -> GuestEnd:
            return _run(loaded, request, _Script(guest, instance, calls, files))

        try:
            end, late = await self._runs.run(_work, stop=_stop, ends=calls.deadline)
        finally:
            await calls.aclose()
        return describe_end(request, end, late=late, started=started)

    async def aclose(self) -> None:
        """Stop what runs."""
        await self._runs.aclose()

    async def _load(self) -> _Loaded:
        async with self._loading:
            if self._loaded is None:
                try:
                    self._loaded = await asyncio.to_thread(_Loaded, self.config.cache_folder)
                except (ImportError, OSError, ConfigurationError) as error:
                    raise SandboxUnavailableError(f"JavaScript cannot be run here: {error}") from error
            return self._loaded

    def _memory(self, request: ExecuteRequest) -> int:
        asked, ours = request.limits.memory_bytes, self.config.memory_bytes
        return min(asked, ours) if asked else ours

    def _prepare(self, loaded: _Loaded, request: ExecuteRequest, calls: HostCalls) -> tuple[CoreGuest, CoreInstance]:
        from toolexec.runtime.wasm.core import CoreGuest, CoreInstance

        clock, random = time_and_chance(request, calls=calls)
        guest = CoreGuest(clock=clock, random=random, output=request.output)
        memory = self._memory(request)
        return guest, CoreInstance(loaded.engine, guest, memory_bytes=memory, fuel=fuel_of(request))


class _Script:
    """The host of one program: its functions, by name."""

    def __init__(self, guest: CoreGuest, instance: CoreInstance, calls: HostCalls, files: ScriptFiles) -> None:
        self.guest = guest
        self.instance = instance
        self.files = files
        self.outcome = ""
        self._calls = calls
        functions = (calls.exchange, self._post, self._sleep, files.handle, self._finish)
        self.functions: dict[str, Callable[..., str]] = dict(zip(_FUNCTIONS, functions, strict=True))

    @property
    def is_full(self) -> bool:
        """Whether the memory is used up, more or less."""
        return self.instance.memory_bytes > self.instance.most_memory_bytes * _FULL

    def _post(self, frame: str) -> str:
        self._calls.post(frame)
        return ""

    def _sleep(self, milliseconds: str) -> str:
        clock = self.guest.clock
        clock.sleep_until(clock.monotonic() + round(float(milliseconds) * 1_000_000), self.guest.stopped)
        self.guest.check_stopped()
        return ""

    def _finish(self, outcome: str) -> str:
        self.outcome = outcome
        return ""


def _run(loaded: _Loaded, request: ExecuteRequest, script: _Script) -> GuestEnd:
    """Run the program to its end, in this thread."""
    from toolexec.runtime.wasm.instance import InstanceFailed, InstanceStopped
    from toolexec.runtime.wasm.quickjs import QuickJS, ScriptError

    end = GuestEnd()
    quick = QuickJS(script.instance, script.guest, script.functions)
    try:
        quick.restore(loaded.linker, loaded.module, loaded.image)
        quick.call(loaded.image.start, _payload(request, script.guest))
        while not script.outcome:
            quick.run_jobs()
            quick.call_plain(loaded.image.pump)
        end.payload = _read_result(script.outcome, script.is_full)
    except ScriptError as error:
        message = str(error) or "the program broke what runs it"
        end.payload = _read_result(json.dumps({"error": {"kind": "Error", "message": message}}), script.is_full)
    except (InstanceFailed, InstanceStopped) as failure:
        end.failure = failure
    finally:
        script.guest.finish()
        end.files = script.files.changed()
        end.details = {
            "runtime": "wasmtime",
            "interpreter": f"{_PACKAGE} {_installed()}",
            "profile": request.profile or "standard",
            "fuel_used": script.instance.fuel_used,
            "memory_used": script.instance.memory_bytes,
        }
        script.instance.close()
    return end


def _payload(request: ExecuteRequest, guest: CoreGuest) -> str:
    watch = {"watch": _watch(request.names)} if isinstance(request, WatchedRequest) else {}
    return json.dumps(
        {
            **watch,
            "code": request.code,
            "env": dict(request.env),
            "names": dict(request.names),
            "args": list(request.args),
            "stdin": request.stdin.decode("utf-8", "replace"),
            "random": struct.unpack("<4I", guest.random.take(16)),
        }
    )


def _watch(names: Iterable[str]) -> str:
    """Return what has a program report which of its reads find nothing; see `toolexec.code.repair.watch`."""
    called = json.dumps([name for name in names if name.isidentifier()])
    return "\n" * MOST_LINES + f"({_WATCH.read_text('utf-8').strip()})({called});"


def _read_result(text: str, is_full: bool) -> JSONObject:
    """Return the payload of the guest's result; running out of memory is reported in the words that `judge` knows.

    With no memory left (*is_full*) even the error about it may be missing; what is thrown then is null.
    """
    try:
        payload = result_payload(f'{{"type":"result","payload":{text}}}')
    except ProtocolError:
        return {"error": {"kind": "Error", "message": "the program broke what tells its result"}}
    error = payload.get("error")
    if isinstance(error, dict) and (error.get("message") == _NO_MEMORY or (is_full and not error.get("line"))):
        error["kind"] = "MemoryError"
    return payload


def _interpreter() -> Path:
    """Return the interpreter's module. Raises MissingExtraError."""
    spec = find_spec("quickjs_rs")  # not imported: its own host is not used
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(place) / "_guest.wasm"
        if path.is_file():
            return path
    raise MissingExtraError(_EXTRA, needed_for="JavaScript in the embedded sandbox")


def _installed() -> str:
    try:
        return version(_PACKAGE)
    except PackageNotFoundError:
        return "of an unknown version"
