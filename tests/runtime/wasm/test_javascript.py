"""JavaScript programs in the embedded sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.wasm.language_kit import Kit
from tests.waiting import reached
from wasmtime import Module, wat2wasm

from toolexec.code.limits import Limits
from toolexec.code.types import Output
from toolexec.errors import (
    ClosedError,
    CodeError,
    CodeTimeoutError,
    ConfigurationError,
    InvalidRequestError,
    LimitExceededError,
    SandboxUnavailableError,
    ToolExecError,
)
from toolexec.runtime.wasm import javascript, module_source
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.enforced import enforced_by_wasm
from toolexec.runtime.wasm.engine import new_engine
from toolexec.runtime.wasm.javascript import JavaScriptLanguage
from toolexec.runtime.wasm.module_source import load_module

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache for all tests here: the interpreter is compiled once."""
    return tmp_path_factory.mktemp("cache") / "sandbox"


@pytest.fixture
async def kit() -> Kit:
    return Kit()


@pytest.fixture
async def language(folder: Path) -> AsyncIterator[JavaScriptLanguage]:
    made = JavaScriptLanguage(WasmConfig(cache_folder=folder, memory_bytes=192 << 20))
    yield made
    await made.aclose()


async def run(language: JavaScriptLanguage, kit: Kit, code: str, **fields: Any) -> Any:
    """The result of a program."""
    return await language.execute(kit.request(code, **fields))


async def value(language: JavaScriptLanguage, kit: Kit, code: str, **fields: Any) -> Any:
    """The value of a program that must succeed."""
    return (await run(language, kit, code, **fields)).raise_for_error().value


async def failure(language: JavaScriptLanguage, kit: Kit, code: str, **fields: Any) -> CodeError:
    """Return a program's failure as its author sees it."""
    result = await run(language, kit, code, **fields)
    assert isinstance(result.error, CodeError)
    return result.error


# -- the value ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("return 5", 5),
        ("return null; 7", None),
        ("if (true) return 1;\n2", 1),
        ("if (false) return 1;\n2", 2),
        ("let __out = 7; 8", 7),
        ("__out = [1]; const rest = 2;", [1]),
        ("const a = 1; a + 1", 2),
        ("const a = 1; a + 1; // done", 2),
        ("const a = [1, 2];\na\n  .map((x) => x * 2)\n  .reverse()", [4, 2]),
        ("const a = 1\n+ 2", None),
        ("// first\n[1, 2].map(x => x + 1)", [2, 3]),
        ("const s = `a;\nb`; // x; y\ns // z", "a;\nb"),
        ("({\n  a: 1,\n  b: [2],\n})", {"a": 1, "b": [2]}),
        ("await Promise.resolve(3)", 3),
        ("async function main() { return 4 }\nmain()", 4),
        ("(async () => 6)()", 6),
        ("function f() { return 1 }", None),
        ("for (const i of [1]) { i }", None),
        ("'use strict';\n9", 9),
        ("", None),
    ],
)
async def test_the_value_of_a_program(language: JavaScriptLanguage, kit: Kit, code: str, expected: Any) -> None:
    """`return` comes before `__out`, and that before a final expression; without any of them it is null."""
    assert await value(language, kit, f"{code}\n" if code else ";") == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("({a: undefined, b: null, c: [undefined], d: true})", {"b": None, "c": [None], "d": True}),
        ("2n ** 70n", 2**70),
        ("[1.5, -0, 1e21]", [1.5, 0, 1e21]),
        ("new Date(0)", "1970-01-01T00:00:00.000Z"),
        ("[new Map([['a', 1]]), new Set([1]), new Uint8Array(2)]", [{"a": 1}, [1], [0, 0]]),
        ("[new Number(1), new String('x'), new Boolean(false)]", [1, "x", False]),
        ("new RangeError('far')", {"name": "RangeError", "message": "far"}),
        ("`${tools} ${tools.math} ${tools.math.add}`", "tools tools.math tools.math.add"),
    ],
)
async def test_values_have_the_json_that_one_expects(
    language: JavaScriptLanguage, kit: Kit, code: str, expected: Any
) -> None:
    """Big integers keep all digits; dates, maps and sets have a form."""
    assert await value(language, kit, code) == expected


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("NaN", "the value at its root is NaN"),
        ("({a: [1, 1/0]})", "the value at /a/1 is Infinity"),
        ("() => 1", "is a function, which is not JSON"),
        ("({p: Promise.resolve(1)})", r"a promise \(await it\)"),
        ("new ArrayBuffer(1)", "a buffer"),
        ("const o = {}; o.o = o; o", "more than 120 levels, or contains itself"),
        ("({toJSON() { throw new Error('never') }})", "never"),
    ],
)
async def test_a_value_that_is_not_json_fails(language: JavaScriptLanguage, kit: Kit, code: str, says: str) -> None:
    """The error says where it is and what to do."""
    error = await failure(language, kit, code)
    with pytest.raises(CodeError, match=says):
        raise error


