"""A secret that a server sends back does not reach code, however it is spelled, cut into parts or compressed."""

from __future__ import annotations

import asyncio
import base64
import bz2
import gzip
import html
import json
import lzma
import quopri
import random
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.runtime.egress.conftest import Handler, Server, policy

from toolexec.runtime.containers.network import Network
from toolexec.runtime.egress import Egress, Secret
from toolexec.runtime.egress.hiding import Compressed, Mask
from toolexec.runtime.egress.secrets import KnownSecrets, Masked

TOKEN: Final = "s3cr3t Value/With+Signs=and<more>&\"q'\\end%41"


class Spelling(NamedTuple):
    """How a server writes what it was given, and how a reader gets it back."""

    write: Callable[[str], bytes]
    read: Callable[[bytes], str]


def every(text: str, form: Callable[[str], str]) -> bytes:
    return "".join(map(form, text)).encode()


def utf16_escapes(text: str, form: str = "\\u{:04x}") -> str:
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(form.format(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))


def python_literal(data: bytes) -> str:
    return data.decode("unicode_escape")


def base64_lines(text: str) -> bytes:
    return base64.encodebytes(b"user:" + text.encode() * 3)


SPELLINGS: Final[dict[str, Spelling]] = {
    "as it is": Spelling(str.encode, bytes.decode),
    "JSON": Spelling(lambda t: json.dumps(t).encode(), json.loads),
    "JSON with slashes": Spelling(lambda t: json.dumps(t).replace("/", "\\/").encode(), json.loads),
    "JSON, all escaped": Spelling(lambda t: f'"{utf16_escapes(t)}"'.encode(), json.loads),
    "JSON, upper case": Spelling(lambda t: f'"{utf16_escapes(t, chr(92) + "u{:04X}")}"'.encode(), json.loads),
    "JSON for HTML": Spelling(
        lambda t: json.dumps(t).translate({38: "\\u0026", 60: "\\u003c", 62: "\\u003E", 43: "\\u002B"}).encode(),
        json.loads,
    ),
    "JSON within JSON": Spelling(
        lambda t: json.dumps(json.dumps({"a": json.dumps(t)})).encode(),
        lambda d: json.loads(json.loads(json.loads(d))["a"]),
    ),
    "Python repr": Spelling(lambda t: repr(t.encode())[2:-1].encode(), python_literal),
    "hex escapes": Spelling(lambda t: every(t, lambda c: f"\\x{ord(c):02x}"), python_literal),
    "octal escapes": Spelling(lambda t: every(t, lambda c: f"\\{ord(c):03o}"), python_literal),
    "long escapes": Spelling(lambda t: every(t, lambda c: f"\\U{ord(c):08X}"), python_literal),
    "percent": Spelling(lambda t: quote(t, safe="").encode(), lambda d: unquote_plus(d.decode())),
    "percent, lower case": Spelling(lambda t: every(t, lambda c: f"%{ord(c):02x}"), lambda d: unquote_plus(d.decode())),
    "form": Spelling(lambda t: quote_plus(t).encode(), lambda d: unquote_plus(d.decode())),
    "percent, three times": Spelling(
        lambda t: quote(quote(quote_plus(t))).encode(), lambda d: unquote_plus(unquote_plus(unquote_plus(d.decode())))
    ),
    "HTML": Spelling(lambda t: html.escape(t).encode(), lambda d: html.unescape(d.decode())),
    "HTML, named": Spelling(
        lambda t: t.translate({43: "&plus;", 47: "&sol;", 61: "&equals;", 38: "&AMP;", 60: "&LT;"}).encode(),
        lambda d: html.unescape(d.decode()),
    ),
    "HTML, decimal": Spelling(lambda t: every(t, lambda c: f"&#{ord(c):05};"), lambda d: html.unescape(d.decode())),
    "HTML, hex": Spelling(lambda t: every(t, lambda c: f"&#x{ord(c):X};"), lambda d: html.unescape(d.decode())),
    "HTML, twice": Spelling(
        lambda t: html.escape(html.escape(t)).encode(), lambda d: html.unescape(html.unescape(d.decode()))
    ),
    "HTML within JSON": Spelling(lambda t: json.dumps(html.escape(t)).encode(), lambda d: html.unescape(json.loads(d))),
    "quoted-printable": Spelling(
        lambda t: quopri.encodestring(t.encode() * 2), lambda d: quopri.decodestring(d).decode()
    ),
    "UTF-16": Spelling(lambda t: t.encode("utf-16"), lambda d: d.decode("utf-16")),
    "UTF-16, big end first": Spelling(lambda t: t.encode("utf-16-be"), lambda d: d.decode("utf-16-be")),
    "UTF-32": Spelling(lambda t: t.encode("utf-32"), lambda d: d.decode("utf-32")),
    "JSON in UTF-16": Spelling(
        lambda t: json.dumps(t).encode("utf-16-le"), lambda d: json.loads(d.decode("utf-16-le"))
    ),
    "base64": Spelling(lambda t: base64.b64encode(t.encode()), lambda d: base64.b64decode(d).decode()),
    "base64, one before": Spelling(
        lambda t: base64.b64encode(b"u" + t.encode()), lambda d: base64.b64decode(d).decode()
    ),
    "base64, two before": Spelling(
        lambda t: base64.b64encode(b"u:" + t.encode() + b"x"), lambda d: base64.b64decode(d).decode()
    ),
    "base64 for URLs": Spelling(
        lambda t: base64.urlsafe_b64encode(b"u:" + t.encode()), lambda d: base64.urlsafe_b64decode(d).decode()
    ),
    "base64 in lines": Spelling(base64_lines, lambda d: base64.decodebytes(d).decode()),
    "base64 in JSON": Spelling(
        lambda t: json.dumps(base64_lines(t).decode()).replace("/", "\\/").encode(),
        lambda d: base64.b64decode(json.loads(d)).decode(),
    ),
    "base64 in a URL": Spelling(
        lambda t: quote(base64.b64encode(t.encode())).encode(),
        lambda d: base64.b64decode(unquote_plus(d.decode())).decode(),
    ),
    "base64 of UTF-16": Spelling(
        lambda t: base64.b64encode(t.encode("utf-16-le")), lambda d: base64.b64decode(d).decode("utf-16-le")
    ),
    "hex": Spelling(lambda t: t.encode().hex().encode(), lambda d: bytes.fromhex(d.decode()).decode()),
    "hex, upper case": Spelling(
        lambda t: t.encode().hex().upper().encode(), lambda d: bytes.fromhex(d.decode()).decode()
    ),
    "hex dump": Spelling(lambda t: t.encode().hex(" ").encode(), lambda d: bytes.fromhex(d.decode()).decode()),
    "hex with colons": Spelling(
        lambda t: t.encode().hex(":").encode(), lambda d: bytes.fromhex(d.decode().replace(":", "")).decode()
    ),
}


