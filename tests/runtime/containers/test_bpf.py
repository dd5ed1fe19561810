"""The filter for the kernel: run here step by step over all system calls, and in the kernel under real programs."""

from __future__ import annotations

import errno
import itertools
import json
import os
import platform
import shutil
import struct
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tests.engines.images import test_image
from tests.tiers import missing

from toolexec.errors import ConfigurationError
from toolexec.runtime.containers.bpf import MAX_INSTRUCTIONS, compile_filter
from toolexec.runtime.containers.seccomp import (
    ALLOW,
    Action,
    Condition,
    Op,
    Profile,
    Rule,
    default_profile,
    read_profile,
    syscall_numbers,
)

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINES = [*AUDIT]
I386 = 0x40000003
X32 = 0x40000000
WORD = (1 << 64) - 1
SEED = [0, 1, 2, 9, 10, 16, 17, 38, 40, 0x10000000, 0x20000, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, WORD]


def interpret(program: bytes, number: int, args: tuple[int, ...] = (), arch: int = AUDIT["x86_64"]) -> int:
    """Run the filter as the kernel's interpreter does: classic BPF, with the instructions that seccomp allows and we
    use.
    """
    data = struct.pack("=IIQ6Q", number, arch, 0, *(*args, *[0] * 6)[:6])
    steps = [*struct.iter_unpack("=HBBI", program)]
    place = accumulator = 0
    while True:
        code, yes, no, constant = steps[place]
        place += 1
        match code:
            case 0x20:
                assert constant % 4 == 0
                accumulator = struct.unpack_from("=I", data, constant)[0]
            case 0x54:
                accumulator &= constant
            case 0x06:
                return constant
            case 0x05:
                place += constant
            case 0x15:
                place += yes if accumulator == constant else no
            case 0x25:
                place += yes if accumulator > constant else no
            case 0x35:
                place += yes if accumulator >= constant else no
            case _:
                raise AssertionError(f"instruction {code:#x} at {place - 1}")


def answer(action: Action) -> int:
    bases = {"allow": 0x7FFF0000, "log": 0x7FFC0000, "errno": 0x50000, "trap": 0x30000}
    return {**bases, "kill_thread": 0, "kill_process": 0x80000000}[action.kind] | action.errno


def holds(condition: Condition, value: int) -> bool:
    """Evaluate a condition in another way than the compiler does."""
    against = condition.value
    return {
        "eq": value == against,
        "ne": value != against,
        "lt": value < against,
        "le": value <= against,
        "gt": value > against,
        "ge": value >= against,
        "masked": value & condition.mask == against,
    }[condition.op]


def expected(profile: Profile, name: str, args: tuple[int, ...]) -> int:
    for rule in profile.chains().get(name, ()):
        if all(holds(condition, args[condition.index]) for condition in rule.when):
            return answer(rule.action)
    return answer(profile.default)


def some_args(rules: tuple[Rule, ...]) -> list[tuple[int, ...]]:
    """Arguments that make conditions true, nearly true and false, alone and together."""
    conditions = [condition for rule in rules for condition in rule.when]
    values = {*SEED}
    for condition in conditions:
        for value in (condition.value, condition.mask, condition.value | ~condition.mask & WORD):
            values |= {value & WORD, (value + 1) & WORD, (value - 1) & WORD, (value ^ (1 << 32)) & WORD}
    used = sorted({condition.index for condition in conditions})
    return [
        tuple(dict(zip(used, combination, strict=True)).get(index, 0) for index in range(6))
        for combination in itertools.product(sorted(values), repeat=min(len(used), 2))
    ]