async def test_digits_of_results_are_kept(language: JavaScriptLanguage, kit: Kit) -> None:
    """An integer that a number cannot hold arrives as a BigInt, and goes on with all digits."""
    code = "const n = await tools.kit.add({a: 9007199254740993n, b: 10n}); [typeof n, n, await tools.kit.add({a: 1, b: 2})]"
    assert await value(language, kit, code) == ["bigint", 9007199254741003, 3]


# -- tools ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "tools.kit.add({a: 1, b: 2})",
        "tools.run('kit:add', {a: 1, b: 2})",
        "tools.run_tool('kit:add', {a: 1, b: 2})",
        "tools.runTool('kit:add', {a: 1, b: 2}, {timeout: 5})",
        "tools.runChain([{toolId: 'kit:add', args: {a: 1, b: 2}}])",
        "tools.run_chain([{tool_id: 'kit:add', args: {a: 0, b: 1}}, {tool: 'kit:add', args: {a: 1, b: 2}}])",
    ],
)
async def test_tools_can_be_called_in_many_ways(language: JavaScriptLanguage, kit: Kit, call: str) -> None:
    """All names lead to the one gateway."""
    tools = kit.tools()
    assert await value(language, kit, f"await {call}", tools=tools) == 3
    assert tools.tool_calls()[-1].value == 3


async def test_calls_made_together_run_together(language: JavaScriptLanguage, kit: Kit) -> None:
    """`Promise.all` waits for all of them at once."""
    code = "await Promise.all(Array.from({length: 20}, () => tools.kit.meet({guests: 20})))"
    assert await value(language, kit, code) == [20] * 20


async def test_calls_that_nobody_awaits_are_finished(language: JavaScriptLanguage, kit: Kit) -> None:
    """Such calls are made, and may make others."""
    tools = kit.tools()
    assert (
        await value(language, kit, "tools.kit.add({a:1,b:2}).then(() => tools.kit.add({a:3,b:4})); 9", tools=tools) == 9
    )
    assert [call.value for call in tools.tool_calls()] == [3, 7]


async def test_tools_can_be_looked_up(language: JavaScriptLanguage, kit: Kit) -> None:
    """Search, description, examples and namespaces are there under both kinds of names."""
    code = """
    const [found] = await tools.search("add numbers", 1);
    const [same] = await tools.search_tools("add numbers", 1);
    const doc = await tools.describe("kit:add");
    [found.id, same.id, typeof doc, await tools.listNamespaces(), await tools.list_tool_examples("kit:add")]"""
    assert await value(language, kit, code) == ["kit:add", "kit:add", "object", ["kit"], []]


async def test_a_failed_call_can_be_caught(language: JavaScriptLanguage, kit: Kit) -> None:
    """A ToolError has the fields that the error has on the host."""
    code = """
    try { await tools.kit.fail(); } catch (error) {
      return [error instanceof ToolError, error.name, error.code, error.toolId, error.retryable, error.message, error.details];
    }"""
    kind, name, error_code, tool_id, retryable, message, details = await value(language, kit, code)
    assert (kind, name, error_code, tool_id, retryable) == (True, "ToolError", "handler_failed", "kit:fail", False)
    assert "no luck today" in message
    assert isinstance(details, dict)


async def test_a_failed_call_that_nobody_catches_ends_the_program(language: JavaScriptLanguage, kit: Kit) -> None:
    """The error is at the line of the call, and its cause is the tool's own."""
    error = await failure(language, kit, "const a = 1;\nconst b = 2; await tools.kit.fail();")
    assert (error.line, error.column, error.source) == (2, 30, "const b = 2; await tools.kit.fail();")
    assert isinstance(error.__cause__, ToolExecError)
    assert (error.__cause__.code, error.tool_id) == ("handler_failed", "kit:fail")