def decompressed(data: bytes, make: Callable[[], Any]) -> str:
    """Return the readable part of a compressed file, though its end may be missing."""
    text = b""
    while data:
        decoder = make()
        text += decoder.decompress(data)
        data = decoder.unused_data
    return text.decode("utf-8", "replace")


def unzipped(data: bytes) -> str:
    return decompressed(data, lambda: zlib.decompressobj(31))


COMPRESSED: Final[dict[str, Spelling]] = {
    "gzip": Spelling(lambda t: gzip.compress(t.encode()), unzipped),
    "gzip of base64": Spelling(
        lambda t: gzip.compress(base64.b64encode(t.encode())), lambda d: base64.b64decode(unzipped(d)).decode()
    ),
    "two gzip files": Spelling(lambda t: gzip.compress(b"first") + gzip.compress(t.encode()), unzipped),
    "zlib": Spelling(lambda t: zlib.compress(t.encode()), lambda d: decompressed(d, zlib.decompressobj)),
    "bzip2": Spelling(lambda t: bz2.compress(t.encode()), lambda d: decompressed(d, bz2.BZ2Decompressor)),
    "xz": Spelling(lambda t: lzma.compress(t.encode()), lambda d: decompressed(d, lzma.LZMADecompressor)),
}


def cut(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in cuts})
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def passed(values: Iterable[str], parts: Iterable[bytes]) -> bytes:
    """Return what comes out of a body in *parts* after *values* were used."""
    known = KnownSecrets()
    for value in values:
        known.add(value)
    masked = Masked(known)
    return b"".join([*(masked.feed(part) for part in parts), masked.finish()])


