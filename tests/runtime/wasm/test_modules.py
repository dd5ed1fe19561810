"""Raw WebAssembly modules, from their source to their end."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.runtime.wasm.language_kit import Kit
from tests.waiting import reached
from wasmtime import wat2wasm

from toolexec.code.limits import Limits
from toolexec.code.types import Output
from toolexec.errors import (
    ClosedError,
    CodeError,
    CodeTimeoutError,
    ConfigurationError,
    InvalidRequestError,
    LimitExceededError,
)
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.enforced import enforced_by_wasm
from toolexec.runtime.wasm.modules import PAGE_BYTES, ModuleLanguage

pytestmark = pytest.mark.anyio

P1 = "wasi_snapshot_preview1"
PRINT = f"""
  (import "{P1}" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func $print (param $stream i32) (param $at i32) (param $size i32)
    (i32.store (i32.const 0) (local.get $at))
    (i32.store (i32.const 4) (local.get $size))
    (drop (call $fd_write (local.get $stream) (i32.const 0) (i32.const 1) (i32.const 8))))
"""


def text(data: str) -> str:
    """*data* as it stands in a WAT string."""
    return "".join(f"\\{byte:02x}" for byte in data.encode())


def printing(words: str, stream: int = 1, imports: str = "", then: str = "") -> str:
    """A module that prints *words*."""
    return (
        f'(module {imports} {PRINT} (data (i32.const 64) "{text(words)}") (func (export "_start")'
        f" (call $print (i32.const {stream}) (i32.const 64) (i32.const {len(words.encode())})) {then}))"
    )


def returning(body: str, kind: str = "i32") -> str:
    """A module whose `_start` gives what *body* leaves."""
    return f'(module (func (export "_start") (result {kind}) {body}))'


def calling(request: str, room: int = 4096, then: str = "", entry: str = "") -> str:
    """A module that calls a tool with *request* and prints the answer."""
    size = len(request.encode())
    return f"""(module
  (import "tools" "call" (func $call (param i32 i32 i32 i32) (result i32)))
  (import "tools" "read" (func $read (param i32 i32) (result i32)))
  {PRINT}
  (data (i32.const 64) "{text(request)}")
  (func (export "_start") (local $n i32)
    (local.set $n (call $call (i32.const 64) (i32.const {size}) (i32.const 65536) (i32.const {room})))
    {then}
    (call $print (i32.const 1) (i32.const 65536) (local.get $n))))"""


@pytest.fixture
async def kit() -> Kit:
    return Kit()


@pytest.fixture
async def language() -> AsyncIterator[ModuleLanguage]:
    made = ModuleLanguage(WasmConfig())
    yield made
    await made.aclose()


async def run(language: ModuleLanguage, kit: Kit, wat: str, **fields: Any) -> Any:
    """The result of a module in the text format."""
    return await language.execute(kit.request(wat, **fields))


# -- where the module comes from ------------------------------------------------------------------------------------

FORTY_TWO = bytes(wat2wasm(returning("i32.const 42")))
ENCODED = base64.b64encode(FORTY_TWO).decode()


@pytest.mark.parametrize("key", ["wasm_module", "wasm_module_b64"])
@pytest.mark.parametrize(
    "given",
    [FORTY_TWO, bytearray(FORTY_TWO), ENCODED, ENCODED.rstrip("="), ENCODED.encode(), ENCODED[:8] + "\n" + ENCODED[8:]],
)
async def test_either_key_takes_bytes_and_base64(language: ModuleLanguage, kit: Kit, key: str, given: Any) -> None:
    """Bytes and base64, padded, unpadded or with line breaks, may stand under both keys."""
    result = await language.execute(kit.request("", metadata={key: given}))
    assert result.raise_for_error().value == 42


async def test_code_may_be_the_text_format(language: ModuleLanguage, kit: Kit) -> None:
    """Code that is a module in the text format is compiled; comments may come before it."""
    result = await run(language, kit, ";; the answer\n\n" + returning("i32.const 42"))
    assert result.value == 42


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "there is no WebAssembly module"),
        ({"wasm_module": b"\x7fELF1234"}, "neither a module nor base64"),
        ({"wasm_module": base64.b64encode(b"\x7fELF1234")}, "starts with the bytes 00 61 73 6d, not 7f 45 4c 46"),
        ({"wasm_module": FORTY_TWO[:4] + b"\x0d\0\1\0"}, "this is a component"),
        ({"wasm_module": FORTY_TWO[:-3]}, "the module is not valid"),
        ({"wasm_module_b64": "not base64!"}, "neither a module nor base64"),
        ({"wasm_module": 42}, "must be bytes or base64, not int"),
    ],
)
async def test_what_is_no_module_is_refused(language: ModuleLanguage, kit: Kit, metadata: Any, says: str) -> None:
    """Each kind of wrong input is named, and nothing runs."""
    with pytest.raises(InvalidRequestError, match=says):
        await language.execute(kit.request("print('hello')", metadata=metadata))


async def test_text_that_does_not_parse_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """The error says where the text of a module is wrong."""
    with pytest.raises(InvalidRequestError, match="text of the module is not valid"):
        await run(language, kit, "(module (func")


async def test_text_that_is_too_long_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """A text of more than a million characters is not even parsed."""
    with pytest.raises(InvalidRequestError, match="at most 1048576 characters"):
        await run(language, kit, "(module " + ";" * (1 << 20) + ")")


@pytest.mark.parametrize("given", [FORTY_TWO, ENCODED])
async def test_a_huge_module_is_refused(kit: Kit, given: Any) -> None:
    """A module over the operator's cap is refused before it is decoded or compiled."""
    small = ModuleLanguage(WasmConfig(), max_module_bytes=16)
    with pytest.raises(InvalidRequestError, match="at most 16 are taken"):
        await small.execute(kit.request("", metadata={"wasm_module": given}))


