"""Programs that turn on the interpreter they run in: recursion, built-ins, frames, exits, odd text, late hooks."""

from __future__ import annotations

from toolexec.testing.escapes.base import Attempt, Check, Escape, all_of, code_of, ends_with, gives
from toolexec.testing.escapes.host import TRY

_FAILED = ("code_error", "limit_exceeded", "sandbox_failed", "code_timeout", "sandbox_violation")


def _plain_text(attempt: Attempt) -> str:
    try:
        attempt.said.encode()
    except UnicodeEncodeError as error:
        return f"its output is not Unicode: {error}"
    return ""


def _one_call(attempt: Attempt) -> str:
    made = len(attempt.tools.tool_calls())
    return f"{made} calls were made" if made > 1 else ""


def _crash(name: str, program: str, **more: str) -> Escape:
    return Escape(
        name=f"exit_{name}",
        tries="to end its process, and to pass for a program that ended well",
        programs={"python": program, **more},
        check=ends_with(*_FAILED),
    )


def _bomb(name: str, program: str, check: Check = lambda _: "") -> Escape:
    return Escape(
        name=f"recursion_{name}",
        tries="to overflow the stack of the interpreter",
        programs={"python": program},
        check=check,
        timeout=3.0,
    )


INTERPRETER_ESCAPES: tuple[Escape, ...] = (
    # -- recursion
    Escape(
        name="recursion",
        tries="to call itself for ever",
        programs={
            "python": "def r(): return r()\nr()",
            "javascript": "function r() { return r() + 1; } return r();",
            "bash": "r() { r; }; r",
        },
        check=ends_with(*_FAILED),
    ),
    _bomb("unlimited", "import sys\nsys.setrecursionlimit(10**9)\ndef r(): return r()\nr()", ends_with(*_FAILED)),
    _bomb(
        "methods",
        "class R:\n    def __getattr__(self, n): return getattr(self, n + 'x')\n    __repr__ = repr\nR().x",
        ends_with(*_FAILED),
    ),
    _bomb(
        "json",
        """
import json
for text in ("[" * 10**6, '{"a":' * 10**6):
    try: json.loads(text)
    except (RecursionError, ValueError): pass
x = []
for _ in range(10**6): x = [x]
try: json.dumps(x)
except RecursionError: pass
"done"
""",
        gives("done"),
    ),
    _bomb("value", "x = []\nfor _ in range(10**5): x = [x]\nreturn x", ends_with(*_FAILED)),
    _bomb("argument", "x = []\nfor _ in range(10**5): x = [x]\ntools.escape.echo(text=x)", ends_with(*_FAILED)),
    _bomb("repr", "x = []\nfor _ in range(10**6): x = [x]\nrepr(x)", ends_with(*_FAILED)),
    _bomb(
        "pickle",
        """
import copy, marshal, pickle
x = []
for _ in range(10**5): x = [x]
for action in (pickle.dumps, copy.deepcopy, marshal.dumps):
    try: action(x)
    except (RecursionError, ValueError): pass
try: pickle.loads(b"(" * 10**6 + b"l" * 10**6)
except BaseException: pass
"done"
""",
        gives("done"),
    ),
    _bomb("regex", 'import re\nre.compile("(" * 10**5 + ")" * 10**5)', ends_with(*_FAILED)),
    _bomb("compile", 'compile("(" * 10**6 + ")" * 10**6, "x", "eval")', ends_with(*_FAILED)),
    _bomb("compile_minus", 'compile("-" * 10**6 + "1", "x", "eval")', ends_with(*_FAILED)),
    _bomb("code", "(" * 5000 + ")" * 5000, ends_with(*_FAILED)),
    _bomb("dealloc", "x = ()\nfor _ in range(10**6): x = (x,)\ndel x\n'done'", gives("done")),
    _bomb("iterators", "i = iter(())\nfor _ in range(10**5): i = map(abs, i)\nlist(i)", ends_with("", *_FAILED)),
    _bomb("compare", "a = b = None\nfor _ in range(10**5): a, b = [a], [b]\na == b", ends_with("", *_FAILED)),
    # -- the interpreter's own machinery
    Escape(
        name="poison",
        tries="to leave something for the next run to trip over",
        programs={
            "python": """
import builtins, json, os, sys
builtins.poison = "left behind"
builtins.print = builtins.len = lambda *a, **k: "poison"
os.environ["POISON"] = "left behind"
sys.modules["math"] = sys.modules["sys"]
json.dumps = lambda *a, **k: '"poison"'
sys.path.insert(0, os.getcwd())
open("poison.py", "w").write("raise SystemExit")
globals()["poison"] = "left behind"
sys.setrecursionlimit(50)
type(tools).poison = "left behind"
""",
            "javascript": 'globalThis.poison = "left behind"; Array.prototype.map = null; Object.prototype.poison = 1;',
            "bash": "export POISON=left; echo poison > poison.txt; ulimit -n 3; cd /; set -e; false",
        },
    ),
    Escape(
        name="builtins",
        tries="to get from a plain object to what can reach the system",
        programs={
            "python": TRY
            + """
import sys
def classes(of=object, seen=None):
    seen = {} if seen is None else seen
    for kind in type.__subclasses__(of):
        if kind not in seen:
            seen[kind] = True
            classes(kind, seen)
    return seen
for kind in classes():
    spaces = getattr(getattr(kind, "__init__", None), "__globals__", None) or {}
    for name in ("system", "popen", "fork", "open", "socket"):
        found = spaces.get(name)
        if callable(found) and name == "popen":
            attempt(kind.__name__, lambda: found("cat @CANARY@; env").read())
        elif callable(found) and name == "system":
            attempt(kind.__name__, lambda: found("cat @CANARY@ > stolen.txt"))
attempt("loader", lambda: ().__class__.__base__.__subclasses__()[-1].__module__)
space = __builtins__ if isinstance(__builtins__, dict) else vars(__builtins__)
attempt("import", lambda: space["__import__"]("os").listdir("@DIRECTORY@"))
attempt("code", lambda: eval(compile("__import__('os').environ", "x", "eval")))
""",
        },
    ),
    Escape(
        name="frames_and_garbage",
        tries="to find objects of the host by frames, the garbage collector and the modules",
        programs={
            "python": """
import gc, sys
strings = []
frame = sys._getframe()
while frame is not None:
    strings.append(repr(frame.f_globals)[:5_000])
    strings.append(repr(frame.f_locals)[:5_000])
    frame = frame.f_back
for thing in gc.get_objects()[:200_000]:
    if isinstance(thing, dict):
        for key in list(thing):
            if isinstance(key, str) and ("secret" in key.lower() or "VARIABLE" in key or "forbidden" in key):
                strings.append(repr((key, thing.get(key)))[:1000])
for name, module in list(sys.modules.items()):
    if any(word in name for word in ("toolexec", "guest", "wit", "host", "main")):
        strings.append(repr(vars(module))[:10_000])
print("\\n".join(strings)[-200_000:])
""",
        },
    ),
    Escape(
        name="constructors",
        tries="to get from a plain object to the global one of the host",
        programs={
            "javascript": """
const said = [];
const outside = [() => Function("return this")(), () => (() => {}).constructor("return process")(),
  () => tools.constructor.constructor("return process.env")(),
  () => this.constructor.constructor("return require")()("fs"),
  () => globalThis.process.mainModule.require("fs").readFileSync("@CANARY@", "utf8"),
  () => Object.keys(globalThis), () => import("os"), () => eval("process.env")];
for (const go of outside) { try { said.push(String(await go())); } catch (e) { said.push(String(e)); } }
return said;
""",
        },
    ),
    Escape(
        name="prototypes",
        tries="to change what every object inherits, so that the sandbox trips over it",
        programs={
            "javascript": """
Object.prototype.toJSON = () => "forged";
Array.prototype[Symbol.iterator] = function* () { yield "forged"; };
JSON.stringify = () => '"forged"'; JSON.parse = () => "forged"; Promise.prototype.then = null;
Object.defineProperty(Object.prototype, "value", {get() { return "forged"; }});
return {honest: true};
""",
        },
    ),
    # -- ends
    _crash("now", "import os\nos._exit(0)", javascript="process.kill(process.pid, 9)"),
    _crash("after_output", "import os\nprint('__OUT__:1', flush=True)\nos._exit(0)"),
    _crash("abort", "import os\nos.abort()"),
    _crash("signal", "import signal\nsignal.raise_signal(signal.SIGKILL)", bash="kill -9 $$"),
    _crash("segfault", "import faulthandler\nfaulthandler._sigsegv()"),
    _crash("fatal", "import faulthandler\nfaulthandler._sigabrt()"),
    _crash("system_exit", "import sys\nsys.exit('forged')", bash="exit 3"),
    _crash("keyboard", "raise KeyboardInterrupt"),
    _crash("generator_exit", "raise GeneratorExit"),
    _crash(
        "bytecode",
        """
def f(): pass
code = f.__code__.replace(co_code=bytes([100, 255] * 50 + [83, 0]), co_consts=(), co_stacksize=1)
type(f)(code, {})()
""",
    ),
    Escape(
        name="exotic_exceptions",
        tries="to fail in a way that cannot be reported",
        programs={
            "python": """
class Meta(type):
    def __getattribute__(cls, name): raise MemoryError("no " + name)
class E(BaseException, metaclass=Meta):
    def __str__(self): raise E()
    __repr__ = __str__
    @property
    def __class__(self): raise E()
    @property
    def __traceback__(self): return 5
    @property
    def __cause__(self): return self
raise E() from E()
""",
        },
        check=ends_with(*_FAILED),
    ),
    Escape(
        name="hostile_value",
        tries="to run code while its value is read, and to have it read as something else",
        programs={
            "python": """
class Value(dict):
    def __getattribute__(self, name): raise KeyboardInterrupt
    def items(self): raise SystemExit(0)
    def __len__(self): return -5
class Text(str):
    def __str__(self): return "\\ud800"
    def encode(self, *a): return b"x"
class Number(int):
    __repr__ = __str__ = lambda self: '1,"forged":1'
class Key:
    __hash__ = lambda self: 1
    __eq__ = lambda self, other: True
return [Text("x"), Number(5), {Text("k"): Number(6)}, Value(a=1)]
""",
        },
        check=lambda attempt: "the host took a forged value" if "forged" in str(attempt.value) else "",
    ),
    Escape(
        name="odd_text",
        tries="to send text that breaks its reader",
        programs={
            "python": """
import sys
odd = "\\ud800 \\udfff \\x00 \\u2028 \\u202e \\x1b[2J \\x1b]0;title\\x07 \\uffff \\r\\n \\x85"
print(odd)
print(odd, file=sys.stderr)
open("odd.txt", "w", encoding="utf-8", errors="surrogatepass").write(odd)
try: open("odd \\n \\x1b[2J .txt", "w").write("x")
except OSError: pass
raise ValueError(odd)
""",
        },
        check=all_of(_plain_text, ends_with("code_error")),
    ),
    Escape(
        name="odd_value",
        tries="to give back text that is not Unicode",
        programs={"python": 'return ["\\ud800", {"\\udfff": "\\x00\\u2028"}]'},
        check=_plain_text,
    ),
    Escape(
        name="odd_argument",
        tries="to give a tool text that is not Unicode, and numbers that JSON does not have",
        programs={
            "python": TRY
            + """
attempt("surrogate", lambda: tools.escape.echo(text="\\ud800"))
attempt("nan", lambda: tools.escape.echo(text=float("nan")))
attempt("huge", lambda: tools.escape.echo(text=10**4000))
attempt("bytes", lambda: tools.escape.echo(text=b"\\xff"))
attempt("key", lambda: tools.run("escape:echo", {"text": {1: 2, None: 3}}))
attempt("id", lambda: tools.run("\\ud800"))
attempt("name", lambda: tools.run("escape:echo", {"__proto__": 1, "self": 2, "text": 3}))
""",
        },
        check=_plain_text,
    ),
    # -- after the end
    Escape(
        name="after_the_end",
        tries="to call tools once it has given its value",
        programs={
            "python": """
import asyncio, atexit, sys, threading, weakref
class Late:
    def __del__(self):
        while True:
            try:
                tools.escape.echo(text="late")
            except BaseException:
                break
late = Late()
sys.modules["late"] = Late()
atexit.register(lambda: tools.escape.echo(text="atexit"))
weakref.finalize(late, lambda: tools.escape.echo(text="finalize"))
try: threading.Timer(0.25, lambda: tools.escape.echo(text="timer")).start()
except BaseException: pass
try: threading.Thread(target=lambda: tools.escape.echo(text="thread"), daemon=False)
except BaseException: pass
tools.escape.echo(text="in time")
""",
        },
        check=_one_call,
    ),
    Escape(
        name="tasks_after_the_end",
        tries="to have tasks go on once it has given its value",
        programs={
            "python": """
import asyncio
async def go_on():
    while True:
        try:
            await asyncio.sleep(0.01)
        except BaseException:
            pass
        await tools.escape.nap(seconds=0.01)
tasks = [asyncio.create_task(go_on()) for _ in range(3)]
await asyncio.sleep(0)
return "over"
""",
        },
        check=lambda attempt: "" if code_of(attempt) or attempt.value == "over" else "it has another value",
        timeout=1.0,
    ),
    Escape(
        name="generators_after_the_end",
        tries="to be woken up by the end itself, and not to let it happen",
        programs={
            "python": """
import asyncio
async def stubborn():
    while True:
        try:
            yield 1
        except BaseException:
            pass
keep = stubborn()
await anext(keep)
def clean():
    try:
        yield
    finally:
        while True: pass
other = clean()
next(other)
"over"
""",
        },
        timeout=1.0,
    ),
    Escape(
        name="read_stdin",
        tries="to wait for, or to read, the host's standard input",
        programs={
            "python": TRY
            + """
import os, sys
attempt("input", lambda: input())
attempt("stdin", lambda: sys.stdin.read())
attempt("below", lambda: os.read(0, 100))
attempt("own", lambda: sys.__stdin__.read())
attempt("tty", lambda: open("/dev/tty").read())
""",
            "bash": "read -r line; cat; true",
        },
    ),
)
