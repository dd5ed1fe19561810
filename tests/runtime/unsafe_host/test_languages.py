"""Bash, JavaScript and Go on the host."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.engines.programs import has_ended

from toolexec.errors import CodeError, CodeTimeoutError, SandboxFailedError, ToolNotFoundError

needs_node = pytest.mark.skipif(
    shutil.which("node") is None and os.environ.get("CI") != "true", reason="node is not on the PATH"
)


def failure_of(result: Any) -> CodeError:
    assert isinstance(result.error, CodeError), result.error
    return result.error


class TestBash:
    """Programs in bash, with the command `tool`."""

    async def test_the_command_tool_calls_tools(self, host: Any) -> None:
        """The result is printed as JSON; `tool return` gives the value of the program."""
        code = """
echo hi
sum=$(tool run math:add '{"a": 1, "b": 2}')
echo '{"a": 4, "b": 5}' | tool run math:add -
echo text > out.txt
tool return "$sum"
"""
        result = (await host.run(code, language="bash")).raise_for_error()
        assert (result.value, result.stdout, result.files) == (3, "hi\n9\n", {"out.txt": b"text\n"})
        assert [call.tool_id for call in result.tool_calls] == ["math:add", "math:add"]
        assert result.backend.details["language"] == "bash"

    async def test_a_failed_call_exits_with_1_and_prints_the_error(self, host: Any) -> None:
        """As JSON on stderr, with code and tool ID."""
        result = await host.run("tool run math:ad; echo $?", language="bash")
        assert result.stdout == "1\n"
        assert '"code": "tool_not_found"' in result.stderr
        assert '"toolId": "math:ad"' in result.stderr

    @pytest.mark.parametrize(
        ("command", "text"),
        [
            ("tool search add", '"id": "math:add"'),
            ("tool describe math:add", '"inputSchema"'),
            ("tool namespaces", '["math", "test"]'),
            ("tool examples math:add", "[]"),
            ("""tool chain '[{"toolId": "math:add", "args": {"a": 1, "b": 1}}]'""", "2"),
            ("""tool run test:large '{"size": 2000000}'""", '{"$handle": "h-'),
            (
                """tool run test:large '{"size": 2000000}' > x; tool read $(grep -o 'h-[^"]*' x) 'length(@)'""",
                "2000000",
            ),
            ("""tool read "$(tool run test:large '{"size": 2000000}')" 'length(@)'""", "2000000"),
            ("tool help", "tool run ID"),
        ],
    )
    async def test_tools_can_be_found_and_described(self, host: Any, command: str, text: str) -> None:
        """Each command prints JSON, help apart."""
        result = (await host.run(command, language="bash")).raise_for_error()
        assert text in result.stdout

    @pytest.mark.parametrize(
        ("command", "text"),
        [
            ("tool nonsense", "no command 'nonsense'"),
            ("tool run", "the ID of a tool is missing"),
            ("tool run math:add [1]", "a JSON object"),
            ("""tool read '{"a": 1}'""", 'a handle is the text after "$handle"'),
            ("tool return {", "must be JSON"),
        ],
    )
    async def test_a_wrong_command_line_exits_with_2(self, host: Any, command: str, text: str) -> None:
        """A wrong command line exits with 2 and a reason."""
        result = await host.run(f"{command}; echo $?", language="bash")
        assert result.stdout == "2\n"
        assert text in result.stderr

    async def test_plain_text_can_be_the_value(self, host: Any) -> None:
        """The last `tool return` counts."""
        assert await host.value("tool return 1; tool return --text 'two words'", language="bash") == "two words"

    async def test_calls_in_the_background_run_at_the_same_time(self, host: Any) -> None:
        """With & and wait."""
        code = """for i in 1 2 3; do tool run test:meet '{"count": 3}' & done; wait"""
        result = (await host.run(code, language="bash")).raise_for_error()
        assert result.stdout == "3\n3\n3\n"

    async def test_an_exit_code_is_a_failure(self, host: Any) -> None:
        """With what was printed."""
        result = await host.run("echo before; exit 3", language="bash")
        assert "exit code 3" in str(failure_of(result))
        assert result.stdout == "before\n"
        assert "by signal 9" in str((await host.run("kill -9 $$", language="bash")).error)

    async def test_a_syntax_error_has_its_line_and_nothing_runs(self, host: Any) -> None:
        """The program is checked before it starts."""
        result = await host.run("echo no\nif then\n", language="bash")
        cause = failure_of(result)
        assert (cause.line, cause.source, cause.kind, result.stdout) == (2, "if then", "SyntaxError", "")

    async def test_arguments_environment_and_input(self, host: Any) -> None:
        """As for any program."""
        code = 'read line; echo "$1 $MINE $line"'
        result = await host.run(code, language="bash", args=["one"], env={"MINE": "two"}, stdin=b"three\n")
        assert result.stdout == "one two three\n"

    async def test_nothing_outlives_its_time(self, host: Any) -> None:
        """Neither the shell nor what it started in the background."""
        result = await host.run("trap '' TERM; sleep 1000 & echo $$ $!; wait", language="bash", timeout=1.5)
        assert isinstance(result.error, CodeTimeoutError)
        pids = [int(word) for word in result.stdout.split()]
        assert len(pids) == 2
        assert [pid for pid in pids if not has_ended(pid)] == []


@needs_node
class TestJavaScript:
    """Programs for Node.js."""

    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ("return 1", 1),
            ("__out = {a: [1, 'x', null]}", {"a": [1, "x", None]}),
            ("const __out = 2; 3", 2),
            ("1 + 1", 2),
            ("const r = await tools.math.add({a: 1, b: 2})\nr * 2", 6),
            ("tools.run('math:add', {a: 1, b: 2})", 3),
            ("tools.runTool('math:add', {a: 1, b: 2}, {timeout: 5})", 3),
            ("let x = 1", None),
            ("for (const x of [1]) { x }", None),
            ("new Map([['a', new Set([1n])]])", {"a": [1]}),
            ("import { join as j } from 'path'\nimport * as os from 'os'\nimport fs from 'fs'\nj('a', 'b')", "a/b"),
            ("const { join } = require('path'); join('a', 'b')", "a/b"),
            ("(await import('path')).join('c', 'd')", "c/d"),
            ("tools.list_namespaces()", ["math", "test"]),
            ("(await tools.search('add'))[0].id", "math:add"),
            ("(await tools.describe('math:add')).tool.name", "add"),
            ("tools.examples('math:add')", []),
            ("tools.runChain([{toolId: 'math:add', args: {a: 1, b: 1}}])", 2),
            (
                "const h = await tools.test.large({size: 2e6}); [typeof h, h.length, h.slice(-2)]",
                ["string", 2000000, "xx"],
            ),
            ("process.argv.slice(2).concat(process.env.MINE)", ["one", "two"]),
            ("require('fs').readFileSync(0, 'utf8')", "three"),
        ],
    )
    async def test_programs_have_values_and_tools(self, host: Any, code: str, value: Any) -> None:
        """`return`, `__out` or the last expression; promises are awaited."""
        given = {"args": ["one"], "env": {"MINE": "two"}, "stdin": b"three"}
        assert await host.value(code, language="javascript", **given) == value

    async def test_calls_in_promise_all_run_at_the_same_time(self, host: Any) -> None:
        """Twenty at once."""
        code = "Promise.all(Array.from({length: 20}, () => tools.test.meet({count: 20})))"
        assert await host.value(code, language="javascript") == [20] * 20

    async def test_calls_that_nobody_awaits_are_finished(self, host: Any) -> None:
        """As they are in Python."""
        result = await host.run("tools.math.add({a: 1, b: 1}).then(console.log)\nnull", language="javascript")
        assert result.stdout == "2\n"
        assert result.tool_calls[0].ok

    async def test_prints_and_files_come_out(self, host: Any) -> None:
        """console.log and console.error, and what was written."""
        code = "console.log('out', {a: 1}); console.error('err'); require('fs').writeFileSync('f', 'x'); tools.println('p')"
        result = (await host.run(code, language="javascript")).raise_for_error()
        assert (result.stdout, result.stderr, result.files) == ("out { a: 1 }\np\n", "err\n", {"f": b"x"})

    async def test_a_tool_error_has_its_fields(self, host: Any) -> None:
        """A tool error can be caught, and has code, toolId, retryable and details."""
        code = """