async def test_compiled_modules_are_kept_up_to_a_bound(kit: Kit) -> None:
    """The same bytes are compiled once, and only so many modules are remembered."""
    language = ModuleLanguage(WasmConfig(), compiled_modules=2)
    for number in (1, 2, 3, 3):
        assert (await run(language, kit, returning(f"i32.const {number}"))).value == number
    assert len(language._modules) == 2
    first = language._modules.get(bytes(wat2wasm(returning("i32.const 3"))))
    assert language._modules.get(bytes(wat2wasm(returning("i32.const 3")))) is first
    await language.aclose()


# -- its value ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        ("i32.const -5", "i32", -5),
        ("i64.const -9007199254740993", "i64", -9007199254740993),
        ("f64.const 2.5", "f64", 2.5),
        ("f32.const 0.5", "f32", 0.5),
        ("(i32.const 1) (f64.const 2.5)", "i32 f64", [1, 2.5]),
    ],
)
async def test_what_the_entry_returns_is_the_value(
    language: ModuleLanguage, kit: Kit, body: str, kind: str, value: Any
) -> None:
    """Numbers keep their sign and all their digits; several results are a list."""
    assert (await run(language, kit, returning(body, kind))).raise_for_error().value == value


async def test_a_result_that_is_not_json_is_the_programs_failure(language: ModuleLanguage, kit: Kit) -> None:
    """JSON has no NaN."""
    result = await run(language, kit, returning("f64.const nan", "f64"))
    assert isinstance(result.error, CodeError)
    assert "nan, which JSON does not have" in str(result.error)


async def test_another_entry_can_be_named(language: ModuleLanguage, kit: Kit) -> None:
    """`wasm_entry` names an export to run; `_initialize` runs before it."""
    wat = """(module (global $g (mut i32) (i32.const 0))
      (func (export "_initialize") (global.set $g (i32.const 7)))
      (func (export "answer") (result i32) (i32.mul (global.get $g) (i32.const 6))))"""
    assert (await run(language, kit, wat, metadata={"wasm_entry": "answer"})).value == 42


@pytest.mark.parametrize("entry", ["missing", "needs", 7])
async def test_an_entry_that_is_not_there_is_refused(language: ModuleLanguage, kit: Kit, entry: Any) -> None:
    """The error names what could be run instead."""
    wat = '(module (func (export "needs") (param i32)) (func (export "other")))'
    with pytest.raises(InvalidRequestError, match="can name one of: other"):
        await run(language, kit, wat, metadata={"wasm_entry": entry})


@pytest.mark.parametrize(
    ("printed", "value", "stdout"),
    [
        ('hello\n__OUT__:{"a": 1}\n', {"a": 1}, "hello\n"),
        ('__OUT__:1\nhello\n{"__out": [2]}\nbye', [2], "__OUT__:1\nhello\nbye"),
        ("__OUT__: not json \n", "not json", ""),
        ("__OUT__:\n", "", ""),
        ('{"__out": null}\n', None, ""),
        ('{"__out": broken}\n{"other": 1}\n', None, '{"__out": broken}\n{"other": 1}\n'),
        ("  __OUT__:5", 5, ""),
    ],
)
async def test_a_marker_on_stdout_gives_the_value(
    language: ModuleLanguage, kit: Kit, printed: str, value: Any, stdout: str
) -> None:
    """Of lines that give a value the last one wins, and is not part of stdout."""
    result = (await run(language, kit, printing(printed))).raise_for_error()
    assert (result.value, result.stdout) == (value, stdout)


