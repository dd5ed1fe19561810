"""What code prints is kept within a bound."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from toolexec.code.types import Output


def test_two_streams() -> None:
    """Each keeps its own text, in order."""
    output = Output()
    output.write("a")
    output.write("x", "stderr")
    output.write("b\n")
    assert (output.text(), output.text("stderr"), output.dropped) == ("ab\n", "x", 0)


def test_the_rest_is_dropped_and_counted() -> None:
    """Keeps all that fits, even of the string that no longer does; the end counts what is missing."""
    output = Output(limit=5)
    output.write("abc")
    output.write("defg")
    output.write("hi")
    assert output.text() == "abcde\n... output limit reached: 4 more characters were dropped\n"
    assert output.dropped == 4


def test_each_stream_has_its_own_room() -> None:
    """A flood on one does not silence the other."""
    output = Output(limit=2)
    output.write("x" * 1000)
    output.write("!!", "stderr")
    assert output.text("stderr") == "!!"
    assert output.dropped == 998


def test_a_listener_hears_what_is_kept() -> None:
    """Only that, and nothing for nothing."""
    received: list[tuple[str, str]] = []
    output = Output(limit=3, tell=lambda stream, text: received.append((stream, text)))
    output.write("")
    output.write("ab")
    output.write("cd", "stdout")
    output.write("e")
    output.write("f", "stderr")
    assert received == [("stdout", "ab"), ("stdout", "c"), ("stderr", "f")]


def test_many_threads() -> None:
    """Nothing is lost and nothing is kept twice."""
    output = Output(limit=5000)

    def write(_: int) -> None:
        for _ in range(1000):
            output.write("x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert output.text().startswith("x" * 5000 + "\n")
    assert output.dropped == 3000
