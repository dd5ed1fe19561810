"""Streams that survive their connections: what arrives, whatever is lost, doubled, cut or made up on the way."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from toolexec_kubernetes.link import Link
from toolexec_kubernetes.spec import link_command


def exchange(seed: int) -> tuple[Link, Link, bytes, bytes, bytes, bytes]:
    """Have two ends send each other bytes over connections that break; return them, what was sent, and what came."""
    chance = random.Random(seed)
    here, there = Link(), Link()
    sent, came = (bytearray(), bytearray()), (bytearray(), bytearray())
    wires = bytearray(), bytearray()
    for step in range(400):
        for number, end in enumerate((here, there)):
            if step < 200 and chance.random() < 0.3:
                data = chance.randbytes(chance.choice((0, 1, 10, 3000))).replace(
                    b"\x07", chance.choice((b"\n", b"\x1b"))
                )
                sent[number].extend(data)
                wires[number].extend(end.send(data))
            size = chance.randrange(1, 5000)
            moved, wires[number][:] = bytes(wires[number][:size]), wires[number][size:]
            if step < 200 and chance.random() < 0.05:  # a connection breaks: what is under way is lost on both wires
                for wire in wires:
                    wire[chance.randrange(len(wire) + 1) :] = b""
                moved = moved[: chance.randrange(len(moved) + 1)]
                wires[0].extend(here.hello())
            if step < 200 and chance.random() < 0.05:
                moved += moved + chance.randbytes(9)
            brought, answer = (there, here)[number].take(moved)
            came[number].extend(brought)
            wires[1 - number].extend(answer)
        if step % 50 == 49:
            wires[0].extend(here.hello())
    while wires[0] or wires[1]:
        for number in (0, 1):
            moved = bytes(wires[number])
            wires[number].clear()
            brought, answer = (there, here)[number].take(moved)
            came[number].extend(brought)
            wires[1 - number].extend(answer)
    return here, there, bytes(sent[0]), bytes(came[0]), bytes(sent[1]), bytes(came[1])


def test_each_byte_arrives_once_and_in_order() -> None:
    """Two ends agree on every byte, over connections that are cut anywhere and bring bytes twice, or strange ones."""
    for seed in range(60):
        _, _, there, came_there, back, came_back = exchange(seed)
        assert came_there == there, seed
        assert came_back == back, seed
        assert len(there) > 10_000


def test_what_the_other_end_has_is_not_kept() -> None:
    """Memory is bounded by what is under way."""
    here, there = Link(), Link()
    for _ in range(100):
        data, answer = there.take(here.send(b"x" * 40_000))
        assert len(data) == 40_000
        here.take(answer)
        assert here.waiting < 1 << 17


@pytest.mark.parametrize(
    "data", [b"\n", b"D\n", b"x" * 300_000, b"x" * 300_000 + b"\n", b"\x1b\x1b\n" * 100, bytes(range(256)) * 20]
)
def test_bytes_that_are_no_frames_are_left_out(data: bytes) -> None:
    """An end leaves such bytes out, does not keep them, and at most asks for what it lacks."""
    here, there = Link(), Link()
    brought, answer = there.take(data)
    assert brought == b""
    assert len(answer) < 100
    assert there.take(b"\n" + here.send(b"fine"))[0] == b"fine"


def test_an_end_that_lies_about_what_it_has_is_not_believed() -> None:
    """A frame that says to have what was never sent counts for nothing."""
    here, liar = Link(), Link()
    liar.take(Link().send(b"x" * 1000))
    here.take(liar.send(b"y"))
    assert here.frames == 0
    assert here.waiting == 0


def test_an_end_that_asks_again_and_again_gets_little() -> None:
    """One answer has a bound, however much is kept and however often it is asked for; the rest comes after it."""
    here, there = Link(), Link()
    for number in range(100):
        here.send(bytes([number]) * 40_000)
    _, answer = here.take(there.hello() * 1000)
    assert len(answer) < 2 << 20
    came = b""
    while answer:
        brought, question = there.take(answer)
        came += brought
        _, answer = here.take(question)
    assert came == b"".join(bytes([number]) * 40_000 for number in range(100))


def test_the_end_comes_last_and_is_asked_for_again() -> None:
    """Last words arrive after everything else, also when their first frame is lost."""
    here, there = Link(), Link()
    first, last = here.send(b"one"), here.end(b"7")
    there.take(first)
    assert (there.ended, here.waiting) == (None, 4)
    _, answer = there.take(here.hello())
    _, again = here.take(answer)
    brought, answer = there.take(again + last)
    assert (brought, there.ended) == (b"", b"7")
    here.take(answer)
    assert here.waiting == 0


@contextmanager
def linked(*command: str, quiet: float = 60) -> Iterator[subprocess.Popen[bytes]]:
    """Run the program of a pod, as its command says."""
    words = [*link_command(command)]
    words[5] = str(quiet)
    env = {"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_PORT": "", "KUBERNETESX": "1"}
    with subprocess.Popen(words, stdin=-1, stdout=-1, stderr=-1, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def listen(process: subprocess.Popen[bytes], link: Link, size: int) -> bytes:
    """Return what the command says, *size* bytes or all until its end."""
    assert process.stdin is not None
    assert process.stdout is not None
    came = b""
    while len(came) < size and link.ended is None:
        assert select.select([process.stdout], [], [], 30)[0], came[-100:]
        brought, answer = link.take(os.read(process.stdout.fileno(), 1 << 16))
        came += brought
        os.write(process.stdin.fileno(), answer)
    return came


def put(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    os.write(process.stdin.fileno(), data)


def test_a_command_runs_at_the_other_end() -> None:
    """The command has stdin and stdout, an exit code, and no variables of services; its end waits until it was received."""
    with linked("sh", "-c", "env | grep KUBER; read line; echo got $line; exit 7") as process:
        link = Link()
        put(process, link.hello() + link.send(b"it\n"))
        assert listen(process, link, 1 << 20) == b"KUBERNETESX=1\ngot it\n"
        assert link.ended == b"7"
        assert process.wait(30) == 7


def test_what_came_over_a_broken_connection_is_said_again() -> None:
    """A connection that broke lost all that came over it; the next one brings it."""
    with linked("sh", "-c", "read line; seq 1 3000; read line") as process:
        link = Link()
        put(process, link.hello() + link.send(b"\n"))
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1 << 16)  # and it is lost
        put(process, link.send(b"half a frame\n")[:20])
        put(process, link.hello())
        assert listen(process, link, 13_893) == b"".join(b"%d\n" % number for number in range(1, 3001))
        assert listen(process, link, 1 << 20) == b""
        assert process.wait(30) == 0


def test_a_command_that_was_killed_has_the_code_of_shells() -> None:
    """The code of the container says why it ended."""
    with linked("sh", "-c", "read line; kill -9 $$") as process:
        link = Link()
        put(process, link.hello() + link.send(b"\n"))
        listen(process, link, 1 << 20)
        assert process.wait(30) == 137


def test_a_command_without_a_host_ends() -> None:
    """A host that is silent for too long is gone, and a pod that is to go ends at once."""
    with linked("sleep", "600", quiet=0.1) as process:
        put(process, Link().hello())
        assert process.wait(30) == 75
    with linked("sh", "-c", "echo; sleep 600") as process:
        link = Link()
        put(process, link.hello())
        listen(process, link, 1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 143


def test_the_end_of_input_reaches_the_command() -> None:
    """A guest ends by itself then."""
    with linked("cat") as process:
        link = Link()
        data = os.urandom(3 << 20)
        put(process, link.hello())
        came = b""
        for start in range(0, len(data), 1 << 17):
            put(process, link.send(data[start : start + (1 << 17)]))
            came += listen(process, link, min(1 << 17, len(data) - start))
        put(process, link.end())
        came += listen(process, link, 1 << 30)
        assert came == data
        assert process.wait(30) == 0


def test_a_command_that_is_not_there_is_named() -> None:
    """Its name is on stderr, where the log of a pod has it."""
    with linked("no-such-command") as process:
        assert process.stderr is not None
        assert b"no-such-command cannot be started" in process.stderr.read()
        assert process.wait(30) == 127