async def test_a_marker_counts_behind_the_output_limit(language: ModuleLanguage, kit: Kit) -> None:
    """The value is found although the captured output was cut off before it."""
    result = await run(language, kit, printing("x" * 500 + "\n__OUT__:5\n"), output=Output(limit=10))
    assert result.value == 5
    assert result.stdout.startswith("x" * 10 + "\n... output limit reached")


# -- WASI -----------------------------------------------------------------------------------------------------------


async def test_output_comes_while_the_module_runs(language: ModuleLanguage, kit: Kit) -> None:
    """Both streams are heard as they are written, and captured."""
    heard: list[tuple[str, str]] = []
    output = Output(tell=lambda stream, said: heard.append((stream, said)))
    wat = printing("één\n", 2, then="(call $print (i32.const 1) (i32.const 64) (i32.const 2))")
    result = await run(language, kit, wat, output=output)
    assert heard == [("stderr", "één\n"), ("stdout", "é")]
    assert (result.stdout, result.stderr) == ("é", "één\n")


async def test_half_a_character_at_the_end_is_shown(language: ModuleLanguage, kit: Kit) -> None:
    """Bytes that are not UTF-8 are shown with a replacement."""
    wat = printing("é", then="(call $print (i32.const 1) (i32.const 64) (i32.const 1))")
    assert (await run(language, kit, wat)).stdout == "é\ufffd"


ECHO = f"""(module
  (import "{P1}" "args_sizes_get" (func $as (param i32 i32) (result i32)))
  (import "{P1}" "args_get" (func $ag (param i32 i32) (result i32)))
  (import "{P1}" "environ_sizes_get" (func $es (param i32 i32) (result i32)))
  (import "{P1}" "environ_get" (func $eg (param i32 i32) (result i32)))
  (import "{P1}" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  {PRINT}
  (func (export "_start")
    (drop (call $as (i32.const 16) (i32.const 20)))
    (drop (call $ag (i32.const 1024) (i32.const 2048)))
    (call $print (i32.const 1) (i32.const 2048) (i32.load (i32.const 20)))
    (drop (call $es (i32.const 16) (i32.const 20)))
    (drop (call $eg (i32.const 1024) (i32.const 2048)))
    (call $print (i32.const 1) (i32.const 2048) (i32.load (i32.const 20)))
    (i32.store (i32.const 24) (i32.const 2048)) (i32.store (i32.const 28) (i32.const 4))
    (i32.store (i32.const 32) (i32.const 3000)) (i32.store (i32.const 36) (i32.const 100))
    (drop (call $fd_read (i32.const 0) (i32.const 24) (i32.const 2) (i32.const 16)))
    (call $print (i32.const 1) (i32.const 2048) (i32.const 4))
    (call $print (i32.const 1) (i32.const 3000) (i32.sub (i32.load (i32.const 16)) (i32.const 4)))))"""