try { await tools.math.ad() } catch (e) {
  return [e instanceof ToolError, e.code, e.toolId, e.retryable, e.details.close]
}"""
        assert await host.value(code, language="javascript") == [
            True,
            "tool_not_found",
            "math:ad",
            False,
            ["math:add"],
        ]

    async def test_an_uncaught_tool_error_is_the_cause(self, host: Any) -> None:
        """With the place of the call."""
        result = await host.run("\nconst x = 1; await tools.math.ad()", language="javascript")
        cause = failure_of(result)
        assert isinstance(cause.__cause__, ToolNotFoundError)
        assert (cause.line, cause.source) == (2, "const x = 1; await tools.math.ad()")

    @pytest.mark.parametrize(
        ("code", "line", "column", "text"),
        [
            ("let a = 1;\nthrow new TypeError('no')", 2, 7, "TypeError: no"),
            ("null.x", 1, 6, "TypeError"),
            ("const a =;", 1, 10, "SyntaxError: Unexpected token"),
            ("const a = 1;\nconst a = 2;", 2, 7, "SyntaxError"),
            ("function f() {\n  return g()\n}\nf()", 2, 3, "ReferenceError: g is not defined"),
            ("setTimeout(() => {\n  throw new Error('late') }, 5)\nawait new Promise(() => {})", 2, 9, "late"),
            ("Promise.reject(new Error('lost'))\nawait new Promise(r => setTimeout(r, 1000))", 1, 16, "lost"),
            ("throw {a: 1}", 0, 0, '{"a":1}'),
            ("const o = {}; o.o = o; o", 0, 0, "circular"),
            ("1 / 0", 0, 0, "Infinity, which JSON does not have"),
            ("10n ** 30n", 0, 0, "BigInt"),
            ("(() => {})", 0, 0, "is a function"),
            ("process.exit(3)", 0, 0, "exit code 3"),
            ("await new Promise(() => {})", 0, 0, "nothing can bring about"),
            ("'x'.repeat(17 << 20)", 0, 0, "16 MiB"),
        ],
    )
    async def test_failures_have_the_authors_own_place(
        self, host: Any, code: str, line: int, column: int, text: str
    ) -> None:
        """Line and column as the author sees them, and no trace of the guest."""
        cause = failure_of(await host.run(code, language="javascript"))
        assert text in cause.message
        assert "guest.cjs" not in cause.traceback
        if line:
            assert (cause.line, cause.source) == (line, code.split("\n")[line - 1])
            assert abs(cause.column - column) <= 2

    async def test_a_normal_exit_is_a_normal_end(self, host: Any) -> None:
        """process.exit() keeps `__out`."""
        assert await host.value("__out = 5; process.exit()", language="javascript") == 5

    async def test_a_crash_is_a_dead_sandbox(self, host: Any) -> None:
        """Killed is not failed."""
        result = await host.run("process.abort()", language="javascript")
        assert type(result.error) is SandboxFailedError
        assert "signal 6" in str(result.error)

    @pytest.mark.parametrize("code", ["while (true) {}", "await tools.test.wait()"])
    async def test_a_program_is_stopped_at_its_deadline(self, host: Any, code: str) -> None:
        """A program is stopped at its deadline, and its process is gone."""
        result = await host.run("console.log(process.pid); " + code, language="javascript", timeout=1)
        assert isinstance(result.error, CodeTimeoutError)
        assert has_ended(int(result.stdout))

    @pytest.mark.full
    async def test_many_large_arguments_travel_in_several_frames(self, host: Any) -> None:
        """Together they are over what one frame takes; one alone must not be."""
        code = """
