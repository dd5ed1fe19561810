"""What models write by habit works, or fails with an error that says how to repair it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.tiers import missing

from toolexec import Exec, tool
from toolexec.code.limits import Limits
from toolexec.errors import CodeError, LimitExceededError
from toolexec.runtime.sandboxes import SandboxSettings


@tool("math:add")
async def add(a: int, b: int = 1) -> int:
    """Add."""
    return a + b


@tool("math:fail")
async def fail(number: int) -> int:
    """Fail."""
    raise ValueError(f"no {number}")


@pytest.fixture(params=["wasm", pytest.param("bubblewrap", marks=pytest.mark.full)])
async def ex(request: pytest.FixtureRequest) -> AsyncIterator[Exec]:
    """An Exec with two tools and one sandbox."""
    async with Exec(runtime_backends=SandboxSettings(use=(request.param,))) as ex:
        if not (await ex.runtime.backends[0].check()).ok:
            missing(f"{request.param} is not available", "bash .ci/run")
        ex.add(add)
        ex.add(fail)
        yield ex


async def value(ex: Exec, code: str, **settings: Any) -> Any:
    """The value of a program."""
    return (await ex.execute_code(code, **settings)).raise_for_error().value


async def failure(ex: Exec, code: str, **settings: Any) -> str:
    """The error of a program."""
    error = (await ex.execute_code(code, **settings)).error
    assert isinstance(error, CodeError), error
    return str(error)


class TestPython:
    """In each sandbox."""

    async def test_tools_can_be_imported(self, ex: Exec) -> None:
        """Though they are there without."""
        for code in (
            "from tools import math\nmath.add(a=1)",
            "from tools.math import add\nadd(a=1)",
            "from tools.math import add as plus\nplus(a=1)",
            "import tools\ntools.math.add(a=1)",
            "import tools as t\nt.math.add(a=1)",
            "import tools.math\ntools.math.add(a=1)",
            "import tools\ntools.run('math:add', {'a': 1})",
            "from tools import run\nrun('math:add', {'a': 1})",
            "import importlib\nimportlib.import_module('tools').math.add(a=1)",
            "import asyncio\nfrom tools.math import add\nawait add(a=1)",
            "def f():\n    from tools import math\n    return math.add(a=1)\nf()",
        ):
            assert await value(ex, code) == 2, code

    async def test_errors_can_be_imported(self, ex: Exec) -> None:
        """The classes are those that are raised."""
        code = "from tools import ToolError, HandlerError\ntry:\n    tools.math.fail(number=1)\n"
        assert await value(ex, f"{code}except HandlerError as error:\n    x = isinstance(error, ToolError)\nx") is True

    async def test_a_module_of_the_program_comes_first(self, ex: Exec) -> None:
        """Its own `tools.py` is what it imports."""
        assert await value(ex, "import tools\ntools.x", files={"tools.py": b"x = 5"}) == 5

    async def test_each_run_of_a_session_imports_its_own(self, ex: Exec) -> None:
        """An earlier import does no harm."""
        async with ex.session() as session:
            for _ in range(2):
                assert (await session.execute_code("from tools.math import add\nadd(a=1)")).value == 2

    async def test_a_fence_around_the_program(self, ex: Exec) -> None:
        """A fence and the prose around it are not part of the program, and lines keep their numbers; two are advised on."""
        assert await value(ex, "```python\nreturn tools.math.add(a=1)\n```") == 2
        assert "(line 3, col 1)" in await failure(ex, "```python\nx = 1\nx.y\n```")
        assert await value(ex, "Here it is:\n```python\n1\n```") == 1
        assert "Markdown" in await failure(ex, "Here it is:\n```python\n1\n```\nOr:\n```python\n2\n```")

    async def test_bytes_to_the_standard_streams(self, ex: Exec) -> None:
        """Bytes are printed in order with other output, even when a character comes in parts."""
        result = await ex.execute_code(
            "import sys\n"
            "print('a', end='')\n"
            "sys.stdout.buffer.write('é'.encode()[:1])\n"
            "sys.stdout.buffer.write('é'.encode()[1:])\n"
            "sys.stdout.buffer.flush()\n"
            "sys.stdout.reconfigure(line_buffering=True)\n"
            "print('b')\n"
            "sys.stderr.buffer.write(b'careful')\n"
            "sys.stdout.buffer.write(bytearray(b'c'))"
        )
        assert result.error is None
        assert (result.stdout, result.stderr, result.value) == ("aéb\nc", "careful", 1)

    async def test_text_to_a_stream_of_bytes(self, ex: Exec) -> None:
        """Refuses it, as Python does everywhere."""
        assert "bytes-like object" in await failure(ex, "import sys\nsys.stdout.buffer.write('x')")

    async def test_a_group_of_errors(self, ex: Exec) -> None:
        """Each is told with its kind, message and line, however deep."""
        text = await failure(
            ex,
            "import asyncio\n"
            "async def check(number):\n"
            "    raise ValueError(f'wrong {number}')\n"
            "async with asyncio.TaskGroup() as group:\n"
            "    group.create_task(check(1))\n"
            "    group.create_task(check(2))\n",
        )
        assert text.startswith("ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions): ")
        assert "ValueError: wrong 1 (line 3); ValueError: wrong 2 (line 3)" in text
        assert "KeyError: 'k'; ValueError" in await failure(
            ex, "raise ExceptionGroup('a', [ExceptionGroup('b', [KeyError('k')]), ValueError()])"
        )
        many = await failure(ex, "raise ExceptionGroup('a', [ValueError(n) for n in range(20)])")
        assert "ValueError: 7; and 12 more" in many

    async def test_a_group_with_a_failed_tool(self, ex: Exec) -> None:
        """The tool's error is told, and is the cause when it is the only one."""
        code = "import asyncio\nasync with asyncio.TaskGroup() as g:\n    g.create_task(tools.math.fail(number=1))"
        error = (await ex.execute_code(code)).error
        assert "HandlerError: math:fail raised ValueError: no 1" in str(error)
        assert error is not None
        assert error.tool_id == "math:fail"

    async def test_temporary_files(self, ex: Exec) -> None:
        """Temporary files are in /tmp, and not in the result."""
        code = (
            "import os, tempfile\n"
            "open('/tmp/x', 'w').write('y')\n"
            "with tempfile.TemporaryDirectory() as directory:\n"
            "    open(directory + '/z', 'w').write('z')\n"
            "[tempfile.gettempdir(), open('/tmp/x').read(), sorted(os.listdir('/tmp'))]"
        )
        result = (await ex.execute_code(code)).raise_for_error()
        assert result.value == ["/tmp", "y", ["x"]]
        assert result.files == {}

    @pytest.mark.full
    async def test_a_full_disk(self, ex: Exec) -> None:
        """Writing fails with ENOSPC, in all the ways to write, and the run says that it was its limit."""
        settings = {"limits": Limits(disk_bytes=1 << 20), "best_effort": True}
        for write in (
            "open('x', 'wb').write(b'x' * (2 << 20))",
            "[open('x', 'ab', 0).write(b'x' * (1 << 16)) for _ in range(40)]",
            "open('x', 'w').write('x' * (2 << 20))",
            "open('x', 'w+').write('x' * (2 << 20))",
            "pathlib.Path('x').write_bytes(b'x' * (2 << 20))",
            "pathlib.Path('x').write_text('x' * (2 << 20))",
            "shutil.copyfileobj(io.BytesIO(b'x' * (2 << 20)), open('x', 'xb'))",
            "[os.write(os.open('x', os.O_CREAT | os.O_WRONLY | os.O_APPEND), b'x' * (1 << 16)) for _ in range(40)]",
        ):
            code = (
                f"import errno, io, os, pathlib, shutil\ntry:\n    {write}\n    found = 'nothing'\n"
                "except OSError as error:\n    found = [error.errno == errno.ENOSPC, error.strerror]\nfound"
            )
            assert await value(ex, code, **settings) == [True, "No space left on device"], write
        error = (await ex.execute_code("while True: open('x', 'ab').write(b'x' * (1 << 18))", **settings)).error
        assert isinstance(error, LimitExceededError)
        assert error.details["resource"] == "disk"