async def test_args_env_and_stdin_arrive(language: ModuleLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module sees what the request gives it, and nothing of the host's environment."""
    monkeypatch.setenv("HOST_SECRET", "hidden")
    result = await run(language, kit, ECHO, args=["one", "two"], env={"KEY": "value"}, stdin=b"from stdin")
    assert result.stdout == "module\0one\0two\0KEY=value\0from stdin"


async def clock_and_random(language: ModuleLanguage, kit: Kit, **fields: Any) -> tuple[int, str]:
    """The wall clock (in seconds) and some random bytes, as a module sees them."""
    wat = f"""(module
  (import "{P1}" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
  (import "{P1}" "random_get" (func $random (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (result i64 i64)
    (drop (call $time (i32.const 0) (i64.const 0) (i32.const 64)))
    (drop (call $random (i32.const 80) (i32.const 8)))
    (i64.div_u (i64.load (i32.const 64)) (i64.const 1000000000)) (i64.load (i32.const 80))))"""
    seconds, number = (await run(language, kit, wat, **fields)).raise_for_error().value
    return seconds, struct.pack("<q", number).hex()


async def test_clock_and_random_can_be_replayed(language: ModuleLanguage, kit: Kit) -> None:
    """With `now` and `seed` two runs see the same."""
    first = await clock_and_random(language, kit, now=1e9, seed=5)
    assert first[0] == 1_000_000_000
    assert await clock_and_random(language, kit, now=1e9, seed=5) == first
    assert (await clock_and_random(language, kit, now=1e9, seed=6))[1] != first[1]


async def test_hardened_modules_have_no_clock(language: ModuleLanguage, kit: Kit) -> None:
    """In the profile `hardened` the time starts in 1970."""
    assert (await clock_and_random(language, kit, profile="hardened"))[0] == 0
    assert (await clock_and_random(language, kit))[0] > 1_000_000_000


async def test_a_clock_that_cannot_be_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """A time before 1970 is a bad request."""
    with pytest.raises(InvalidRequestError, match="seconds since 1970"):
        await run(language, kit, returning("i32.const 1"), now=-1.0)


def errno_of(call: str, params: str, arguments: str) -> str:
    """A module that gives the error number of one function of WASI."""
    return (
        f'(module (import "{P1}" "{call}" (func $f {f"(param {params})" if params else ""} (result i32)))'
        f' (memory (export "memory") 1) (func (export "_start") (result i32) {arguments} (call $f)))'
    )


BADF, FAULT, INVAL, NOSYS, SPIPE = 8, 21, 28, 52, 70


@pytest.mark.parametrize(
    ("call", "params", "arguments", "errno"),
    [
        ("fd_prestat_get", "i32 i32", "(i32.const 3) (i32.const 0)", BADF),
        ("fd_prestat_dir_name", "i32 i32 i32", "(i32.const 3) (i32.const 0) (i32.const 0)", BADF),
        ("path_open", "i32 i32 i32 i32 i32 i64 i64 i32 i32", "(i32.const 3)" + 4 * "(i32.const 0)" + 2 * "(i64.const 0)"
         + 2 * "(i32.const 0)", NOSYS),
        ("sock_accept", "i32 i32 i32", "(i32.const 3) (i32.const 0) (i32.const 0)", NOSYS),
        ("fd_filestat_get", "i32 i32", "(i32.const 1) (i32.const 0)", NOSYS),
        ("fd_filestat_get", "i32 i32", "(i32.const 3) (i32.const 0)", BADF),
        ("fd_fdstat_get", "i32 i32", "(i32.const 3) (i32.const 0)", BADF),
        ("fd_fdstat_get", "i32 i32", "(i32.const 0) (i32.const 0)", 0),
        ("fd_fdstat_get", "i32 i32", "(i32.const 1) (i32.const 65535)", FAULT),
        ("fd_close", "i32", "(i32.const 1)", 0),
        ("fd_close", "i32", "(i32.const 4)", BADF),
        ("fd_seek", "i32 i64 i32 i32", "(i32.const 1) (i64.const 0) (i32.const 0) (i32.const 0)", SPIPE),
        ("fd_tell", "i32 i32", "(i32.const 9) (i32.const 0)", BADF),
        ("fd_read", "i32 i32 i32 i32", "(i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)", BADF),
        ("fd_read", "i32 i32 i32 i32", "(i32.const 0) (i32.const 0) (i32.const 5000) (i32.const 8)", INVAL),
        ("fd_write", "i32 i32 i32 i32", "(i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)", BADF),
        ("fd_write", "i32 i32 i32 i32", "(i32.const 1) (i32.const 0) (i32.const 5000) (i32.const 8)", INVAL),
        ("fd_write", "i32 i32 i32 i32", "(i32.const 1) (i32.const -8) (i32.const 1) (i32.const 8)", FAULT),
        ("random_get", "i32 i32", "(i32.const 0) (i32.const -1)", FAULT),
        ("clock_time_get", "i32 i64 i32", "(i32.const 2) (i64.const 0) (i32.const 0)", INVAL),
        ("clock_res_get", "i32 i32", "(i32.const 3) (i32.const 0)", INVAL),
        ("clock_res_get", "i32 i32", "(i32.const 0) (i32.const 0)", 0),
        ("poll_oneoff", "i32 i32 i32 i32", "(i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)", INVAL),
        ("sched_yield", "", "", 0),
        ("proc_raise", "i32", "(i32.const 9)", NOSYS),
    ],
)  # fmt: skip
async def test_wasi_says_no(
    language: ModuleLanguage, kit: Kit, call: str, params: str, arguments: str, errno: int
) -> None:
    """There are no files, directories and sockets; wrong addresses and numbers give error numbers."""
    assert (await run(language, kit, errno_of(call, params, arguments))).raise_for_error().value == errno


def polling(kind: int, clock: int, timeout: str, flags: int = 0) -> str:
    """A module that waits for a clock (kind 0) or a stream, and gives the number of events."""
    return f"""(module
  (import "{P1}" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
  (import "{P1}" "clock_time_get" (func $time (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start") (result i32)
    (drop (call $time (i32.const {clock}) (i64.const 0) (i32.const 512)))
    (i64.store (i32.const 0) (i64.const 77))
    (i32.store8 (i32.const 8) (i32.const {kind}))
    (i32.store (i32.const 16) (i32.const {clock}))
    (i64.store (i32.const 24) {timeout})
    (i32.store16 (i32.const 40) (i32.const {flags}))
    (if (result i32) (call $poll (i32.const 0) (i32.const 256) (i32.const 1) (i32.const 600))
      (then (i32.const -1))
      (else (i32.add (i32.load (i32.const 600)) (i32.wrap_i64 (i64.load (i32.const 256))))))))"""


@pytest.mark.parametrize(
    ("kind", "clock", "timeout", "flags", "value"),
    [
        (0, 1, "(i64.const 1000)", 0, 78),
        (0, 0, "(i64.add (i64.load (i32.const 512)) (i64.const 1000))", 1, 78),
        (0, 1, "(i64.add (i64.load (i32.const 512)) (i64.const 1000))", 1, 78),
        (1, 0, "(i64.const 0)", 0, 78),
        (0, 3, "(i64.const 0)", 0, -1),
    ],
)
async def test_a_module_can_wait(
    language: ModuleLanguage, kit: Kit, kind: int, clock: int, timeout: str, flags: int, value: int
) -> None:
    """Clocks wake it, by either clock and either way to give a time; streams are ready at once."""
    assert (await run(language, kit, polling(kind, clock, timeout, flags))).raise_for_error().value == value


async def test_a_long_sleep_ends_at_the_deadline(language: ModuleLanguage, kit: Kit) -> None:
    """Waiting is no way around the time limit."""
    result = await run(language, kit, polling(0, 1, "(i64.const 3600000000000)"), timeout=0.1)
    assert isinstance(result.error, CodeTimeoutError)


async def test_a_replayed_clock_does_not_really_wait(language: ModuleLanguage, kit: Kit) -> None:
    """With a virtual clock an hour passes at once."""
    assert (await run(language, kit, polling(0, 1, "(i64.const 3600000000000)"), now=0.0)).value == 78


# -- what is granted ------------------------------------------------------------------------------------------------


async def test_imports_that_are_not_granted_are_listed(language: ModuleLanguage, kit: Kit) -> None:
    """The error names every such import, and what there is."""
    wat = '(module (import "env" "system" (func)) (import "env" "mem" (memory 1)) (func (export "_start")))'
    with pytest.raises(
        InvalidRequestError, match=r"not granted: env.system, env.mem; granted are wasi_snapshot"
    ) as caught:
        await run(language, kit, wat)
    assert caught.value.details == {"imports": ["env.system", "env.mem"]}


async def test_a_long_list_of_imports_is_cut(language: ModuleLanguage, kit: Kit) -> None:
    """A list of a thousand names is cut."""
    wat = "(module " + "".join(f'(import "env" "f{i}" (func))' for i in range(40)) + ")"
    with pytest.raises(InvalidRequestError, match="and 28 more"):
        await run(language, kit, wat)


async def test_an_import_with_another_signature_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """A function of the right name and the wrong type is named, too."""
    with pytest.raises(InvalidRequestError, match="another signature"):
        await run(language, kit, f'(module (import "{P1}" "fd_close" (func (param i64))) (func (export "_start")))')


async def test_wasi_can_be_switched_off(kit: Kit) -> None:
    """Without it a module that imports it is refused; one that imports nothing runs."""
    language = ModuleLanguage(WasmConfig(enable_wasi=False, allowed_host_functions=()))
    with pytest.raises(InvalidRequestError, match="granted are no imports at all"):
        await run(language, kit, printing("hello"))
    result = await run(language, kit, returning("i32.const 1"))
    assert (result.value, result.backend.details["enable_wasi"]) == (1, False)
    await language.aclose()


@pytest.mark.parametrize("profile", ["hardened", "standard"])
async def test_host_functions_are_cleared_in_hardened(language: ModuleLanguage, kit: Kit, profile: str) -> None:
    """A hardened module cannot call tools."""
    wat = calling('{"id": "kit:add", "args": {"a": 1, "b": 2}}')
    if profile == "hardened":
        with pytest.raises(InvalidRequestError, match=r"not granted: tools.call, tools.read"):
            await run(language, kit, wat, profile=profile)
    else:
        assert (await run(language, kit, wat, profile=profile)).ok


async def test_files_are_refused(language: ModuleLanguage, kit: Kit) -> None:
    """A raw module could not read them, so they are not taken silently."""
    with pytest.raises(InvalidRequestError, match="has no files"):
        await run(language, kit, returning("i32.const 1"), files={"a": b""})


@pytest.mark.parametrize(
    "settings",
    [{"max_memory_pages": 0}, {"max_memory_pages": 70_000}, {"max_module_bytes": 0}, {"compiled_modules": 0}],
)
async def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    """Each number has bounds."""
    with pytest.raises(ConfigurationError):
        ModuleLanguage(WasmConfig(), **settings)


async def test_unknown_host_functions_are_refused() -> None:
    """An operator's misspelling does not go unnoticed."""
    with pytest.raises(ConfigurationError, match=r"unknown host functions tools\.cal"):
        ModuleLanguage(WasmConfig(allowed_host_functions=("tools.cal",)))


# -- tools ----------------------------------------------------------------------------------------------------------


async def ask(language: ModuleLanguage, kit: Kit, request: Any, **fields: Any) -> Any:
    """The answer to a request of a module."""
    words = request if isinstance(request, str) else json.dumps(request)
    result = await run(language, kit, calling(words), **fields)
    return json.loads(result.raise_for_error().stdout)


async def test_a_module_calls_a_tool(language: ModuleLanguage, kit: Kit) -> None:
    """The call crosses the one gateway, and is in its trace."""
    tools = kit.tools()
    answer = await ask(language, kit, {"id": "kit:add", "args": {"a": 5, "b": 3}}, tools=tools)
    assert answer["structured"] == 8
    assert [(call.tool_id, call.value) for call in tools.tool_calls()] == [("kit:add", 8)]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"id": "kit:fail"}, "handler_failed"),
        ({"id": "kit:add", "args": {"a": "x", "b": 1}}, "validation_input"),
        ({"id": "kit:nothing"}, "tool_not_found"),
        ({"id": 5}, "protocol"),
        ({"type": "format_disk"}, "protocol"),
        ({"type": ["run_tool"]}, "protocol"),
        ("[1]", "protocol"),
        ("{broken", "protocol"),
    ],
)
async def test_a_failed_call_is_an_answer(language: ModuleLanguage, kit: Kit, request_: Any, code: str) -> None:
    """The module learns what went wrong, by a stable code."""
    answer = await ask(language, kit, request_)
    assert answer["code"] == code
    assert answer["error"]