const text = "x".repeat(6 << 20)
const all = await Promise.allSettled([1, 2, 3, 4].map((n) => tools.math.add({a: n, b: 1, text})))
let refused
try { await tools.math.add({text: "x".repeat(17 << 20)}) } catch (e) { refused = e.code }
return [all.map((one) => one.value), refused]
"""
        assert await host.value(code, language="javascript") == [[2, 3, 4, 5], "protocol"]

    async def test_a_flood_of_output_is_cut(self, host: Any) -> None:
        """A flood of output is cut, and neither side hangs."""
        result = await host.run("for (let i = 0; i < 300; i++) console.log('x'.repeat(1e5)); 1", language="javascript")
        assert result.value == 1
        assert "output limit reached" in result.stdout


@pytest.mark.usefixtures("go_path")
class TestGo:
    """Programs in Go, in each of their shapes."""

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("code", "value"),
        [
            ('result, _ := tools.Run("math:add", map[string]any{\n"a": 100, "b": 200,\n})\nreturn result', 300),
            ('r, _ := tools.RunTool(ctx, "math:add", map[string]any{"a": 1, "b": 2})\nreturn r.Structured', 3),
            ('r, _ := tools.RunTool(ctx, "math:add", map[string]any{"a": 1, "b": 2})\nreturn r', 3),
            ('__out = map[string]any{"a": []int{1, 2}}', {"a": [1, 2]}),
            ('import "strings"\n\n__out = strings.ToUpper("a")', "A"),
            ('import (\n"bytes"\nj "encoding/json"\n)\nb, _ := j.Marshal(bytes.ToUpper(nil))\nreturn string(b)', '""'),
            ('found, _ := tools.Search("add")\nreturn found[0]["id"]', "math:add"),
            ('d, _ := tools.Describe("math:add")\nreturn d["id"]', "math:add"),
            ('n, _ := tools.ListNamespaces()\ne, _ := tools.Examples("math:add")\nreturn []any{n, e}',
             [["math", "test"], []]),
            ("var s []map[string]any\ns = append(s, map[string]any{`toolId`: `math:add`, `args`: map[string]int{`a`: 1, `b`: 1}})\nr, _ := tools.RunChain(ctx, s)\nreturn r", 2),
            ('r, _ := tools.Run("math:add", map[string]any{"a": 9007199254740993, "b": 0})\nreturn r', 9007199254740993),
            ('line := ""\nfmt.Scan(&line)\nreturn []string{os.Args[1], os.Getenv("MINE"), line}', ["one", "two", "three"]),
            ("if false { return 1 }", None),
        ],
    )  # fmt: skip
    async def test_statements_have_values_and_tools(self, host: Any, code: str, value: Any) -> None:
        """A top-level return, or `__out`."""
        given = {"args": ["one"], "env": {"MINE": "two"}, "stdin": b"three\n"}
        assert await host.value(code, language="go", **given) == value

    @pytest.mark.full
    async def test_a_complete_program_runs_as_it_is(self, host: Any) -> None:
        """With package, imports and main, and tools if it wants them."""
        code = """// A program.