class TestEmbedded:
    """In the embedded sandbox alone."""

    @pytest.fixture
    async def ex(self) -> AsyncIterator[Exec]:
        """An Exec with one tool."""
        async with Exec() as ex:
            ex.add(add)
            yield ex

    async def test_threads(self, ex: Exec) -> None:
        """The error says what to use, to the program as well."""
        for code in (
            "import threading\nthreading.Thread(target=print).start()",
            "from threading import Timer\nTimer(0, print).start()",
            "import _thread\n_thread.start_new_thread(print, ())",
        ):
            text = await failure(ex, code)
            assert text.startswith("RuntimeError: can't start new thread: this sandbox has no threads; ")
            assert "asyncio.gather" in text
            shielded = "\n".join(f"    {line}" for line in code.splitlines())
            assert "asyncio.gather" in await value(
                ex, f"try:\n{shielded}\nexcept RuntimeError as e:\n    x = str(e)\nx"
            )

    async def test_temporary_files_count(self, ex: Exec) -> None:
        """Temporary files use up the disk like all others, and a session keeps them."""
        limits = Limits(disk_bytes=1 << 20)
        code = "open('/tmp/x', 'wb').write(b'x' * (1 << 19))\nopen('y', 'wb').write(b'x' * (3 << 18))"
        assert isinstance((await ex.execute_code(code, limits=limits)).error, LimitExceededError)
        async with ex.session(limits=limits) as session:
            await session.execute_code("open('/tmp/x', 'w').write('kept')")
            assert (await session.execute_code("open('/tmp/x').read()")).value == "kept"
        assert "No such file" in await failure(ex, "open('/tmp/x')")
        assert await value(ex, "import os\nos.rename('/tmp', 'x') if False else os.path.isdir('/tmp')") is True

    async def test_open_is_as_ever(self, ex: Exec, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        """Opens a file as Python does anywhere, whatever looks after full disks, with all attributes of its objects."""
        code = """
import io, os
def look(mode, how):
    os.close(os.open('x', os.O_CREAT | os.O_RDWR)) if 'r' in str(mode) else os.path.exists('x') and os.unlink('x')
    try:
        with open('x', mode, **how) as file:
            told = [file.mode, file.name, str(getattr(file, 'encoding', '')).lower(), getattr(file, 'errors', ''),
                    getattr(file, 'newlines', ''), getattr(file, 'line_buffering', ''), file.readable(), file.seekable()]
            file.write('a\\n' if isinstance(file, io.TextIOBase) else b'a\\n')
        with open('x', 'rb') as written:
            return [*told, type(file).__name__.replace('_WrittenFile', 'FileIO'), str(written.read())]
    except (ValueError, TypeError) as error:
        return type(error).__name__
CASES = [
    ('w', {}), ('wb', {}), ('x', {'encoding': 'latin-1', 'newline': '\\r\\n'}), ('a+b', {'buffering': 0}),
    ('w+', {'buffering': 1}), ('wt', {'errors': 'replace'}), ('rb+', {'buffering': 10}), ('wb', {'encoding': 'utf-8'}),
    ('w', {'buffering': 0}), ('wbt', {}), ('wz', {}), ('wr', {}), ('', {}), ('wb', {'newline': ''}), (5, {}),
]
found = [look(mode, how) for mode, how in CASES]
"""
        monkeypatch.chdir(tmp_path)
        space: dict[str, Any] = {}
        exec(code, space)
        assert await value(ex, f"{code}\nfound") == space["found"]

    async def test_other_errors_of_files(self, ex: Exec) -> None:
        """Other errors are those of the program, whatever their numbers there."""
        for code in ("open('x', 'rb', opener=lambda *_: -5)", "raise OSError(28, 'x')", "raise OSError(12, 'x')"):
            assert isinstance((await ex.execute_code(code)).error, CodeError)


class TestJavaScript:
    """In each sandbox."""

    async def test_a_promise_is_awaited_at_the_end(self, ex: Exec) -> None:
        """A promise that is returned, or the last expression, is awaited."""
        for code in (
            "return tools.math.add({ a: 1 })",
            "tools.math.add({ a: 1 })",
            "async function main() { return tools.math.add({ a: 1 }) }\nmain()",
            "return Promise.race([tools.math.add({ a: 1 })])",
            "return tools.math.add({ a: 1 }).then((sum) => sum)",
            "return tools.math.fail({ number: 1 }).catch(() => 2)",
            "const one = tools.math.add({ a: 1 }); return await one",
            "const made = tools.math.add({ a: 1 }); return (made instanceof Promise) ? 2 : 0",
            "return (await Promise.allSettled([tools.math.add({ a: 1 }), tools.math.fail({ number: 1 })])).length",
            "```js\nreturn tools.math.add({ a: 1 })\n```",
        ):
            assert await value(ex, code, language="javascript") == 2, code

    async def test_a_promise_is_no_value(self, ex: Exec) -> None:
        """To use one like the value that it will have fails, and says what to write."""
        for use in (
            "x.value",
            "x.length",
            "x[0]",
            "x.map((y) => y)",
            "x + 1",
            "x > 1",
            "`${x}`",
            "JSON.stringify(x)",
            "({ ...x })",
            "[...x]",
            "Object.keys(x)",
            "'a' in x",
            "(({ value }) => value)(x)",
            "({ x })",
            "[1, { x }]",
            "await tools.math.add({ a: x })",
        ):
            text = await failure(
                ex, f"const x = tools.math.add({{ a: 1 }});\nconst y = {use};\nreturn y", language="javascript"
            )
            assert "await" in text
            assert "promise" in text

    async def test_a_failure_that_nobody_awaits(self, ex: Exec) -> None:
        """Such a failure is the program's."""
        for code in (
            "tools.math.fail({ number: 1 }); return 5",
            "tools.math.fail({ number: 1 }); return await tools.math.add({ a: 1 })",
            "const lost = tools.math.fail({ number: 1 }); return 5",
            "tools.math.fail({ number: 1 }).then((x) => x); return 5",
            "tools.math.fail({ number: 1 }).finally(() => 1); return 5",
            "tools.run('math:fail', { number: 1 }); 5",
        ):
            assert "math:fail raised ValueError: no 1" in await failure(ex, code, language="javascript")

    async def test_a_failure_behind_a_function_that_nobody_awaits(self, ex: Exec) -> None:
        """Such a failure is named at least."""
        code = "async function main() { await tools.math.fail({ number: 1 }) }\nmain();\nreturn 5"
        result = await ex.execute_code(code, language="javascript")
        assert "math:fail raised ValueError: no 1" in f"{result.error}{result.stderr}"

    async def test_an_awaited_failure_is_no_news(self, ex: Exec) -> None:
        """A failure that the program caught stays caught."""
        code = "try { await tools.math.fail({ number: 1 }) } catch (error) { return error.code }"
        result = await ex.execute_code(code, language="javascript")
        assert (result.value, result.error, result.stderr) == ("handler_failed", None, "")