async def test_the_allow_list_holds(language: ModuleLanguage, kit: Kit) -> None:
    """A tool that is not on it is not run."""
    answer = await ask(language, kit, {"id": "kit:add", "args": {}}, tools=kit.tools(allowed=("kit:fail",)))
    assert answer["code"] == "tool_not_allowed"


async def test_the_cap_on_calls_holds(language: ModuleLanguage, kit: Kit) -> None:
    """A module that calls on and on is answered with an error from the cap on."""
    request = json.dumps({"id": "kit:add", "args": {"a": 1, "b": 2}})
    again = f"(drop (call $call (i32.const 64) (i32.const {len(request)}) (i32.const 65536) (i32.const 4096)))"
    tools = kit.tools(max_tool_calls=2)
    result = await run(language, kit, calling(request, then=3 * again), tools=tools)
    assert result.ok
    assert tools.calls_made == 2


async def test_other_requests_have_a_type(language: ModuleLanguage, kit: Kit) -> None:
    """A module can look for tools as well."""
    assert await ask(language, kit, {"type": "list_namespaces"}) == {"namespaces": ["kit"]}


async def test_an_answer_that_does_not_fit_waits(language: ModuleLanguage, kit: Kit) -> None:
    """`call` gives minus its size, and `read` fetches it once there is room; afterwards nothing waits."""
    then = """
    (if (i32.ge_s (local.get $n) (i32.const 0)) (then unreachable))
    (if (i32.ne (call $read (i32.const 65536) (i32.const 5)) (local.get $n)) (then unreachable))
    (local.set $n (call $read (i32.const 65536) (i32.sub (i32.const 0) (local.get $n))))
    (if (call $read (i32.const 65536) (i32.const 5)) (then unreachable))"""
    wat = calling('{"id": "kit:add", "args": {"a": 1, "b": 2}}', room=0, then=then)
    result = await run(language, kit, wat)
    assert json.loads(result.raise_for_error().stdout)["structured"] == 3


