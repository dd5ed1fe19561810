"""Bodies are decoded as they arrive, whatever the pieces, and never longer than they may be."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolexec.net.decode import Body, BodyError


def raw(data: bytes) -> bytes:
    """`deflate` without the header of zlib."""
    made = zlib.compressobj(9, zlib.DEFLATED, -15)
    return made.compress(data) + made.flush()


def members(data: bytes) -> bytes:
    """Two members of gzip, with an empty one between them."""
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(b"") + gzip.compress(data[half:])


def decoded(encoding: str, data: bytes, size: int, limit: int = 10**7) -> bytes:
    """What comes out when *data* arrives in pieces of *size*."""
    body = Body(encoding, limit)
    for start in range(0, len(data), size):
        body.feed(data[start : start + size])
    return body.finish()


ENCODERS = {"gzip": gzip.compress, "x-gzip": members, "deflate": zlib.compress, "DEFLATE ": raw, "": bytes}


@given(data=st.binary(max_size=2000), size=st.integers(1, 700), encoding=st.sampled_from(sorted(ENCODERS)))
def test_any_pieces(data: bytes, size: int, encoding: str) -> None:
    """The same comes out, however it was cut."""
    assert decoded(encoding, ENCODERS[encoding](data), size) == data


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [1 << 18, (1 << 18) + 1, 3 << 18, 1_000_000])
def test_output_of_several_steps(encoding: str, size: int) -> None:
    """Nothing is lost where the output of one piece fills a step, or several, exactly."""
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert decoded(encoding, ENCODERS[encoding](data), 1 << 20) == data


@given(data=st.binary(max_size=300), encoding=st.sampled_from(["gzip", "deflate"]))
def test_rubbish(data: bytes, encoding: str) -> None:
    """Bytes in no valid encoding are refused or, by chance, decoded; nothing else happens."""
    try:
        decoded(encoding, data, 50)
    except BodyError:
        pass


def test_limits() -> None:
    """The limit holds for what is decoded, and for what is not."""
    assert decoded("", bytes(100), 7, limit=100) == bytes(100)
    for encoding in ("", "gzip", "deflate"):
        with pytest.raises(BodyError, match="longer than 99 bytes"):
            decoded(encoding, ENCODERS[encoding](bytes(100)), 7, limit=99)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bombs(encoding: str) -> None:
    """A body that grows without measure is refused before it has grown, whatever the limit."""
    with pytest.raises(BodyError, match="300 times"):
        decoded(encoding, ENCODERS[encoding](bytes(8 << 20)), 1 << 16, limit=1 << 40)


def test_empty_members_without_end() -> None:
    """Bodies that decode to nothing are bounded, too."""
    with pytest.raises(BodyError, match="longer than 5000 bytes"):
        decoded("gzip", gzip.compress(b"") * 10_000, 1000, limit=5000)


def test_what_follows_the_end() -> None:
    """Bytes after the end are refused."""
    with pytest.raises(BodyError, match="goes on after its end"):
        decoded("deflate", zlib.compress(b"x") + b"more", 100)
    with pytest.raises(BodyError, match="cannot be decoded"):
        decoded("gzip", gzip.compress(b"x") + b"more", 100)