@pytest.mark.parametrize("name", SPELLINGS)
def test_spellings(name: str) -> None:
    """Each spelling has the secret in it, and none is left, wherever it is cut."""
    write, read = SPELLINGS[name]
    said = write(TOKEN)
    assert TOKEN in read(said)
    assert passed(["another-secret"], [said]) == said
    whole = passed([TOKEN], [said])
    assert len(whole) == len(said)
    assert left_of(TOKEN, whole, read) == 0
    for step in (1, 7):
        assert passed([TOKEN], cut(said, range(0, len(said), step))) == whole


def left_of(secret: str, said: bytes, read: Callable[[bytes], str]) -> int:
    """Return how many characters of *secret* can be read together in *said* (0 for less than a few)."""
    try:
        text = read(said)
    except ValueError:
        text = said.decode("latin-1")
    pieces = (secret[at : at + 6] for at in range(len(secret) - 5))
    return sum(piece in text for piece in pieces)


ONE: Final = st.sampled_from(
    [
        str,
        lambda c: utf16_escapes(c),
        lambda c: utf16_escapes(c, "\\u{:04X}"),
        lambda c: "\\\\" + utf16_escapes(c),
        lambda c: f"\\u{{{ord(c):x}}}",
        lambda c: f"\\U{ord(c):08x}",
        lambda c: quote(c, safe="") if not c.isalnum() or not c.isascii() else f"%{ord(c):02x}",
        lambda c: quote(c, safe="").replace("%", "%2525"),
        lambda c: "".join(f"={byte:02X}" for byte in c.encode()),
        lambda c: f"&#{ord(c)};",
        lambda c: f"&#X{ord(c):06x};",
        lambda c: f"&amp;amp;#{ord(c)};",
        lambda c: html.escape(c),
        lambda c: c if c.isalnum() or c == "\\" else f"\\{c}",
        lambda c: c + "=\r\n",
    ]
)
CHARACTERS: Final = st.characters(min_codepoint=0x21, max_codepoint=0x1F600, exclude_categories=["Cs", "Cc", "Cn"])
SECRETS: Final = st.one_of(
    st.text(CHARACTERS, min_size=8, max_size=20), st.text("%\\&=+25;/a", min_size=8, max_size=12)
)
AROUND: Final = st.text("ab5\\%&=+#; \n\0", max_size=8)


@given(
    secret=SECRETS,
    forms=st.lists(ONE, min_size=1, max_size=20),
    before=AROUND,
    after=AROUND,
    wide=st.sampled_from(["utf-8", "utf-16-le", "utf-16-be"]),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
@example(secret="%25%25ab", forms=[str], before="%", after="", wide="utf-8", cuts=[3])
@example(secret="nsecret-value", forms=[str], before="\\", after="", wide="utf-8", cuts=[])
@example(secret="2Asecret-value", forms=[str], before="%", after="", wide="utf-8", cuts=[])
@example(secret="\\\\\\\\\\\\\\\\", forms=[str], before="\\", after="\\", wide="utf-8", cuts=[1])
@settings(max_examples=150, derandomize=True, deadline=None)
def test_any_mixture(secret: str, forms: list[Any], before: str, after: str, wide: str, cuts: list[int]) -> None:
    """Each character may be spelled in another way, among any other text, in parts of any size."""
    spelled = "".join(forms[at % len(forms)](char) for at, char in enumerate(secret)).removesuffix("=\r\n")
    start, inside, end = (text.encode(wide) for text in (before, spelled, after))
    if wide != "utf-8" and not spelled.isascii():
        inside = secret.encode(wide)  # what is not ASCII is found in UTF-16 where nothing in it is escaped
    said = start + inside + end
    got = passed([secret], cut(said, cuts))
    assert len(got) == len(said)
    middle = got[len(start) : len(start) + len(inside)]
    assert {*middle} <= {ord("*"), 0}
    assert middle.count(b"*") == len(inside) - inside.count(0)


@given(data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 300), max_size=5))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_other_bytes_stay_what_they_are(data: bytes, cuts: list[int]) -> None:
    """Bytes without a secret pass as they are, however they are cut."""
    assert passed([TOKEN, "another-secret"], cut(data, cuts)) == data


@pytest.mark.parametrize(
    "flood", [b"\\" * 5000, b"&amp;" * 1000, b"%25" * 1000, b"=\r\n" * 1000, b"&#0000000000" * 400]
)
def test_floods_are_not_kept_back(flood: bytes) -> None:
    """However much looks like the start of a spelling, only a little of it waits for more."""
    mask = Mask([TOKEN])
    hidden, kept = mask.cut(flood, final=False)
    assert hidden + kept == flood
    assert len(kept) < 200
    for text in (b"czNjcjN0", b"7333637233"):  # the first characters in base64 and in hex
        assert len(mask.cut(text + b"\n" * 5000, final=False)[1]) == 0
        assert len(mask.cut(text + b"\\n" * 5000, final=False)[1]) == 0