async def test_a_request_that_is_too_long_is_not_read(language: ModuleLanguage, kit: Kit) -> None:
    """A length beyond the limit of a message gives an error, whatever is in memory."""
    wat = calling("{}").replace("(i32.const 2) (i32.const 65536)", "(i32.const 99999999) (i32.const 65536)")
    assert "at most" in json.loads((await run(language, kit, wat)).raise_for_error().stdout)["error"]


async def test_a_wrong_address_ends_the_module(language: ModuleLanguage, kit: Kit) -> None:
    """A module cannot read or write beside its memory."""
    wat = calling("{}").replace("(i32.const 64) (i32.const 2)", "(i32.const -64) (i32.const 2)")
    result = await run(language, kit, wat)
    assert isinstance(result.error, CodeError)
    assert "are not all in the module's memory" in str(result.error)


async def test_a_module_without_memory_cannot_pass_addresses(language: ModuleLanguage, kit: Kit) -> None:
    """The error asks the module to export its memory."""
    wat = f'(module (import "{P1}" "random_get" (func $r (param i32 i32) (result i32))) (func (export "_start") (drop (call $r (i32.const 0) (i32.const 1)))))'
    result = await run(language, kit, wat)
    assert "export its memory" in str(result.error)
    wat = wat.replace("(func (export", '(global (export "memory") i32 (i32.const 0)) (func (export')
    assert "is no memory" in str((await run(language, kit, wat)).error)


