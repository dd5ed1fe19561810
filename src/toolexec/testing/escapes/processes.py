"""Programs that start, see or end processes, and that load code of the host."""

from __future__ import annotations

from toolexec.testing.escapes.base import LIMITS, Attempt, Escape, ends_with
from toolexec.testing.escapes.host import TRY

_BEAT = """
import os, socket, sys, time
def live_on():
    for _ in range(100):
        try:
            with socket.create_connection(("127.0.0.1", @PORT@), 1) as line:
                line.sendall(b"beat-@TOKEN@ %d\\n" % os.getpid())
                if line.recv(10) == b"stop\\n":
                    break
        except OSError:
            pass
        time.sleep(0.1)
    os._exit(0)
"""


def _too_many(attempt: Attempt) -> str:
    made = attempt.value
    if isinstance(made, int) and made > LIMITS.pids:
        return f"it started {made} of them, {LIMITS.pids} are allowed"
    return ""


PROCESS_ESCAPES: tuple[Escape, ...] = (
    Escape(
        name="list_processes",
        tries="to see what runs on the host",
        programs={
            "python": TRY
            + """
import os, subprocess
def lines():
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.append(open(f"/proc/{name}/cmdline").read()[-200:])
            except OSError:
                pass
    return found
attempt("proc", lambda: [line for line in lines() if "process-" in line] or len(lines()))
attempt("child", lambda: open("/proc/@CHILD@/cmdline").read())
attempt("ps", lambda: subprocess.run(["ps", "axww"], capture_output=True, timeout=2).stdout.decode()[-4000:])
""",
            "bash": "cat /proc/@CHILD@/cmdline; true",
        },
    ),
    Escape(
        name="kill_processes",
        tries="to end a process of the host",
        programs={
            "python": TRY
            + """
import os, signal
attempt("kill", lambda: os.kill(@CHILD@, 9))
attempt("killpg", lambda: os.killpg(@CHILD@, 15))
attempt("shell", lambda: os.system("kill -9 @CHILD@"))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(@CHILD@), 9))
""",
            "javascript": "try { process.kill(@CHILD@, 9); } catch (e) { return String(e); }",
            "bash": "kill -9 @CHILD@; true",
        },
    ),
    Escape(
        name="leave_a_process_behind",
        tries="to start a process of its own session that goes on after the run",
        programs={
            "python": TRY
            + _BEAT
            + """
def leave():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            live_on()
        os._exit(0)
attempt("fork", leave)
time.sleep(0.3)
""",
            "bash": """
(setsid bash -c 'trap "" TERM HUP INT; for i in $(seq 100); do
exec 3<>/dev/tcp/127.0.0.1/@PORT@ || break; echo "beat-@TOKEN@ $$" >&3
read -r -t 1 word <&3; [ "$word" = stop ] && exit
exec 3>&-; sleep 0.1; done' >/dev/null 2>&1 &)
sleep 0.3
""",
        },
    ),
    Escape(
        name="fork_bomb",
        tries="to start many more processes than it may, and to leave them behind",
        programs={
            "python": _BEAT
            + """
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(0.2)
            live_on()
        made += 1
    time.sleep(1)  # a sandbox that counts them at intervals gets to look
except BaseException as error:
    print(type(error).__name__, str(error)[:200])
made
""",
        },
        check=_too_many,
    ),
    Escape(
        name="start_programs",
        tries="to run programs of the host",
        programs={
            "python": TRY
            + """
import os, subprocess
command = "cat @CANARY@"
attempt("system", lambda: os.system(command + " > shell.txt; cat shell.txt") and open("shell.txt").read())
attempt("popen", lambda: os.popen(command).read())
attempt("run", lambda: subprocess.run(command, shell=True, capture_output=True, timeout=2).stdout)
attempt("spawn", lambda: os.posix_spawn("/bin/cat", ["cat", "@CANARY@"], {}))
attempt("pty", lambda: __import__("pty").spawn(["cat", "@CANARY@"]))
attempt("multiprocessing", lambda: __import__("multiprocessing").Process(target=print).start())
attempt("exec", lambda: os.execv("/bin/cat", ["cat", "@CANARY@"]))
""",
        },
    ),
    Escape(
        name="threads",
        tries="to start thousands of threads that never end",
        programs={
            "python": """
import threading, time
made = 0
try:
    for _ in range(2000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        made += 1
except BaseException as error:
    print(type(error).__name__, str(error)[:200])
made
""",
        },
        check=_too_many,
    ),
    Escape(
        name="host_modules",
        tries="to import what is installed on the host",
        programs={
            "python": """
import importlib, sys
sys.path += ["@DIRECTORY@", "/usr/lib/python3/dist-packages"]
found = []
for name in ("toolexec", "toolexec.exec.facade", "wasmtime", "psutil", "mcp", "pydantic", "_ctypes", "cffi"):
    try:
        found.append(importlib.import_module(name).__name__)
    except BaseException as error:
        print(name, type(error).__name__, str(error)[:200])
[name for name in found if name != "_ctypes"]
""",
        },
        check=lambda attempt: f"it imported {attempt.value}" if attempt.value else "",
        timeout=60.0,  # to import all of that took more than 20 s on a busy machine
    ),
    Escape(
        name="native_code",
        tries="to call the C library behind Python's back",
        programs={
            "python": TRY
            + """
import sys
def call():
    import ctypes
    libc = ctypes.CDLL(None)
    return libc.getpid(), ctypes.string_at(id(sys), 32)
attempt("ctypes", call)
def load():
    import _imp, importlib.machinery
    return _imp.create_dynamic(importlib.machinery.ModuleSpec("x", None, origin="/lib/x86_64-linux-gnu/libc.so.6"))
attempt("load", load)
attempt("mmap", lambda: __import__("mmap").mmap(-1, 4096).write(b"\\x90" * 4096))
def forge():
    def victim():
        return 1
    code = victim.__code__.replace(co_code=b"\\x64\\xff" * 40, co_consts=(), co_names=())
    return type(victim)(code, {})()
print("last", flush=True)
forge()
""",
        },
        check=ends_with("", "code_error", "sandbox_failed", "limit_exceeded", "sandbox_violation"),
    ),
)