async def test_a_failed_chain_can_be_caught(language: JavaScriptLanguage, kit: Kit) -> None:
    """The error is that of the step that failed."""
    code = "try { await tools.runChain([{id: 'kit:fail'}]) } catch (e) { return [e.code, e.toolId] }"
    assert await value(language, kit, code) == ["handler_failed", "kit:fail"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("call", "error_code"),
    [
        ("tools.kit.nothing()", "tool_not_found"),
        ("tools.kit.add({a: 'x', b: 1})", "validation_input"),
        ("tools.kit.add({a: () => 1})", "validation_input"),
        ("tools.kit.add({a: 'x'.repeat(17 << 20)})", "protocol"),
    ],
)
async def test_bad_calls_are_refused(language: JavaScriptLanguage, kit: Kit, call: str, error_code: str) -> None:
    """Each is a ToolError with a code."""
    assert await value(language, kit, f"try {{ await {call} }} catch (e) {{ return e.code }}") == error_code


@pytest.mark.parametrize("call", ["tools.kit.add(1)", "tools.kit.add({}, {})", "tools.kit.add(null)"])
async def test_tools_take_one_object(language: JavaScriptLanguage, kit: Kit, call: str) -> None:
    """The error shows how to write the call."""
    assert "tools.kit.add({name: value})" in str(await failure(language, kit, call))


async def test_tools_are_no_promises(language: JavaScriptLanguage, kit: Kit) -> None:
    """To await a namespace, or to show it, makes no call."""
    tools = kit.tools()
    code = "await tools; await tools.kit; console.log(tools.kit); [typeof tools.kit.then, `${typeof tools[Symbol.iterator]}`]"
    assert await value(language, kit, code, tools=tools) == ["undefined", "undefined"]
    assert tools.calls_made == 0


async def test_the_cap_on_calls_holds(language: JavaScriptLanguage, kit: Kit) -> None:
    """A program that swallows all errors gets no further."""
    code = "let n = 0; for (let i = 0; i < 9; i++) { try { await tools.kit.add({a: 1, b: 1}); n++ } catch {} } n"
    assert await value(language, kit, code, tools=kit.tools(max_tool_calls=3)) == 3


async def test_the_allow_list_holds(language: JavaScriptLanguage, kit: Kit) -> None:
    """A tool that is not on it cannot be called, nor found."""
    code = "try { await tools.kit.add({a:1,b:2}) } catch (e) { return [e.code, (await tools.search('add')).length] }"
    assert await value(language, kit, code, tools=kit.tools(allowed=("kit:fail",))) == ["tool_not_allowed", 0]


@pytest.mark.full
async def test_a_large_text_is_a_text(language: JavaScriptLanguage, kit: Kit) -> None:
    """The program has it as it would have a short one."""
    code = "const h = await tools.kit.big({size: 2000000}); console.log(h.length, h.slice(0, 3)); h"
    result = await run(language, kit, code)
    assert result.stdout == "2000000 xxx\n"
    assert result.value == "x" * 2_000_000


# -- errors ---------------------------------------------------------------------------------------------------------


async def test_an_error_has_the_authors_line(language: JavaScriptLanguage, kit: Kit) -> None:
    """Line, column, the line itself and the trace are the program's own."""
    error = await failure(language, kit, "const x = null;\nfunction f() {\n  return x.y;\n}\nf();")
    assert (error.kind, error.line, error.source) == ("TypeError", 3, "  return x.y;")
    assert error.traceback.splitlines() == ["    at f (<code>:3:12)", "    at <anonymous> (<code>:5:1)"]


@pytest.mark.parametrize(
    ("code", "line", "column"),
    [
        ("const x = null;\n\nconst z = x.y;", 3, 13),
        ("const x = {};\nreturn x.y\n  .z;", 3, 4),
        ("const x = {};\n\nconst { a } = x.list[0];", 3, 22),
        ("const x = {};\nx.y['some key'] = 1;", 2, 6),
        ("\n\nconst a = 5;\na = 6;\n", 4, 0),
        ("\n\nJSON.parse('{');", 3, 6),
    ],
)
async def test_errors_are_found_where_quickjs_has_no_position(
    language: JavaScriptLanguage, kit: Kit, code: str, line: int, column: int
) -> None:
    """The place of a property is looked for, where only one before it is known."""
    error = await failure(language, kit, code)
    assert (error.line, error.source) == (line, code.splitlines()[line - 1])
    assert error.column == column