def test_the_longer_of_two_is_hidden_as_a_whole() -> None:
    """A secret that begins as another one, or within another one, is found when it is cut there."""
    values = ["abcdefgh", "abcdefghijkl", "ghijklmnop"]
    for at in range(20):
        assert passed(values, cut(b"<abcdefghijklmnop>", [at])) == b"<" + b"*" * 16 + b">"


def test_lines_of_a_key() -> None:
    """Of a secret of several lines each longer one is hidden, as are its spellings with other ends of lines."""
    key = (
        "-----BEGIN KEY-----\n"
        + "\n".join(random.Random(1).randbytes(24).hex() for _ in range(4))
        + "\n-----END KEY-----"
    )
    line = key.splitlines()[2]
    for said in (key, key.replace("\n", "\r\n"), json.dumps({"key": key}), f"key: {line}", key.replace("\n", "")):
        assert line.encode() not in passed([key], [said.encode()])


@pytest.mark.parametrize("name", COMPRESSED)
@pytest.mark.parametrize("step", [1, 5, 10_000])
def test_compressed_files(name: str, step: int) -> None:
    """A value in a compressed file is found before its last byte is passed on; other files are not touched."""
    said = COMPRESSED[name].write(f"{'text before ' * 9000}{TOKEN} and after")
    mask = Mask([TOKEN])
    for value, is_there in ((TOKEN, True), ("another-secret", False)):
        mask, inside, found = Mask([value]), Compressed(), False
        for part in cut(said, range(0, len(said), step)):
            inside.feed(part)
            more = not found
            while more:
                found, more = inside.look(mask)
        assert found == is_there
    assert not inside.open


# -- through a real server ------------------------------------------------------------------------------------------


def echoing(write: Callable[[str], bytes], cuts: list[int], headers: dict[str, str]) -> Callable[[Handler], bool]:
    """A server that sends back the bearer's token, spelled by *write*, in chunks."""

    def answer(handler: Handler) -> bool:
        said = write(handler.headers["Authorization"].removeprefix("Bearer "))
        handler.send_response(200)
        for name, value in ({"Transfer-Encoding": "chunked"} | headers).items():
            handler.send_header(name, value)
        handler.end_headers()
        for part in cut(said, cuts):
            if part:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")
        return True

    return answer