package main

import "fmt"

type greeter struct{ name string }

func (g greeter) String() string { return "hello " + g.name }

func main() {
	sum, err := tools.Run("math:add", map[string]any{"a": 1, "b": 2})
	fmt.Println(greeter{"go"}, sum, err, ctx.Err())
}
"""
        result = (await host.run(code, language="go")).raise_for_error()
        assert (result.stdout, result.value) == ("hello go 3 <nil> <nil>\n", None)

    @pytest.mark.full
    async def test_a_complete_program_may_have_its_own_tools(self, host: Any) -> None:
        """Declarations of the program are its own."""
        code = 'package main\n\nvar tools = "mine"\n\nfunc main() { println(tools) }'
        result = (await host.run(code, language="go")).raise_for_error()
        assert result.stderr == "mine\n"

    @pytest.mark.full
    async def test_goroutines_call_tools_at_the_same_time(self, host: Any) -> None:
        """Ten at once."""
        code = """
import "sync"
var group sync.WaitGroup
for i := 0; i < 10; i++ {
	group.Add(1)
	go func() { defer group.Done(); tools.Run("test:meet", map[string]any{"count": 10}) }()
}
group.Wait()
tools.Println("done")
"""
        result = (await host.run(code, language="go")).raise_for_error()
        assert (result.stdout, host.most_active) == ("done\n", 10)

    @pytest.mark.full
    async def test_a_context_cancels_a_call(self, host: Any) -> None:
        """On the host, too."""
        code = """