async def test_columns_of_the_first_line_are_the_authors(language: JavaScriptLanguage, kit: Kit) -> None:
    """The prologue before a program does not count."""
    error = await failure(language, kit, "let a = 1; nothing")
    assert (error.kind, error.line) == ("ReferenceError", 1)
    assert error.column in (11, 12)  # QuickJS has some positions from the token before


async def test_a_syntax_error_has_its_line(language: JavaScriptLanguage, kit: Kit) -> None:
    """Nothing has run."""
    result = await run(language, kit, "console.log('ran');\nlet 5 = a;")
    assert isinstance(result.error, CodeError)
    error = result.error
    assert (error.kind, error.line, error.source, result.stdout) == ("SyntaxError", 2, "let 5 = a;", "")


@pytest.mark.full
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("throw 5", "number: 5"),
        ("throw {a: 1}", "object: { a: 1 }"),
        ("throw null", "object: null"),
        ("throw new Error('')", "Error"),
        ("throw Object.assign(new Error(), {get name() { throw 1 }})", "number: 1"),
        ("const e = new Error(); Object.defineProperty(e, 'stack', {get() { throw 1 }}); throw e", "cannot be shown"),
        ("setTimeout(() => { throw new Error('late') }); await new Promise(() => {})", "Error: late"),
        ("await new Promise(() => {})", "waits for something that can never happen"),
        ("import x from 'fs'", "SyntaxError"),
        ("await import('fs')", "fs"),
        ("Promise.prototype.then = 1; await 1", "not a function"),
    ],
)
async def test_whatever_is_thrown_is_told(language: JavaScriptLanguage, kit: Kit, code: str, says: str) -> None:
    """Odd errors and hostile ones are failures like any other."""
    assert says in str(await failure(language, kit, code))


async def test_a_forged_result_is_only_the_programs_own(language: JavaScriptLanguage, kit: Kit) -> None:
    """Replaced intrinsics change nothing about how a result is told."""
    code = "JSON.stringify = () => 'x'; JSON.parse = null; Array.prototype.push = null; String = null; return {a: 1}"
    result = await run(language, kit, code)
    assert result.ok is False or result.value == {"a": 1}
    assert await value(language, kit, "1") == 1


# -- prints ---------------------------------------------------------------------------------------------------------


async def test_prints_are_heard_while_the_program_runs(language: JavaScriptLanguage, kit: Kit) -> None:
    """`console` has both streams, `println` writes to stdout."""
    heard: list[tuple[str, str]] = []
    output = Output(tell=lambda stream, text: heard.append((stream, text)))
    result = await run(
        language, kit, "console.log('a', 1); console.error('b'); println('c'); tools.println('d')", output=output
    )
    assert heard == [("stdout", "a 1\n"), ("stderr", "b\n"), ("stdout", "c\n"), ("stdout", "d\n")]
    assert (result.stdout, result.stderr) == ("a 1\nc\nd\n", "b\n")


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ("{a: [1, 'x', {b: null}], f() {}}", '{ a: [ 1, "x", { b: null } ], f: [Function: f] }'),
        ("[], {}, undefined, 5n, Symbol('s')", "[] {} undefined 5n Symbol(s)"),
        ("new Map([['k', new Set([1])]]), new Error('bad'), /x/g", "Map { k: [ 1 ] } Error: bad /x/g"),
        ("new Date(0), new Date(NaN), Promise.resolve()", "1970-01-01T00:00:00.000Z Invalid Date Promise {} (not awaited)"),
        ("[[[[[[1]]]]]], {a:{b:{c:{d:{e:{}}}}}}", "[ [ [ [ [ [Array] ] ] ] ] ] { a: { b: { c: { d: { e: [Object] } } } } }"),
        ("(() => { const o = {}; o.me = o; return o })()", "{ me: [Circular] }"),
        ("Array.from({length: 102}, () => 1).length, new Array(101).fill(1)", "102 [ " + "1, " * 100 + "... 1 more ]"),
        ("new (class Point { x = 1 })(), () => 1", "Point { x: 1 } [Function: anonymous]"),
    ],
)  # fmt: skip
async def test_values_are_printed_readably(language: JavaScriptLanguage, kit: Kit, values: str, line: str) -> None:
    """Objects are shown, to a depth and a length."""
    assert (await run(language, kit, f"console.log({values});")).stdout == f"{line}\n"


async def test_console_assert(language: JavaScriptLanguage, kit: Kit) -> None:
    """Only what does not hold is told."""
    result = await run(language, kit, "console.assert(true, 'a'); console.assert(false, 'b');")
    assert result.stderr == "Assertion failed b\n"


