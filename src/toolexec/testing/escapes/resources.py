"""Programs that use up what there is: memory, CPU, disk, output, time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from toolexec.testing.escapes.base import LIMITS, Attempt, Check, Escape, all_of, code_of, ends_with, gives

_STOPPED = ("code_timeout", "limit_exceeded")
_FAILED = ("code_error", "limit_exceeded", "sandbox_failed", "code_timeout", "sandbox_violation")
_MOST_OUTPUT = 5 << 20
_MOST_FILES = 10_000
_SHORT = 0.4


def _little_output(attempt: Attempt) -> str:
    result = attempt.result
    size = len(result.stdout) + len(result.stderr) if result is not None else 0
    return f"{size} characters of output were kept" if size > _MOST_OUTPUT else ""


def _few_files(attempt: Attempt) -> str:
    files = attempt.result.files if attempt.result is not None else {}
    size = sum(map(len, files.values()))
    if size > 2 * LIMITS.disk_bytes:
        return f"files of {size} bytes came out, {LIMITS.disk_bytes} are allowed"
    return f"{len(files)} files came out" if len(files) > _MOST_FILES else ""


def _told(attempt: Attempt) -> str:
    """Accept the program's own value or its failure, but no forged success."""
    return "it ended well, which it cannot" if not code_of(attempt) and attempt.value == "survived" else ""


def _endless(name: str, tries: str, programs: Mapping[str, str]) -> Escape:
    return Escape(name=name, tries=tries, programs=programs, check=ends_with(*_STOPPED), timeout=_SHORT)


def _hungry(
    name: str, tries: str, programs: Mapping[str, str], check: Check = lambda _: "", timeout: float = 5.0
) -> Escape:
    check = all_of(_little_output, _few_files, check)
    return Escape(name=name, tries=tries, programs=programs, check=check, timeout=timeout)