# -- how it ends ----------------------------------------------------------------------------------------------------

EXIT = f'(import "{P1}" "proc_exit" (func $exit (param i32)))'


@pytest.mark.parametrize("code", [1, 137, 255])
async def test_an_exit_code_is_a_failure(language: ModuleLanguage, kit: Kit, code: int) -> None:
    """The program failed, whatever its code means elsewhere; what it printed is there."""
    result = await run(language, kit, printing("so far\n", imports=EXIT, then=f"(call $exit (i32.const {code}))"))
    assert isinstance(result.error, CodeError)
    assert result.error.details["exit_code"] == code
    assert f"exited with code {code}" in str(result.error)
    assert result.stdout == "so far\n"


async def test_exit_code_zero_is_a_success(language: ModuleLanguage, kit: Kit) -> None:
    """A program may end itself; a value that it printed counts."""
    result = await run(language, kit, printing("__OUT__:3\n", imports=EXIT, then="(call $exit (i32.const 0))"))
    assert (result.ok, result.value) == (True, 3)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("unreachable", "Trap", "`unreachable` instruction"),
        ("(i32.div_s (i32.const 1) (i32.const 0))", "Trap", "divide by zero"),
        ("(i32.load (i32.const 0))", "Trap", "out of bounds memory access"),
        ("(call $again)", "RecursionError", "nested too deep"),
    ],
)
async def test_a_trap_is_the_programs_failure(
    language: ModuleLanguage, kit: Kit, body: str, kind: str, says: str
) -> None:
    """A trap is named, and the host goes on."""
    wat = f'(module (memory 0) (func $again (export "_start") (result i32) {body}))'
    result = await run(language, kit, wat)
    assert isinstance(result.error, CodeError)
    assert result.error.kind == kind
    assert says in str(result.error)
    assert result.error.backend == "wasm"


SPIN = '(module (func $s (loop (br 0))) {} (func (export "_start") (call $s)))'


@pytest.mark.parametrize("start", ["", "(start $s)"])
async def test_an_endless_loop_ends_at_the_deadline(language: ModuleLanguage, kit: Kit, start: str) -> None:
    """In the start function, too, which runs before anything else."""
    result = await run(language, kit, SPIN.format(start), timeout=0.1)
    assert isinstance(result.error, CodeTimeoutError)
    assert result.error.details == {"timeout": 0.1}


@pytest.mark.parametrize("start", ["", "(start $s)"])
async def test_the_cpu_budget_ends_an_endless_loop(language: ModuleLanguage, kit: Kit, start: str) -> None:
    """Fuel counts instructions, so the end comes without a clock."""
    result = await run(language, kit, SPIN.format(start), limits=Limits(cpu_ms=5))
    assert isinstance(result.error, LimitExceededError)
    assert result.error.details["resource"] == "cpu"
    assert result.backend.details["fuel_used"] > 0


async def test_a_start_function_may_trap(language: ModuleLanguage, kit: Kit) -> None:
    """Such a trap is the program's failure, not a bad module."""
    result = await run(language, kit, '(module (func $s unreachable) (start $s) (func (export "_start")))')
    assert isinstance(result.error, CodeError)


GROW = """(module (memory (export "memory") 1)
  (func (export "_start") (result i32)
    (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
    (memory.size)))"""


MIB = 1 << 20