async def test_a_flood_of_prints_is_cut(language: JavaScriptLanguage, kit: Kit) -> None:
    """Kept output is bounded, and the program ends by itself."""
    code = "for (let i = 0; i < 40; i++) console.log('x'.repeat(100000)); 1"
    result = await run(language, kit, code, output=Output(limit=1000))
    assert result.value == 1
    assert len(result.stdout) < 1200


# -- what is given --------------------------------------------------------------------------------------------------


async def test_args_env_and_stdin(language: JavaScriptLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program receives the request's values, and nothing of the host's environment."""
    monkeypatch.setenv("HOST_SECRET", "hidden")
    code = "[args, env, stdin]"
    given = {"args": ["a"], "env": {"K": "v"}, "stdin": "é\n".encode()}
    assert await value(language, kit, code, **given) == [["a"], {"K": "v"}, "é\n"]
    assert await value(language, kit, code) == [[], {}, ""]


async def test_files_come_in_and_go_out(language: JavaScriptLanguage, kit: Kit) -> None:
    """New and changed files are handed back; bytes are kept."""
    code = """
    files.write("out/b.bin", files.readBytes("a.bin").map((x) => x + 1));
    files.write("text.txt", files.read("text.txt") + "!");
    files.remove("gone.txt");
    files.list()"""
    given = {"a.bin": bytes(range(200)), "text.txt": "é".encode(), "gone.txt": b"", "same.txt": b"same"}
    result = await run(language, kit, code, files=given)
    assert result.raise_for_error().value == ["a.bin", "out/b.bin", "same.txt", "text.txt"]
    assert result.files == {"out/b.bin": bytes(range(1, 201)), "text.txt": "é!".encode()}


@pytest.mark.full
@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("files.read('missing')", "there is no file 'missing'"),
        ("files.read('binary')", "use files.readBytes"),
        ("files.write('../up', 'x')", "segment"),
        ("files.write('/etc/passwd', 'x')", "no path for a file"),
        ("files.write('big', 'x'.repeat(2000))", "disk quota"),
        ("files.write('a', 5)", "as text or as a Uint8Array"),
        ("files.write('a\\ud800', 'x')", "half a character is not a name"),
        ("for (let i = 0; i < 1100; i++) files.write(`f${i}`, '')", "1024 files at most"),
    ],
)
async def test_files_have_bounds(language: JavaScriptLanguage, kit: Kit, code: str, says: str) -> None:
    """No path leads out, and what is written has a quota."""
    given = {"files": {"binary": b"\xff"}, "limits": Limits(disk_bytes=1000)}
    assert says in str(await failure(language, kit, code, **given))


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("files.write('a/b', '1'); files.remove('a/b'); files.write('a', '2')", {"a": b"2"}),
        ("files.write('a', 'x'.repeat(900)); files.write('a', 'y'.repeat(900))", {"a": b"y" * 900}),
        (
            "files.write('a', '1'); try { files.write('a', 'x'.repeat(2000)) } catch (e) {} files.write('b', '2')",
            {"a": b"1", "b": b"2"},
        ),
        (
            "files.write('a', '1'); try { files.write('a/b', '2') } catch (e) {} files.write('c/d', '3')",
            {"a": b"1", "c/d": b"3"},
        ),
    ],
)
async def test_a_quota_follows_what_is_there(
    language: JavaScriptLanguage, kit: Kit, code: str, files: dict[str, bytes]
) -> None:
    """Replacing or removing a file makes room, and a write that is refused changes nothing."""
    result = await run(language, kit, code, limits=Limits(disk_bytes=1000))
    assert result.error is None
    assert result.files == files


async def test_given_files_must_fit(language: JavaScriptLanguage, kit: Kit) -> None:
    """A path that leads elsewhere is a bad request."""
    with pytest.raises(InvalidRequestError, match="no path"):
        await run(language, kit, "1", files={"../x": b""})


async def test_nothing_of_the_host_is_there(language: JavaScriptLanguage, kit: Kit) -> None:
    """No modules, processes, network, and no way past the tools."""
    names = [
        "process",
        "require",
        "fetch",
        "XMLHttpRequest",
        "WebSocket",
        "std",
        "os",
        "Deno",
        "exchange",
        "post",
        "file",
    ]
    code = "[" + ",".join(f"typeof {name}" for name in [*names, "__toolexec_secret"]) + "]"
    assert set(await value(language, kit, code)) == {"undefined"}


async def test_runs_do_not_see_each_other(language: JavaScriptLanguage, kit: Kit) -> None:
    """Each has a fresh context, whatever the one before did to its own."""
    await run(language, kit, "globalThis.left = 1; Array.prototype.map = null; Object.freeze(Object.prototype);")
    assert await value(language, kit, "[typeof left, [1].map((x) => x + 1)]") == ["undefined", [2]]


# -- time and chance ------------------------------------------------------------------------------------------------


async def test_a_run_can_be_replayed(language: JavaScriptLanguage, kit: Kit) -> None:
    """With `now` and `seed` clock and random numbers are the same."""
    code = "[new Date().toISOString().slice(0, 19), Math.random(), Math.random(), performance.now() < 50]"
    first = await value(language, kit, code, now=1e9, seed=1)
    assert first[0] == "2001-09-09T01:46:40"
    assert await value(language, kit, code, now=1e9, seed=1) == first
    assert (await value(language, kit, code, now=1e9, seed=2))[1] != first[1]
    assert await value(language, kit, "Math.random()") != await value(language, kit, "Math.random()")


async def test_random_numbers_are_spread(language: JavaScriptLanguage, kit: Kit) -> None:
    """Random numbers are from 0 to 1, with their mean in the middle."""
    code = "let s = 0, ok = true; for (let i = 0; i < 9999; i++) { const r = Math.random(); s += r; ok &&= r >= 0 && r < 1 }\n[ok, s / 9999]"
    within, mean = await value(language, kit, code, seed=3)
    assert within
    assert 0.48 < mean < 0.52


async def test_timers(language: JavaScriptLanguage, kit: Kit) -> None:
    """Timers fire in their order, can be cleared, and end with the program."""
    code = """
    const seen = [];
    const never = setTimeout(() => seen.push("never"), 1);
    clearTimeout(never);
    setTimeout((x) => seen.push(x), 2000, "b");
    setTimeout(() => seen.push("a"), 1000);
    const every = setInterval(() => seen.push("i"), 700);
    await new Promise((done) => setTimeout(done, 2100));
    clearInterval(every);
    setTimeout(() => console.log("too late"), 5000);
    seen.join("")"""
    result = await run(language, kit, code, now=0.0)
    assert (result.raise_for_error().value, result.stdout) == ("iaibi", "")


async def test_timers_and_calls_go_together(language: JavaScriptLanguage, kit: Kit) -> None:
    """A timer fires while a call is under way."""
    code = "await Promise.race([tools.kit.wait(), new Promise((done) => setTimeout(done, 10, 'timer'))])"
    task = asyncio.create_task(run(language, kit, f"const r = {code}; throw r"))
    result = await task
    assert "string: timer" in str(result.error)
    assert kit.stopped == ["wait"]


async def test_timers_need_a_function(language: JavaScriptLanguage, kit: Kit) -> None:
    """A text is not evaluated."""
    assert "a timer calls a function" in str(await failure(language, kit, "setTimeout('1')"))


async def test_a_clock_that_cannot_be_is_refused(language: JavaScriptLanguage, kit: Kit) -> None:
    """A time before 1970 is a bad request."""
    with pytest.raises(InvalidRequestError, match="seconds since 1970"):
        await run(language, kit, "1", now=-5.0)


# -- how it is stopped ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "while (true) {}",
        "await new Promise((done) => setTimeout(done, 3600000))",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "await tools.kit.wait()",
        "const go = () => Promise.resolve().then(go); await go()",
        "while (true) { try { while (true) {} } catch {} finally { continue } }",
        "setInterval(() => {}, 0); await new Promise(() => {})",
        "await new Promise((done) => setTimeout(done, Infinity))",
    ],
)
async def test_the_deadline_ends_everything(language: JavaScriptLanguage, kit: Kit, code: str) -> None:
    """Loops, sleeps, calls, and regular expressions that backtrack; what was printed is there."""
    await value(language, kit, "1")
    result = await run(language, kit, f"console.log('so far');\n{code}", timeout=0.3)
    assert isinstance(result.error, CodeTimeoutError)
    assert result.stdout == "so far\n"


async def test_the_cpu_budget_ends_a_loop(language: JavaScriptLanguage, kit: Kit) -> None:
    """The budget counts instructions, not time."""
    result = await run(language, kit, "while (true) {}", limits=Limits(cpu_ms=30))
    assert isinstance(result.error, LimitExceededError)
    assert result.error.details["resource"] == "cpu"


@pytest.mark.full
@pytest.mark.parametrize(
    "code",
    [
        "const a = []; while (true) a.push(new Array(1000).fill(0));",
        "new ArrayBuffer(1 << 30)",
        "'x'.repeat(1 << 29)",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, {i});",
    ],
)
async def test_memory_is_bounded(language: JavaScriptLanguage, kit: Kit, code: str) -> None:
    """A program that wants more ends, and the next one runs."""
    result = await run(language, kit, code, limits=Limits(memory_bytes=16 << 20))
    assert isinstance(result.error, LimitExceededError)
    assert result.error.details["resource"] == "memory"
    assert result.backend.details["memory_used"] <= 16 << 20
    assert await value(language, kit, "1") == 1


async def test_too_little_memory_is_told(language: JavaScriptLanguage, kit: Kit) -> None:
    """An interpreter needs more than some kilobytes."""
    result = await run(language, kit, "1", limits=Limits(memory_bytes=1000))
    assert isinstance(result.error, LimitExceededError | CodeError)


@pytest.mark.parametrize("code", ["function r() { r() } r()", "JSON.parse('['.repeat(200000))"])
async def test_deep_recursion_ends_the_program(language: JavaScriptLanguage, kit: Kit, code: str) -> None:
    """The stack has a bound, too."""
    assert (await failure(language, kit, code)).kind == "RecursionError"


async def test_cancelling_stops_the_program(language: JavaScriptLanguage, kit: Kit) -> None:
    """Cancelling the run also stops its tool calls."""
    task = asyncio.create_task(run(language, kit, "await tools.kit.wait()"))
    await reached(kit.begun, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.stopped == ["wait"]


async def test_closing_stops_the_program(language: JavaScriptLanguage, kit: Kit) -> None:
    """A run that was under way ends with an error that says so; a later one starts again."""
    task = asyncio.create_task(run(language, kit, "await tools.kit.wait()"))
    await reached(kit.begun, task)
    await language.aclose()
    with pytest.raises(ClosedError, match="its sandbox was closed"):
        await task
    assert await value(language, kit, "1") == 1


async def test_many_programs_run_at_once(language: JavaScriptLanguage, kit: Kit) -> None:
    """Each has a context of its own."""
    code = "globalThis.n = args[0]; await tools.kit.meet({guests: 16}); n"
    runs = (value(language, kit, code, args=[str(i)]) for i in range(16))
    assert await asyncio.gather(*runs) == [str(i) for i in range(16)]


async def test_what_is_enforced_is_told(language: JavaScriptLanguage, kit: Kit) -> None:
    """Everything but a rate of CPU."""
    result = await run(language, kit, "1")
    assert {name for name, held in result.limits_enforced.to_dict().items() if not held} == {"cpus"}
    assert enforced_by_wasm(kit.request("x")) == result.limits_enforced
    assert result.backend.isolation == "wasm"


# -- the interpreter ------------------------------------------------------------------------------------------------


async def test_it_is_available(language: JavaScriptLanguage) -> None:
    """The package of the interpreter is installed."""
    available = await language.check()
    assert (available.ok, available.version) == (True, f"quickjs-rs {version('quickjs-rs')}")


async def test_without_the_package(language: JavaScriptLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr(javascript, "find_spec", lambda _name: None)
    available = await language.check()
    assert (available.ok, available.remedy) == (False, "pip install 'toolexec[javascript]'")
    with pytest.raises(SandboxUnavailableError, match=r"toolexec\[javascript\]"):
        await run(language, kit, "1")


async def test_a_release_that_does_not_fit(
    folder: Path, kit: Kit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An interpreter with other functions is not run."""
    (tmp_path / "_guest.wasm").write_bytes(wat2wasm('(module (func (export "eval_code") (param i32)))'))
    monkeypatch.setattr(javascript, "_interpreter", lambda: tmp_path / "_guest.wasm")
    language = JavaScriptLanguage(WasmConfig(cache_folder=folder))
    with pytest.raises(SandboxUnavailableError, match=r"does not fit .*eval_code.*pip install quickjs-rs==0\.2\.6"):
        await run(language, kit, "1")


TINY = bytes(wat2wasm('(module (func (export "f")))'))


def cached(folder: Path) -> list[Path]:
    """The compiled modules beside *directory*."""
    return sorted(folder.with_name(f"{folder.name}-modules").glob("*.cwasm"))


def test_a_compiled_module_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first process compiles; the directory is for its owner alone."""
    folder = tmp_path / "sandbox"
    load_module(new_engine(), TINY, folder)
    (kept,) = cached(folder)
    assert stat.S_IMODE(os.stat(kept.parent).st_mode) == 0o700
    monkeypatch.setattr(module_source, "_compile", lambda *_: pytest.fail("compiled again"))
    assert [item.name for item in load_module(new_engine(), TINY, folder).exports] == ["f"]


def test_a_damaged_module_is_made_again(tmp_path: Path) -> None:
    """A module that differs from the stored one is never loaded."""
    folder = tmp_path / "sandbox"
    load_module(new_engine(), TINY, folder)
    (kept,) = cached(folder)
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-8] + b"tampered")
    assert isinstance(load_module(new_engine(), TINY, folder), Module)
    assert kept.read_bytes()[-8:] == whole[-8:]


def test_a_module_of_another_machine_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that wasmtime refuses is compiled again."""
    folder = tmp_path / "sandbox"
    with monkeypatch.context() as patch:
        patch.setattr(Module, "serialize", lambda _: b"of another machine")
        load_module(new_engine(), TINY, folder)
    assert isinstance(load_module(new_engine(), TINY, folder), Module)
    assert cached(folder)[0].stat().st_size > 100


def test_old_modules_are_forgotten(tmp_path: Path) -> None:
    """The cache does not grow for ever."""
    folder = tmp_path / "sandbox"
    for number in range(6):
        load_module(new_engine(), bytes(wat2wasm(f"(module (func (result i32) i32.const {number}))")), folder)
    assert len(cached(folder)) == 4


def test_without_a_folder_it_works_all_the_same(tmp_path: Path) -> None:
    """A module without a cache directory is compiled in memory."""
    (tmp_path / "sandbox-modules").write_text("no folder")
    assert isinstance(load_module(new_engine(), TINY, tmp_path / "sandbox"), Module)


def test_a_broken_module_is_told(tmp_path: Path) -> None:
    """A damaged installation is named as such."""
    with pytest.raises(ConfigurationError, match="reinstall its package"):
        load_module(new_engine(), TINY[:-2], tmp_path / "sandbox")


def test_results_that_are_none() -> None:
    """Whatever a guest sends, it is a payload in the end."""
    for text in ("", "[1]", "{broken", json.dumps("text")):
        assert "broke" in javascript._read_result(text, False)["error"]["message"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("(61500.5).toLocaleString('en-US', { style: 'currency', currency: 'USD' })", "$61,500.50"),
        ("(-1234567.8915).toLocaleString()", "-1,234,567.892"),
        ("(1.005).toLocaleString('en-US', { maximumFractionDigits: 2 })", "1.01"),
        ("(5).toLocaleString(undefined, { minimumFractionDigits: 2 })", "5.00"),
        ("(0.0725).toLocaleString('en-US', { style: 'percent', minimumFractionDigits: 1 })", "7.3%"),
        ("(1e21).toLocaleString('en-US')", "1,000,000,000,000,000,000,000"),
        ("(1e-7).toLocaleString()", "0"),
        ("(0 / 0).toLocaleString()", "NaN"),
        ("new Date(Date.UTC(2026, 2, 1)).toLocaleDateString('en-US', { timeZone: 'UTC' })", "3/1/2026"),
        ("new Date(Date.UTC(2026, 2, 1, 9, 5)).toLocaleString()", "3/1/2026, 9:05:00 AM"),
    ],
)
async def test_numbers_and_dates_for_people(language: JavaScriptLanguage, kit: Kit, code: str, text: str) -> None:
    """Numbers and dates have the form that Node.js gives them for en-US."""
    assert (await run(language, kit, f"return {code}")).value == text


@pytest.mark.parametrize(
    "code",
    [
        "(5).toLocaleString('de-DE')",
        "(5).toLocaleString('en-US', { style: 'unit', unit: 'liter' })",
        "(5).toLocaleString('en-US', { style: 'currency', currency: 'XYZ' })",
        "new Date(0).toLocaleDateString('en-US', { weekday: 'long' })",
        "new Date(0).toLocaleTimeString('en-US', { timeZone: 'Asia/Tokyo' })",
    ],
)
async def test_other_locales_are_refused(language: JavaScriptLanguage, kit: Kit, code: str) -> None:
    """A form that cannot be given is an error that says what to use, not a text of another form."""
    assert "has no locales" in str((await run(language, kit, f"return {code}")).error)
