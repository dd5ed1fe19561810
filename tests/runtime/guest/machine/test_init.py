"""The first process of a machine, without the machine: its channels are sockets, and there is no control group."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.guest.machine.test_messages import begin

from toolexec.runtime.guest.bundle import GuestSettings, boot_command, zygote_bytes

PROGRAM = """
import os, socket, sys
from toolexec.runtime.guest.machine.channels import Channels
from toolexec.runtime.guest.machine.init import Init
class Group:
    def join(self): pass
    def limit(self, memory, pids, cpus): self.limits = memory, pids, cpus
    def cpu_seconds(self): return 1.5
    def ran_out_of_memory(self): return False
    def ran_out_of_processes(self): return True
    def kill(self): pass
class System:
    def set_clock(self, nanoseconds): pass
    def set_random_addresses(self, on): pass
    def add_entropy(self, data): assert len(data) >= 64
    def set_sizes(self, sizes, work, user):
        if "/nowhere" in sizes: raise OSError(2, "no such directory")
control, stdio = int(sys.argv[1]), int(sys.argv[2])
listening = socket.socket(fileno=control), socket.socket(fileno=stdio)
if sys.argv[3] == "listening":
    channels = Channels(None, listening)
else:
    channels = Channels((control, stdio), None)
init = Init(channels, Group(), System())
init.serve()
if init._guest:  # the end of a machine would end it
    os.kill(init._guest, 9)