async def asked(port: int, proxy_port: int | None, host: str, token: str) -> bytes:
    """The body that comes back for a request with *token*, through the proxy or straight from the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy_port or port)
    target = f"http://{host}/" if proxy_port else "/"
    writer.write(
        f"GET {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n".encode()
    )
    reply = await reader.read()
    writer.close()
    await writer.wait_closed()
    return dechunked(reply)


def dechunked(reply: bytes) -> bytes:
    head, _, rest = reply.partition(b"\r\n\r\n")
    if b"chunked" not in head:
        return rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


@pytest.mark.full
@pytest.mark.anyio
async def test_an_echoing_server(bridged: Callable[..., Any], plain: Server) -> None:
    """Whatever a server makes of the secret, code gets nothing of it, and the server itself got all of it."""
    dice, host = random.Random(7), f"api.test:{plain.port}"
    egress = policy(host, token_for=(host,), http=True)
    async with bridged(egress, secrets={"env:TOKEN": TOKEN}) as bridge:
        for name, (write, read) in (SPELLINGS | COMPRESSED).items():
            said = write(TOKEN)
            plain.special = echoing(write, [dice.randrange(len(said)) for _ in range(3)], {})
            assert TOKEN in read(await asked(plain.port, None, host, TOKEN)), name
            got = await asked(plain.port, bridge.port, host, "PLACEHOLDER_TOKEN")
            assert left_of(TOKEN, got, read) == 0, name
            assert name in COMPRESSED or len(got) == len(said), name
        for coding in ("gzip", "deflate", "br", "zstd"):
            plain.special = echoing(lambda text: gzip.compress(text.encode()), [], {"Content-Encoding": coding})
            got = await asked(plain.port, bridge.port, host, "PLACEHOLDER_TOKEN")
            assert b"\x1f\x8b" not in got


@pytest.mark.anyio
async def test_a_name_of_a_header(bridged: Callable[..., Any], plain: Server) -> None:
    """Names of headers are looked at as their values are."""
    host, token = f"api.test:{plain.port}", "s3cr3t-value-1"

    def answer(handler: Handler) -> bool:
        value = handler.headers["Authorization"].removeprefix("Bearer ")
        handler.reply(b"fine", {f"X-{value}": "1", "X-Value": value.encode().hex()})
        return True

    plain.special = answer
    async with bridged(policy(host, token_for=(host,), http=True), secrets={"env:TOKEN": token}) as bridge:
        request = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer PLACEHOLDER_TOKEN\r\nConnection: close\r\n\r\n"
        reply = await bridge.say(request.encode())
    assert b"fine" in reply
    assert token.encode() not in reply.lower()
    assert token.encode().hex().encode() not in reply


@pytest.mark.anyio
@pytest.mark.parametrize("token", ["a", "12345", "1234567"])
async def test_a_short_secret_is_not_sent(bridged: Callable[..., Any], plain: Server, token: str) -> None:
    """A secret that could not be told from other text is refused, and says so."""
    host = f"api.test:{plain.port}"
    async with bridged(policy(host, token_for=(host,), http=True), secrets={"env:TOKEN": token}) as bridge:
        request = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer PLACEHOLDER_TOKEN\r\nConnection: close\r\n\r\n"
        reply = await bridge.say(request.encode())
    assert reply.startswith(b"HTTP/1.1 502")
    assert b"at least 8" in reply
    assert not plain.seen


@pytest.mark.anyio
async def test_a_short_secret_is_told_of_before_anything_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A backend that is checked says which secret is too short, and nothing of its value."""
    (tmp_path / "token").write_text("s3cr")
    monkeypatch.setenv("SHORT_TOKEN", "s3c")
    monkeypatch.setenv("LONG_TOKEN", "s3cr3t-value")
    for ref, problem in (
        ("env:SHORT_TOKEN", "3 characters"),
        (f"file:{tmp_path}/token", "4 characters"),
        ("env:LONG_TOKEN", ""),
        ("env:NOT_THERE", ""),
    ):
        secrets = {"PLACEHOLDER": Secret(ref=ref, hosts=("api.test",))}
        told = await Network(Egress(hosts=("api.test",), secrets=secrets)).problem()
        assert problem in told
        assert bool(told) == bool(problem)
        assert "s3c" not in told
    assert await Network(None).problem() == ""


@pytest.mark.anyio
async def test_containers_share_what_was_used() -> None:
    """A secret that one container has used is hidden from the next one, which a server may send it to."""
    secrets = {"PLACEHOLDER": Secret(ref="env:TOKEN", hosts=("api.test",))}
    network = Network(Egress(hosts=("api.test",), secrets=secrets))
    first, second = network.reach(), network.reach()
    assert first is not None
    assert second is not None
    first.proxy.known.add(TOKEN)
    assert TOKEN.encode() not in second.proxy.known.mask().hide(TOKEN.encode())


@pytest.mark.anyio
async def test_a_secret_used_while_a_response_comes(bridged: Callable[..., Any], plain: Server) -> None:
    """A response that had begun before hides it as well."""
    host, token, used = f"api.test:{plain.port}", "s3cr3t-value-1", threading.Event()

    def answer(handler: Handler) -> bool:
        handler.send_response(200)
        handler.send_header("Content-Length", str(5 + len(token)))
        handler.end_headers()
        if handler.path == "/long":
            handler.wfile.write(b"begun")
            handler.wfile.flush()
            used.wait(60)
            handler.wfile.write(token.encode())
        else:
            handler.wfile.write(b"other" + token.encode())
        return True

    plain.special = answer
    head = "GET http://{}{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}\r\n"
    async with bridged(policy(host, token_for=(host,), http=True), secrets={"env:TOKEN": token}) as bridge:
        reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
        writer.write(head.format(host, "/long", host, "").encode())
        begun = await reader.readuntil(b"begun")
        other = await bridge.say(head.format(host, "/", host, "Authorization: Bearer PLACEHOLDER_TOKEN\r\n").encode())
        used.set()
        rest = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert begun.startswith(b"HTTP/1.1 200")
    assert other.endswith(b"other" + b"*" * len(token))
    assert rest == b"*" * len(token)