class TestStepByStep:
    """The program, as the kernel would run it."""

    @pytest.mark.full
    @pytest.mark.parametrize("machine", MACHINES)
    def test_our_profile(self, machine: str) -> None:
        """The filter answers every call, known or not, as the profile says, whatever the arguments are."""
        profile, program = default_profile(), compile_filter(default_profile(), machine)
        chains = profile.chains()
        names = {number: name for name, number in syscall_numbers(machine).items()}
        compared = 0
        for number in range(max(names) + 1):
            name = names.get(number, "")
            for args in some_args(chains.get(name, ())) or [(0,) * 6]:
                assert interpret(program, number, args, AUDIT[machine]) == expected(profile, name, args), (name, args)
                compared += 1
        assert compared > 1000

    @pytest.mark.parametrize("machine", MACHINES)
    def test_calls_from_the_future(self, machine: str) -> None:
        """Calls from the future fail as not existing, so that programs fall back; so do those of the x32 ABI."""
        program = compile_filter(default_profile(), machine)
        known = max(syscall_numbers(machine).values())
        for number in (known + 1, known + 100, X32, X32 + 1, X32 | 56, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
            assert interpret(program, number, arch=AUDIT[machine]) == answer(Action("errno", errno.ENOSYS))

    @pytest.mark.parametrize("machine", MACHINES)
    def test_another_architecture(self, machine: str) -> None:
        """Its calls have other numbers, so that the process is killed whatever it asks for."""
        program = compile_filter(default_profile(), machine)
        for arch in (I386, 0, 0xFFFFFFFF, *(set(AUDIT.values()) - {AUDIT[machine]})):
            assert all(interpret(program, number, arch=arch) == 0x80000000 for number in (0, 1, 39, 63, 500))

    @pytest.mark.parametrize("op", ["eq", "ne", "lt", "le", "gt", "ge", "masked"])
    @pytest.mark.parametrize("value", [0, 5, (1 << 32) - 1, 1 << 32, (7 << 32) + 5, WORD])
    @pytest.mark.parametrize("index", [0, 5])
    def test_each_comparison(self, op: Op, value: int, index: int) -> None:
        """Both halves of an argument count, as one number without a sign."""
        mask = 0xFF000000FF if op == "masked" else WORD
        rule = Rule(("read",), ALLOW, (Condition(index, op, value & mask, mask),))
        profile = Profile(Action("errno", 1), (rule,))
        program = compile_filter(profile, "x86_64")
        near = {(value + step) & WORD for step in (-1, 0, 1, 1 << 32, -(1 << 32), 1 << 40, (1 << 32) - 1)}
        for argument in {*SEED, *near}:
            args = tuple(argument if place == index else 77 for place in range(6))
            assert interpret(program, 0, args) == expected(profile, "read", args), argument

    def test_several_conditions(self) -> None:
        """All of a rule must hold; the first rule whose conditions hold counts."""
        rules = (
            Rule(("read",), Action("errno", 5), (Condition(0, "gt", 1 << 33), Condition(1, "ne", 3))),
            Rule(("read",), Action("log"), (Condition(0, "ge", 1 << 33), Condition(1, "lt", 3), Condition(2, "eq", 0))),
            Rule(("read",), Action("trap"), (Condition(1, "masked", 1, 1), Condition(2, "le", 7))),
        )
        profile = Profile(Action("kill_thread"), rules)
        program = compile_filter(profile, "x86_64")
        values = [0, 1, 2, 3, 4, 8, 1 << 33, (1 << 33) + 1]
        answers = set()
        for args in itertools.product(values, repeat=3):
            answers.add(got := interpret(program, 0, args))
            assert got == expected(profile, "read", (*args, 0, 0, 0)), args
        assert answers == {answer(rule.action) for rule in rules} | {0}

    @pytest.mark.full
    def test_a_program_too_long_for_short_jumps(self) -> None:
        """Pieces longer than a short jump are jumped over all the same."""
        names = [*syscall_numbers("x86_64")][:300]
        rules = tuple(
            Rule((name,), Action("errno", place), (Condition(0, "eq", place), Condition(1, "ge", place << 32)))
            for place, name in enumerate(names)
        )
        profile = Profile(ALLOW, rules)
        program = compile_filter(profile, "x86_64")
        assert len(program) // 8 > 2000
        for place, name in enumerate(names):
            number = syscall_numbers("x86_64")[name]
            for args in ((place, place << 32), (place + 1, place << 32), (place, (place << 32) - 1)):
                whole = (*(value & WORD for value in args), 0, 0, 0, 0)
                assert interpret(program, number, whole) == expected(profile, name, whole), name

    def test_profiles_of_users(self, tmp_path: Path) -> None:
        """A profile from a file is compiled like ours; what it does not mention gets its default."""
        path = tmp_path / "profile.json"
        item = {"names": ["read", "no_such_call"], "action": "SCMP_ACT_LOG"}
        path.write_text(json.dumps({"defaultAction": "SCMP_ACT_KILL_PROCESS", "syscalls": [item]}))
        program = compile_filter(read_profile(path, "x86_64"), "x86_64")
        assert interpret(program, 0) == 0x7FFC0000
        assert interpret(program, 1) == 0x80000000

    def test_limits_of_the_kernel(self) -> None:
        """Ours is far below its longest program, and a profile above that is refused with what to do."""
        assert len(compile_filter(default_profile(), "x86_64")) // 8 < MAX_INSTRUCTIONS / 4
        rules = tuple(
            Rule((name,), ALLOW, tuple(Condition(index, "masked", place, 0xFF) for index in range(6)))
            for place, name in enumerate(syscall_numbers("x86_64"))
        )
        with pytest.raises(ConfigurationError, match="use fewer conditions"):
            compile_filter(Profile(ALLOW, rules), "x86_64")
        with pytest.raises(ConfigurationError, match="riscv64"):
            compile_filter(default_profile(), "riscv64")


def in_kernel(*command: str, filtered: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a program under bubblewrap, with our filter in the kernel."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        missing("bubblewrap is not installed", "sudo apt-get install -y bubblewrap")
    if platform.machine() not in AUDIT:
        pytest.skip(f"there is no filter for {platform.machine()}")
    root = os.environ.get("TOOLEXEC_TEST_ROOTFS") or str(test_image().root)
    reader, writer = os.pipe()
    try:
        os.write(writer, compile_filter(default_profile()))
        os.close(writer)
        options = ["--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", root, "/", "--proc", "/proc"]
        options += ["--dev", "/dev", "--tmpfs", "/tmp", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin"]
        options += ["--cap-drop", "ALL", "--uid", "65534", "--gid", "65534", "--chdir", "/tmp"]
        options += ["--seccomp", str(reader)] if filtered else []
        return subprocess.run(
            [bwrap, *options, *command],
            pass_fds=[reader] if filtered else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(reader)


def python(code: str, *, filtered: bool = True) -> subprocess.CompletedProcess[str]:
    return in_kernel("python3", "-I", "-c", textwrap.dedent(code), filtered=filtered)


def errors(*calls: tuple[Any, ...], filtered: bool = True) -> list[int]:
    """The error numbers of system calls that a program makes, each in a child of its own; 0 for none."""
    table = syscall_numbers()
    numbered = [(table[call[0]], *call[1:]) for call in calls]
    done = python(
        f"""
        import ctypes, os
        syscall = ctypes.CDLL(None, use_errno=True).syscall
        for number, *args in {numbered!r}:
            child = os.fork()
            if child == 0:
                failed = syscall(number, *[ctypes.c_ulong(arg) for arg in args]) == -1
                os._exit(ctypes.get_errno() if failed else 0)
            status = os.waitpid(child, 0)[1]
            print(os.waitstatus_to_exitcode(status))
        """,
        filtered=filtered,
    )
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


class TestInTheKernel:
    """Programs under the filter."""

    @pytest.mark.full
    def test_it_is_on(self) -> None:
        """The kernel has loaded it, and the program cannot gain rights."""
        done = python("print(open('/proc/self/status').read())")
        assert "Seccomp:\t2" in done.stdout
        assert "NoNewPrivs:\t1" in done.stdout

    @pytest.mark.full
    @pytest.mark.parametrize(
        "code",
        [
            "import threading\nt = threading.Thread(target=print, args=('well',)); t.start(); t.join()",
            "import subprocess\nprint(subprocess.run(['sh', '-c', 'echo well | cat'], capture_output=True, text=True).stdout)",
            "import os\npid = os.fork()\nif pid == 0: print('well', flush=True); os._exit(0)\nos.waitpid(pid, 0)",
            """
            import multiprocessing
            with multiprocessing.get_context('fork').Pool(2) as pool:
                print('well' if pool.map(abs, [-1, -2]) == [1, 2] else '')
            """,
            """
            import asyncio
            async def main():
                async def answer(reader, writer):
                    writer.write(await reader.readline()); writer.close()
                server = await asyncio.start_server(answer, '127.0.0.1', 0)
                reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
                writer.write(b'well\\n')
                print((await reader.readline()).decode())
                writer.close(); server.close()
                process = await asyncio.create_subprocess_exec('true')
                await process.wait()
            asyncio.run(main())
            """,
            """
            import socket
            one, other = socket.socketpair(); one.send(b'well'); print(other.recv(9).decode())
            socket.socket(socket.AF_INET6).close(); socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
            socket.if_nameindex()
            """,
            """
            import os, sqlite3, tempfile, mmap, ctypes, decimal, ssl, shutil, signal, time, selectors, fcntl
            with tempfile.TemporaryDirectory() as directory:
                os.chmod(directory, 0o700); os.symlink('a', directory + '/b'); os.mkfifo(directory + '/c')
                with open(directory + '/d', 'w') as file: fcntl.flock(file, fcntl.LOCK_EX)
                connection = sqlite3.connect(directory + '/e'); connection.execute('create table t(a)'); connection.close()
                shutil.copytree(directory, directory + '2', symlinks=True, ignore=shutil.ignore_patterns('c'))
            mmap.mmap(-1, 4096).close(); os.memfd_create('a'); os.getrandom(9); os.pidfd_open(os.getpid())
            signal.setitimer(signal.ITIMER_REAL, 0.01); signal.signal(signal.SIGALRM, lambda *_: None); time.sleep(0.05)
            os.sched_getaffinity(0); os.posix_fadvise(os.open('/etc/passwd', 0), 0, 0, 0); os.eventfd(0)
            print('well')
            """,
        ],
        ids=["thread", "subprocess", "fork", "multiprocessing", "asyncio", "sockets", "system"],
    )
    def test_python(self, code: str) -> None:
        """Common programs in Python work."""
        done = python(code)
        assert (done.returncode, done.stdout.strip()) == (0, "well"), done.stderr

    @pytest.mark.full
    def test_bash(self) -> None:
        """Pipes, jobs, substitutions and redirections work."""
        done = in_kernel("bash", "-c", "sleep 0 & wait; x=$(echo well | tr a-z A-Z); cat <<< $x > f; cat < f")
        assert (done.returncode, done.stdout) == (0, "WELL\n"), done.stderr

    @pytest.mark.full
    def test_node(self) -> None:
        """Its threads, timers, files and child processes work, and its list of network interfaces."""
        if in_kernel("node", "--version", filtered=False).returncode != 0:
            missing("the image has no node", "toolexec image build --name toolexec-test --node")
        code = """
            const {Worker} = require('worker_threads'), fs = require('fs'), os = require('os');
            fs.writeFileSync('/tmp/a', 'well'); os.networkInterfaces(); os.cpus();
            require('child_process').execSync('true');
            require('net').createServer(s => s.end()).listen(0, '127.0.0.1', function () { this.close(); });
            fs.promises.readFile('/tmp/a', 'utf8').then(text => {
              new Worker(`require('worker_threads').parentPort.postMessage('${text}')`, {eval: true})
                .on('message', console.log);
            });
        """
        done = in_kernel("node", "-e", code)
        assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr

    @pytest.mark.full
    def test_what_is_refused(self) -> None:
        """Each gives EPERM; without the filter most of them get further, so that it is the filter that refuses."""
        sigchld, new_user, new_net = 17, 0x10000000, 0x40000000
        calls = [
            ("mount", 0, 0, 0, 0, 0),
            ("unshare", new_user),
            ("unshare", new_net),
            ("setns", 0, 0),
            ("ptrace", 0, 0, 0, 0),
            ("keyctl", 0, (1 << 64) - 3, 1),
            ("add_key", 0, 0, 0, 0, 0),
            ("bpf", 0, 0, 0),
            ("io_uring_setup", 1, 0),
            ("userfaultfd", 1),
            ("perf_event_open", 0, 0, 0, 0, 0),
            ("process_vm_readv", 1, 0, 0, 0, 0, 0),
            ("open_by_handle_at", 0, 0, 0),
            ("name_to_handle_at", 0, 0, 0, 0, 0),
            ("chroot", 0),
            ("pivot_root", 0, 0),
            ("clone", new_user | sigchld, 0, 0, 0, 0),
            ("clone", new_net | sigchld, 0, 0, 0, 0),
            ("socket", 17, 3, 0),  # AF_PACKET
            ("socket", 38, 5, 0),  # AF_ALG
            ("socket", 40, 1, 0),  # AF_VSOCK
            ("socket", 16, 3, 12),  # netlink of the packet filter
            ("socketpair", 16, 3, 0, 0),
            ("personality", 0x40000),  # ADDR_NO_RANDOMIZE
        ]
        refused = errors(*calls)
        assert dict(zip(calls, refused, strict=True)) == dict.fromkeys(calls, errno.EPERM)
        free = errors(*calls, filtered=False)
        freed = {call[0] for call, error in zip(calls, free, strict=True) if error != errno.EPERM}
        assert {"unshare", "clone", "ptrace", "keyctl", "socket", "personality"} <= freed

    @pytest.mark.full
    def test_what_does_not_exist(self) -> None:
        """`clone3` and calls from the future: the C library takes older ones then."""
        number = max(syscall_numbers().values()) + 1
        done = python(
            f"""
            import ctypes
            syscall = ctypes.CDLL(None, use_errno=True).syscall
            for number in ({syscall_numbers()["clone3"]}, {number}, 0x40000000 + 39):
                syscall(number, 0, 0)
                print(ctypes.get_errno())
            """
        )
        assert done.stdout.split() == [str(errno.ENOSYS)] * 3

    @pytest.mark.full
    @pytest.mark.skipif(platform.machine() != "x86_64", reason="i386 is a part of x86_64 only")
    def test_calls_of_i386(self) -> None:
        """A program cannot go round the filter by the old road into the kernel."""
        done = python(
            """
            import ctypes, mmap
            page = mmap.mmap(-1, 4096, prot=7)
            page.write(bytes.fromhex('b814000000cd80c3'))  # getpid by int 0x80
            print(ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))())
            """
        )
        assert (done.returncode, done.stdout) in [(128 + 31, ""), (128 + 11, "")]  # SIGSYS; SIGSEGV without i386