"""
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Host:
    """The other end of both channels."""

    def __init__(self) -> None:
        self.control, control = socket.socketpair()
        self.stdio, stdio = socket.socketpair()
        for end in (self.control, self.stdio):
            end.settimeout(30)
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(control.fileno()), str(stdio.fileno()), "open"],
            pass_fds=(control.fileno(), stdio.fileno()),
        )
        control.close()
        stdio.close()
        self._lines = self.control.makefile("rb")

    def say(self, name: str, data: bytes = b"", **fields: Any) -> None:
        """Send a message, with what follows it."""
        self.control.sendall(json.dumps({name: fields}).encode() + b"\n" + data)

    def receive(self) -> Any:
        """The next message; None at the end."""
        text = self._lines.readline()
        return json.loads(text) if text else None

    def frames(self) -> Iterator[Any]:
        """The messages of the guest protocol."""
        stream = self.stdio.makefile("rb")
        while len(head := stream.read(4)) == 4:
            found = json.loads(stream.read(int.from_bytes(head, "big")))
            yield from found if isinstance(found, list) else [found]

    def send_frame(self, **message: Any) -> None:
        """Send one message of the guest protocol."""
        data = json.dumps([message]).encode()
        self.stdio.sendall(len(data).to_bytes(4, "big") + data)

    def close(self) -> None:
        """End it."""
        self._lines.close()
        for end in (self.control, self.stdio):
            end.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def host() -> Iterator[Host]:
    """A host whose machine is ready."""
    made = Host()
    try:
        ready = made.receive()["ready"]
        assert ready["protocol"] == 1
        assert ready["kernel"] == os.uname().release
        yield made
    finally:
        made.close()


def command(program: str, tmp_path: Path, **more: Any) -> dict[str, Any]:
    """The `begin` of a Python program."""
    tmp_path.chmod(0o777)
    return begin(**{"command": ["/usr/bin/python3", "-I", "-c", program], "work": "/", "tmpfs": {}, **more})


def test_a_command_has_the_channel_as_its_stdio_and_no_rights(host: Host, tmp_path: Path) -> None:
    """A report names what ended it, and has what it wrote on stderr."""
    program = """if True:
        import os, sys
        rows = dict(row.split(":", 1) for row in open("/proc/self/status"))
        print(os.getresuid(), os.getresgid(), os.getgroups(), dict(os.environ).get("PATH"), os.getcwd())
        print([rows[key].strip() for key in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs")])
        sys.stderr.write("last words")
        sys.exit(3)
    """
    host.say("begin", **command(program, tmp_path))
    assert host.receive() == {"begun": {}}
    with host.stdio.makefile("rb") as output:
        first, second = output.readline(), output.readline()
    assert first == b"(65534, 65534, 65534) (65533, 65533, 65533) [] /usr/bin /\n"
    assert second == b"['0000000000000000', '0000000000000000', '0000000000000000', '1']\n"
    ended = {"code": 3, "signal": None, "oom": False, "pids": True, "said": "last words"}
    assert host.receive() == {"ended": ended}


def test_a_command_that_is_killed(host: Host, tmp_path: Path) -> None:
    """The signal is reported; `cpu` and `ping` are answered at any time."""
    host.say("ping", id=1)
    assert host.receive() == {"pong": {"id": 1}}
    host.say("begin", **command("import os; os.kill(os.getpid(), 9)", tmp_path))
    assert host.receive() == {"begun": {}}
    ended = host.receive()["ended"]
    assert (ended["code"], ended["signal"]) == (None, signal.SIGKILL)
    host.say("cpu", id=2)
    assert host.receive() == {"cpu": {"id": 2, "seconds": 1.5}}


def test_a_command_that_is_not_there(host: Host, tmp_path: Path) -> None:
    """The end has the reason."""
    host.say("begin", **{**command("", tmp_path), "command": ["/nowhere"]})
    assert host.receive() == {"begun": {}}
    ended = host.receive()["ended"]
    assert ended["code"] == 127
    assert "cannot start /nowhere" in ended["said"]


def test_a_machine_that_cannot_be_set_up(host: Host, tmp_path: Path) -> None:
    """Nothing is started then."""
    host.say("begin", **command("", tmp_path, tmpfs={"/nowhere": 1}))
    assert "the machine cannot be set up" in host.receive()["failed"]["reason"]


def test_orphans_are_collected(host: Host, tmp_path: Path) -> None:
    """The end of another process is not that of the guest."""
    program = (
        "import os, time\nif os.fork() == 0:\n  if os.fork(): os._exit(1)\n  os._exit(2)\nos.wait(); print('later')"
    )
    host.say("begin", **command(program, tmp_path))
    assert host.receive() == {"begun": {}}
    assert host.stdio.recv(100) == b"later\n"
    assert host.receive()["ended"]["code"] == 0


@pytest.mark.parametrize(
    "data", [b"x" * (70 << 10), b"nonsense\n", b'{"halt": {}}\n', b'{"load": {"bytes": -1, "warm": []}}\n']
)
def test_what_the_host_cannot_mean_ends_it(host: Host, data: bytes) -> None:
    """With the reason."""
    host.control.sendall(data)
    assert "reason" in host.receive()["failed"]
    assert host.process.wait(30) == 0


def test_a_waiting_guest_begins(host: Host, tmp_path: Path) -> None:
    """A guest that was loaded before serves the guest protocol at once."""
    program = zygote_bytes()
    host.say("load", program, bytes=len(program), warm=["python"])
    assert host.receive() == {"loaded": {}}
    words = boot_command(GuestSettings(init=False, drop=("no_new_privileges",), work="/"))
    host.say("begin", **{**command("", tmp_path), "command": list(words)})
    assert host.receive() == {"begun": {}}
    frames = host.frames()
    hello = next(frames)
    assert hello["type"] == "hello"
    assert hello["payload"]["undropped"] == []
    host.send_frame(type="hello", id="0", payload=hello["payload"])
    code = "import os, random\nreturn [os.getuid(), random.random()]"
    host.send_frame(type="execute", id="1", payload={"language": "python", "code": code})
    result = next(frame for frame in frames if frame["type"] == "result")
    assert result["payload"]["value"][0] == 65534
    host.send_frame(type="bye", id="2", payload={})
    assert host.receive()["ended"]["code"] == 0


def test_a_waiting_guest_executes_any_other_command(host: Host, tmp_path: Path) -> None:
    """In its place."""
    program = zygote_bytes()
    host.say("load", program, bytes=len(program), warm=[])
    assert host.receive() == {"loaded": {}}
    host.say(
        "begin", **{**command("", tmp_path), "command": ["/bin/sh", "-c", "id -u; echo $HOME"], "env": {"HOME": "/x"}}
    )
    assert host.receive() == {"begun": {}}
    assert host.stdio.makefile("rb").readline() == b"65534\n"
    assert host.receive()["ended"]["code"] == 0


def started(**more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A `load` that has the whole guest, and the `begin` that repeats it."""
    words = boot_command(GuestSettings(init=False, drop=("no_new_privileges",), work="/"))
    whole = begin(**{"command": list(words), "work": "/", "tmpfs": {}, **more})
    guest = {key: value for key, value in whole.items() if key not in ("time_ns", "entropy")}
    return {"bytes": len(zygote_bytes()), "warm": [], "guest": guest}, whole


@pytest.mark.parametrize("more", [{}, {"pids": 7}])
def test_a_guest_that_is_started_before_the_snapshot(host: Host, more: dict[str, Any]) -> None:
    """A started guest says hello once it begins, with the rights of its user; limits may be others by then."""
    load, whole = started()
    host.say("load", zygote_bytes(), **load)
    assert host.receive() == {"loaded": {}}
    host.stdio.setblocking(False)
    with pytest.raises(BlockingIOError):
        host.stdio.recv(1)
    host.stdio.settimeout(30)
    host.say("begin", **{**whole, **more})
    assert host.receive() == {"begun": {}}
    frames = host.frames()
    hello = next(frames)
    assert (hello["type"], hello["payload"]["undropped"]) == ("hello", [])
    host.send_frame(type="hello", id="0", payload=hello["payload"])
    code = "import os\nprint(os.getresuid(), os.getcwd(), os.environ['HOME'], os.listdir('/proc/self/fd')[:4])"
    host.send_frame(type="execute", id="1", payload={"language": "python", "code": code})
    printed = next(frame for frame in frames if frame["type"] == "print")["payload"]["text"]
    assert printed.startswith("(65534, 65534, 65534) / / ['0', '1', '2', '3']")
    host.send_frame(type="bye", id="2", payload={})
    assert host.receive()["ended"]["code"] == 0


def test_another_guest_than_the_one_that_was_started(host: Host) -> None:
    """The reason names what differs."""
    load, whole = started()
    host.say("load", zygote_bytes(), **load)
    assert host.receive() == {"loaded": {}}
    host.say("begin", **{**whole, "env": {}, "open_files": 99})
    assert host.receive() == {"failed": {"reason": "the guest was started with another env and open_files"}}


def test_a_host_that_connects_again(tmp_path: Path) -> None:
    """As over vsock, where a restore ends all connections: nothing that was loaded is lost."""
    sockets = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for number, end in enumerate(sockets):
        end.bind(str(tmp_path / str(number)))
        end.listen()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *(str(end.fileno()) for end in sockets), "listening"],
        pass_fds=[end.fileno() for end in sockets],
    )

    def connected(number: int) -> socket.socket:
        end = socket.socket(socket.AF_UNIX)
        end.settimeout(30)
        end.connect(str(tmp_path / str(number)))
        return end

    load, whole = started()
    try:
        with connected(0) as first, first.makefile("rb") as lines:
            assert "ready" in json.loads(lines.readline())
            first.sendall(json.dumps({"load": load}).encode() + b"\n" + zygote_bytes())
            assert json.loads(lines.readline()) == {"loaded": {}}
        with connected(0) as second, second.makefile("rb") as lines, connected(1) as stdio:
            second.sendall(json.dumps({"begin": whole}).encode() + b"\n")
            assert json.loads(lines.readline()) == {"begun": {}}
            assert b'"type":"hello"' in stdio.recv(4096)
        assert process.wait(30) == 0  # the host of a machine that has begun does not come back
    finally:
        process.kill()
        process.wait()
        for end in sockets:
            end.close()


def test_a_program_that_cannot_be_loaded(host: Host) -> None:
    """The reason is what it wrote."""
    text = b"import sys; sys.stderr.write('too bad'); sys.exit(4)"
    host.say("load", len(text).to_bytes(4, "big") + text, bytes=len(text) + 4, warm=[])
    assert "too bad" in host.receive()["failed"]["reason"]


@pytest.mark.parametrize("after", [False, True])
def test_messages_out_of_turn(host: Host, tmp_path: Path, after: bool) -> None:
    """A `begin` before `loaded`, and a second one, end it."""
    if after:
        host.say("begin", **command("import time; time.sleep(60)", tmp_path))
        assert host.receive() == {"begun": {}}
    else:
        text = b"import time; time.sleep(60)"
        host.say("load", len(text).to_bytes(4, "big") + text, bytes=len(text) + 4, warm=[])
    host.say("begin", **command("", tmp_path))
    assert "begin comes" in host.receive()["failed"]["reason"]