@pytest.mark.full
@pytest.mark.parametrize("cap", [None, 256])
@pytest.mark.parametrize("asked", [0, 10 * PAGE_BYTES + 5, 16 * MIB, 40 * MIB, 512 * MIB])
@pytest.mark.parametrize("configured", [PAGE_BYTES, 16 * MIB, 64 * MIB, None])
async def test_memory_is_bounded(kit: Kit, configured: int | None, asked: int, cap: int | None) -> None:
    """A memory grows exactly to the lowest of the setting, the request and the cap in pages, whatever these are."""
    config = WasmConfig() if configured is None else WasmConfig(memory_bytes=configured)
    language = ModuleLanguage(config, max_memory_pages=cap)
    bounds = [config.memory_bytes, asked or config.memory_bytes, (cap or 65_536) * PAGE_BYTES]
    pages = min(bounds) // PAGE_BYTES
    try:
        result = await run(language, kit, GROW, limits=Limits(memory_bytes=asked))
    finally:
        await language.aclose()
    assert result.value == pages
    assert result.backend.details["max_memory_pages"] == pages
    assert result.backend.details["memory_used"] == pages * PAGE_BYTES
    assert result.limits_enforced.memory


async def test_a_second_memory_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """The limit is for all that a module uses, and holds for one memory."""
    with pytest.raises(InvalidRequestError, match="may have one"):
        await run(language, kit, '(module (memory 1) (memory 1) (func (export "_start")))')


async def test_tables_are_bounded(language: ModuleLanguage, kit: Kit) -> None:
    """Tables are memory of the host, too: all of them together grow to an eighth of the limit at most."""
    grow = """(loop $more (br_if $more (i32.ne (table.grow $%d (ref.null func) (i32.const 4096)) (i32.const -1))))
      (local.set $sum (i32.add (local.get $sum) (table.size $%d)))"""
    tables = "".join(f"(table $t{n} 1 funcref)" for n in range(8))
    body = "".join(grow.replace("$%d", f"$t{n}") for n in range(8))
    wat = f'(module {tables} (func (export "_start") (result i32) (local $sum i32) {body} (local.get $sum)))'
    limit = 256 * MIB
    result = await run(language, kit, wat, limits=Limits(memory_bytes=limit))
    assert 0 < result.value * 8 <= limit // 8
    tables = "".join(f"(table $t{n} 1 funcref)" for n in range(9))
    with pytest.raises(InvalidRequestError, match="tables"):
        await run(language, kit, f'(module {tables} (func (export "_start")))')


async def test_less_than_a_page_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """A limit that no memory could have is not silently ignored."""
    with pytest.raises(InvalidRequestError, match="less than one"):
        await run(language, kit, GROW, limits=Limits(memory_bytes=PAGE_BYTES - 1))


async def test_a_module_that_starts_too_large_is_refused(language: ModuleLanguage, kit: Kit) -> None:
    """Its first memory must be within the limit."""
    with pytest.raises(InvalidRequestError, match="more memory from the start than the 4096 pages"):
        await run(language, kit, '(module (memory 5000) (func (export "_start")))')


async def test_a_stopped_tool_call_does_not_hold_up_the_end(language: ModuleLanguage, kit: Kit) -> None:
    """At the deadline a call that is under way is cancelled."""
    result = await run(language, kit, calling('{"id": "kit:wait"}'), timeout=0.2)
    assert isinstance(result.error, CodeTimeoutError)
    assert kit.stopped == ["wait"]


async def test_cancelling_stops_the_module(language: ModuleLanguage, kit: Kit) -> None:
    """Cancelling the run also stops its tool calls."""
    task = asyncio.create_task(run(language, kit, calling('{"id": "kit:wait"}')))
    await reached(kit.begun, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.stopped == ["wait"]


async def test_closing_stops_what_runs(kit: Kit) -> None:
    """A run that was under way ends with an error that says so."""
    language = ModuleLanguage(WasmConfig())
    task = asyncio.create_task(run(language, kit, calling('{"id": "kit:wait"}')))
    await reached(kit.begun, task)
    await language.aclose()
    with pytest.raises(ClosedError, match="its sandbox was closed"):
        await task


async def test_many_modules_run_at_once(language: ModuleLanguage, kit: Kit) -> None:
    """Each has a memory, a clock and a way to the tools of its own."""
    requests = [calling(json.dumps({"id": "kit:meet", "args": {"guests": 8}}))] * 8
    results = await asyncio.gather(*(run(language, kit, wat) for wat in requests))
    assert all(result.ok for result in results)
    assert kit.most_at_once == 8


async def test_what_is_enforced_is_told(language: ModuleLanguage, kit: Kit) -> None:
    """Everything but a rate of CPU; tool calls only where the gateway counts them."""
    result = await run(language, kit, returning("i32.const 1"))
    held = result.limits_enforced.to_dict()
    assert {name for name, value in held.items() if not value} == {"cpus"}
    assert enforced_by_wasm(kit.request("x")) == result.limits_enforced


async def test_it_is_available(language: ModuleLanguage) -> None:
    """wasmtime is all it needs."""
    available = await language.check()
    assert available.ok
    assert available.version.startswith("wasmtime ")