RESOURCE_ESCAPES: tuple[Escape, ...] = (
    # -- time and CPU
    _endless(
        "cpu_spin",
        "to run for ever in a tight loop",
        {"python": "while True: pass", "javascript": "for (;;) {}", "bash": "while :; do :; done"},
    ),
    _endless(
        "sleep_forever",
        "to do nothing for ever",
        {
            "python": "import time\ntime.sleep(10**6)",
            "bash": "sleep 1000000",
        },
    ),
    _endless(
        "await_forever",
        "to wait for what never happens",
        {"python": "import asyncio\nawait asyncio.sleep(10**6)"},
    ),
    _endless(
        "wait_in_a_tool",
        "to hide in a tool call that takes long",
        {"python": "tools.escape.nap(seconds=10)", "javascript": 'await tools.run("escape:nap", {seconds: 10})'},
    ),
    _endless(
        "swallow_everything",
        "to catch whatever would stop it",
        {
            "python": """
def again():
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass
        finally:
            again()
again()
""",
            "javascript": "for (;;) { try { for (;;) {} } catch (e) {} finally { continue; } }",
            "bash": "trap '' TERM INT HUP QUIT ALRM XCPU; while :; do :; done",
        },
    ),
    _endless(
        "ignore_signals",
        "to be deaf to polite requests to end",
        {
            "python": """
import signal, time
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except BaseException:
        pass
while True:
    try:
        time.sleep(10**6)
    except BaseException:
        pass
""",
        },
    ),
    _endless(
        "one_long_operation",
        "to stay in a single operation of the interpreter",
        {"python": "x = sum(range(10**15))", "javascript": '"x".repeat(10**8).match(/(x+x+)+y/)'},
    ),
    _endless("huge_power", "to compute a number of a hundred million digits", {"python": "len(str(10 ** (10**8)))"}),
    _endless(
        "backtracking",
        "to have a regular expression take exponential time",
        {
            "python": 'import re\nre.match("(a+)+b", "a" * 60)',
            "javascript": 'return /^(a+)+b$/.test("a".repeat(60))',
        },
    ),
    _endless(
        "endless_exception_text",
        "to be busy when the sandbox asks what went wrong",
        {"python": "class E(Exception):\n    def __str__(self):\n        while True: pass\nraise E"},
    ),
    _endless(
        "endless_value",
        "to be busy when the sandbox asks for the value",
        {
            "python": """
class Endless(dict):
    def __init__(self): super().__init__(a=1)
    def items(self):
        while True: yield ("a", 1)
    def __iter__(self):
        while True: yield "a"
return [Endless()]
""",
        },
    ),
    _endless(
        "search_for_ever",
        "to keep the host busy with requests that are not counted",
        {"python": "while True:\n    try:\n        tools.search('echo')\n    except Exception: pass"},
    ),
    # -- memory
    _hungry(
        "memory_list",
        "to fill memory with a list",
        {
            "python": "x = []\nwhile True:\n    x.append('y' * 100_000 + str(len(x)))",
            "javascript": "const x = [], y = 'y'.repeat(100000); for (;;) x.push(y + x.length);",
            "bash": "x=y; while :; do x=$x$x; done",
        },
        ends_with("limit_exceeded", "code_error", "sandbox_failed"),
        timeout=20.0,
    ),
    _hungry(
        "memory_block",
        "to ask for gigabytes at once",
        {
            "python": """
x = []
for _ in range(8):
    x.append(bytearray(1 << 30))
    x[-1][::4096] = b"1" * (1 << 18)
return "survived"
""",
            "javascript": "const x = new Uint8Array(8 * 2 ** 30).fill(1); return 'survived';",
        },
        all_of(_told, ends_with(*_FAILED)),
    ),
    _hungry(
        "memory_caught",
        "to go on after its memory is used up",
        {
            "python": """
x = []
for size in (1 << 24, 1 << 20, 1 << 14, 1 << 8):
    try:
        while True:
            x.append(bytearray(size))
    except MemoryError:
        pass
try:
    x.append(tools.escape.echo(text="still here"))
except MemoryError:
    pass
del x
"done"
"""
        },
        gives("done"),
    ),
    _hungry(
        "large_value",
        "to give back more than fits",
        {"python": "return ['z' * 1000] * 60_000", "javascript": "return Array(60000).fill('z'.repeat(1000));"},
    ),
    _hungry(
        "large_error",
        "to fail with more than fits",
        {"python": "raise ExceptionGroup('x' * 20_000_000, [ValueError(i) for i in range(10_000)])"},
        ends_with(*_FAILED),
    ),
    _hungry(
        "error_chain",
        "to fail with twenty thousand causes",
        {
            "python": """
last = None
for number in range(20_000):
    error = ValueError(number)
    error.__context__ = last
    last = error
raise last
"""
        },
        ends_with(*_FAILED),
    ),
    _hungry(
        "tasks",
        "to leave a hundred thousand tasks pending",
        {
            "python": """
import asyncio
tasks = [asyncio.create_task(asyncio.sleep(1000)) for _ in range(100_000)]
await asyncio.sleep(0)
len(tasks)
"""
        },
        gives(100_000),
        timeout=2.0,
    ),
    # -- output and files
    _hungry(
        "output_flood",
        "to print a gigabyte",
        {
            "python": "s = 'x' * 1_000_000\nfor _ in range(1000): print(s)\nreturn 'done'",
            "javascript": "const s = 'x'.repeat(1e6); for (let i = 0; i < 1000; i++) console.log(s); return 'done';",
            "bash": "head -c 1000000000 /dev/zero | tr '\\\\0' x",
        },
    ),
    _hungry(
        "output_by_letters", "to print letter by letter", {"python": "for _ in range(50_000): print('x', flush=True)"}
    ),
    _hungry(
        "output_below",
        "to flood the streams below Python's own",
        {
            "python": """
import os, sys
block = b"x" * 1_000_000
for _ in range(100):
    for stream in (1, 2):
        os.write(stream, block)
    sys.__stderr__.write("y" * 1_000_000)
"""
        },
    ),
    _hungry(
        "disk_fill",
        "to write a gigabyte into its directory",
        {
            "python": """
written = 0
try:
    with open("big.bin", "wb") as f:
        for _ in range(1000):
            written += f.write(b"x" * (1 << 20))
            f.flush()
except OSError as error:
    print(error)
written
""",
            "bash": "head -c 1000000000 /dev/zero > big.bin; true",
        },
        lambda attempt: (
            f"it wrote {attempt.value} bytes"
            if isinstance(attempt.value, int) and attempt.value > 4 * LIMITS.disk_bytes
            else ""
        ),
    ),
    _hungry(
        "disk_elsewhere",
        "to fill other directories than its own",
        {
            "python": """
import os
written = 0
for directory in ("/tmp", "/var/tmp", "/dev/shm", "/", os.path.expanduser("~"), ".."):
    path = os.path.join(directory, "toolexec-escape-fill-@TOKEN@.bin")
    try:
        with open(path, "wb") as f:
            for _ in range(64):
                written += f.write(b"x" * (1 << 20))
    except OSError as error:
        print(directory, error)
    finally:
        try: os.remove(path)
        except OSError: pass
written
"""
        },
        lambda attempt: (
            f"it wrote {attempt.value} bytes outside of its directory"
            if isinstance(attempt.value, int) and attempt.value > 4 * LIMITS.disk_bytes
            else ""
        ),
    ),
    _hungry(
        "file_flood",
        "to make far too many files",
        {
            "python": """
made = 0
try:
    for number in range(5_000):
        with open(f"file-{number}", "wb"): pass
        made += 1
except OSError as error:
    print(error)
made
"""
        },
    ),
    _hungry(
        "sparse_file",
        "to have the host read a file of ten gigabytes that takes no space",
        {
            "python": """
try:
    with open("sparse.bin", "wb") as f:
        f.truncate(10 * 2**30)
except OSError as error:
    print(error)
try:
    with open("sparse2.bin", "wb") as f:
        f.seek(10 * 2**30)
        f.write(b"x")
except OSError as error:
    print(error)
""",
            "bash": "truncate -s 10G sparse.bin; true",
        },
    ),
    _hungry(
        "zip_bomb",
        "to have the host unpack what it collects",
        {
            "python": """
import io, zipfile
inner = io.BytesIO()
with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as z:
    z.writestr("zeros", b"\\0" * (16 << 20))
with zipfile.ZipFile("bomb.zip", "w", zipfile.ZIP_DEFLATED) as z:
    for number in range(200):
        z.writestr(f"{number}.zip", inner.getvalue())
    z.writestr("../../escape.txt", b"out")
    z.writestr("/@DIRECTORY@/escape.txt", b"out")
"""
        },
    ),
    _hungry(
        "deep_directories",
        "to nest directories without end",
        {
            "python": """
import os
depth = 0
try:
    for _ in range(1000):
        os.mkdir("d")
        os.chdir("d")
        depth += 1
except OSError as error:
    print(error)
open("leaf.txt", "w").write("x") if depth < 100 else None
depth
"""
        },
    ),
    Escape(
        name="cpu_budget",
        tries="to use more CPU time than it may, well before its deadline",
        programs={"python": "while True: pass", "javascript": "for (;;) {}", "bash": "while :; do :; done"},
        check=ends_with("limit_exceeded"),
        timeout=30.0,
        limits=replace(LIMITS, cpu_ms=200),
    ),
)