import "context"
short, cancel := context.WithTimeout(ctx, 50 * time.Millisecond)
defer cancel()
_, err := tools.RunTool(short, "test:wait", nil)
r, _ := tools.Run("math:add", map[string]any{"a": 1, "b": 1})
return []any{err.Error(), r}
"""
        assert await host.value(code, language="go") == ["context deadline exceeded", 2]
        assert host.cancelled == 1

    @pytest.mark.full
    async def test_tool_errors_have_fields_and_can_be_returned(self, host: Any) -> None:
        """errors.As finds them; a returned error is the program's failure, with the tool's as its cause."""
        code = """
_, err := tools.Run("math:ad", nil)
var failure *ToolError
if errors.As(err, &failure) { return []any{failure.Code, failure.ToolID, failure.Retryable} }
"""
        assert await host.value(code, language="go") == ["tool_not_found", "math:ad", False]
        result = await host.run('_, err := tools.Run("math:ad", nil)\nreturn err', language="go")
        assert isinstance(failure_of(result).__cause__, ToolNotFoundError)

    @pytest.mark.full
    @pytest.mark.parametrize(
        ("code", "line", "kind"),
        [
            ("x := 1\nreturn y", 1, "CompileError"),
            ("a := []int{}\n\nreturn a[3]", 3, "panic"),
            ("done := make(chan int)\ngo func() {\n\tpanic(1)\n}()\n<-done", 3, "panic"),
            ("return func() {}", 0, "ValueError"),
            ('package main\n\nfunc main() {\n\tpanic("x")\n}', 4, "panic"),
        ],
    )
    async def test_failures_have_the_authors_own_line(self, host: Any, code: str, line: int, kind: str) -> None:
        """Of the compiler, and at run time."""
        cause = failure_of(await host.run(code, language="go"))
        assert (cause.line, cause.kind) == (line, kind)
        assert cause.source == (code.split("\n")[line - 1] if line else "")

    @pytest.mark.full
    async def test_an_exit_code_is_a_dead_sandbox(self, host: Any) -> None:
        """os.Exit ends the process before it could say anything."""
        result = await host.run("os.Exit(3)", language="go")
        assert type(result.error) is SandboxFailedError
        assert "exit code 3" in str(result.error)

    @pytest.mark.full
    async def test_a_program_is_stopped_at_its_deadline(self, host: Any) -> None:
        """The compiled program itself, not only what started it."""
        await host.run("return 1", language="go")  # the packages are compiled now
        result = await host.run("fmt.Println(os.Getpid())\nfor {}", language="go", timeout=6)
        assert isinstance(result.error, CodeTimeoutError)
        assert has_ended(int(result.stdout))

    @pytest.mark.full
    async def test_files_come_out(self, host: Any) -> None:
        """Written files come out, and nothing of what was compiled."""
        result = await host.run('os.WriteFile("f", []byte("x"), 0o600)', language="go", files={"in": b"1"})
        assert result.raise_for_error().files == {"f": b"x"}
        assert not list(Path.cwd().glob("f"))
