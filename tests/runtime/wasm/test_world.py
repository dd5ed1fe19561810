"""What a guest sees of the world: streams, time, chance, the process, and no network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from toolexec.runtime.wasm.guest import InstanceFailed

Make = Callable[..., Any]


def test_exchange_and_post_reach_the_host(sandbox: Make) -> None:
    """Text of any kind and size goes over and back."""
    one = sandbox()
    text = "naïve \N{SNOWMAN} \0"
    assert one.run(f"value = exchange({text!r})") == text.upper()
    assert one.run("value = len(exchange('ä' * 1_000_000))") == 1_000_000
    assert one.run("post('first'); post(''); value = exchange('')") == ""
    assert one.host.posted == ["first", ""]


def test_prints_and_raw_writes_reach_the_host(sandbox: Make) -> None:
    """Whatever way they take through the guest."""
    one = sandbox()
    one.run("print('out'); print('err', file=sys.stderr); os.write(1, b'raw'); os.write(2, b'!')")
    assert one.host.printed == {"stdout": b"out\nraw", "stderr": b"err\n!"}


def test_a_flood_of_output_is_dropped_and_counted(sandbox: Make) -> None:
    """The guest goes on, the host keeps no more than the limit."""
    one = sandbox(output_bytes=1000)
    assert one.run("for _ in range(500): print('x' * 9_999)\nvalue = 'done'") == "done"
    assert one.host.printed["stdout"] == b"x" * 1000
    assert one.instance.output_dropped == 500 * 10_000 - 1000


def test_input_is_empty(sandbox: Make) -> None:
    """Reading ends at once."""
    code = """
        try: input()
        except EOFError: value = [sys.stdin.read(), os.read(0, 10).decode(), sys.stdout.isatty()]
    """
    assert sandbox().run(code) == ["", "", False]


def test_the_environment_is_what_was_granted(sandbox: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the host's is in it."""
    monkeypatch.setenv("TOOLEXEC_SECRET", "s3cret")
    granted = sandbox(env={"LANG": "C.UTF-8"}).run("os.reload_environ(); value = dict(os.environ)")
    assert granted == {"LANG": "C.UTF-8"}
    assert sandbox().run("os.reload_environ(); value = dict(os.environ)") == {}


def test_a_virtual_clock_is_seen_everywhere(sandbox: Make) -> None:
    """In times of day, in sleeps and in the dates of files; a long sleep takes no time."""
    code = """
        import datetime
        before = time.monotonic()
        time.sleep(1_000_000)
        open('a', 'w').close()
        value = [
            str(datetime.datetime.now())[:16], round(time.monotonic() - before), round(os.stat('a').st_mtime - time.time())
        ]
    """
    assert sandbox(clock=1_000_000_000).run(code) == ["2001-09-20 15:33", 1_000_000, 0]


def test_a_run_can_be_replayed(sandbox: Make) -> None:
    """With one seed and one clock, all that chance and time decide comes out the same; with another, otherwise."""
    code = """
        import secrets, uuid, tempfile
        value = [
            random.SystemRandom().random(), secrets.token_hex(), str(uuid.uuid4()), os.urandom(3).hex(), time.time(),
            time.perf_counter(), tempfile.mktemp(), time.process_time(),
        ]
    """
    first = sandbox(seed=1, clock=5.0).run(code)
    assert sandbox(seed=1, clock=5.0).run(code) == first
    assert sandbox(seed=2, clock=5.0).run(code)[:4] != first[:4]
    assert sandbox().run(code)[:4] != sandbox().run(code)[:4]


def test_real_time_passes(sandbox: Make) -> None:
    """A sleep takes at least its time, and waiting for several things ends with the first."""
    code = """
        before = time.monotonic()
        time.sleep(0.02)
        slept = time.monotonic() - before
        value = [slept >= 0.02, select.select([0], [1], [], 60), select.select([], [], [], 0.01)]
    """
    assert sandbox().run(code) == [True, [[0], [1], []], [[], [], []]]


def test_there_is_no_network(sandbox: Make) -> None:
    """Neither sockets nor names: a clean error, and the program goes on."""
    code = """
        value = []
        for use in (socket.socket, lambda: socket.socket(type=socket.SOCK_DGRAM), lambda: socket.getaddrinfo(b'a.b', 1)):
            try: use()
            except OSError as error: value.append(type(error).__name__)
    """
    assert sandbox().run(code) == ["PermissionError"] * 3


def test_there_are_no_processes_and_no_threads(sandbox: Make) -> None:
    """Starting one is an error of the program, too."""
    code = """
        import subprocess, threading
        value = []
        for use in (lambda: subprocess.run(['ls']), threading.Thread(target=print).start):
            try: use()
            except (OSError, RuntimeError) as error: value.append(type(error).__name__)
    """
    assert sandbox().run(code) == ["OSError", "RuntimeError"]


@pytest.mark.parametrize(("code", "exit_code"), [("os._exit(0)", 0), ("os._exit(7)", 1), ("raise SystemExit", 0)])
def test_ending_the_process_is_told_apart(sandbox: Make, code: str, exit_code: int) -> None:
    """The interface tells success and failure only; the guest is over."""
    with pytest.raises(InstanceFailed) as caught:
        sandbox().run(code)
    assert (caught.value.reason, caught.value.exit_code) == ("exit", exit_code)


def test_a_guest_that_waits_for_nothing_ends(sandbox: Make) -> None:
    """Such a guest would never wake up."""
    with pytest.raises(InstanceFailed, match="waits for nothing") as caught:
        sandbox().run("select.select([], [], [])")
    assert caught.value.reason == "trap"
