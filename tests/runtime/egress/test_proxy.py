"""What the proxy refuses, what it bounds, and what it never lets through."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.runtime.egress.conftest import TOKEN, Bridge, Handler, Server, World, policy
from tests.waiting import until

from toolexec.errors import SecretError
from toolexec.runtime.egress import Authority, Egress, EgressProxy

pytestmark = pytest.mark.anyio

GET = b"GET http://api.test:%d/ HTTP/1.1\r\nHost: api.test:%d\r\nConnection: close\r\n\r\n"


def status_of(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1]) if reply else 0


async def over_tls(bridge: Bridge, host: str, data: bytes, *, greet: str | None = None, check: bool = True) -> bytes:
    """CONNECT to *host*, TLS with its name (or *greet*) in the greeting, *data*, and all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
    try:
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if status_of(head) != 200:
            return head + await reader.read()
        context = ssl.create_default_context(cafile=str(bridge.ca_path))
        if not check:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        await writer.start_tls(context, server_hostname=greet or host.partition(":")[0])
        writer.write(data)
        await writer.drain()
        return await reader.read()
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass


class TestWhichHosts:
    async def test_nothing_is_allowed_by_default(self, bridged: Callable[..., Any], plain: Server) -> None:
        """An empty policy lets nothing out, and does not even look up names."""
        asked: list[str] = []

        async def find(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return ["127.0.0.1"]

        async with bridged(Egress(), find=find) as bridge:
            reply = await bridge.say(GET % (plain.port, plain.port))
            tunnel = await bridge.say(b"CONNECT api.test:443 HTTP/1.1\r\nHost: api.test:443\r\n\r\n")
        assert (status_of(reply), status_of(tunnel), asked, plain.seen) == (403, 403, [], [])
        assert b"not among the hosts that code may reach" in reply
        assert [record.allowed for record in bridge.records] == [False, False]

    @pytest.mark.parametrize(
        ("target", "host", "status"),
        [
            ("http://api.test:{port}/", "other.test", 403),
            ("http://other.test:{port}/", "api.test:{port}", 403),
            ("http://api.test:{port}/", "api.test", 403),
            ("http://api.test:1/", "api.test:1", 403),
            ("http://api.test@other.test:{port}/", "api.test:{port}", 400),
            ("http://x@api.test:{port}/", "api.test:{port}", 400),
            ("http://api.test:{port}/#f", "api.test:{port}", 400),
            ("http://api.test:{port}0/", "api.test:{port}0", 400),
            ("https://api.test:{port}/", "api.test:{port}", 400),
            ("ftp://api.test:{port}/", "api.test:{port}", 400),
            ("/", "api.test:{port}", 400),
            ("*", "api.test:{port}", 400),
            ("http://[::1/", "api.test:{port}", 400),
            ("http://API.test.:{port}", "api.TEST:{port}", 200),
        ],
    )
    async def test_target_and_host_header_must_agree(
        self, bridged: Callable[..., Any], plain: Server, target: str, host: str, status: int
    ) -> None:
        """A request whose parts do not name the same, allowed host goes nowhere."""
        text = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".format(port=plain.port)
        async with bridged(policy(f"api.test:{plain.port}")) as bridge:
            reply = await bridge.say(text.encode())
        assert status_of(reply) == status
        assert len(plain.seen) == (1 if status == 200 else 0)

    @pytest.mark.full
    async def test_a_tunnel_is_for_one_host(self, bridged: Callable[..., Any], secure: Server) -> None:
        """Inside of it neither the Host header nor a whole URL can name another one."""
        host = f"api.test:{secure.port}"
        other = b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n"
        url = f"GET https://other.test/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        own = f"GET https://{host}/p HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        async with bridged(policy(host, "other.test")) as bridge:
            assert status_of(await over_tls(bridge, host, other)) == 403
            assert status_of(await over_tls(bridge, host, url)) == 403
            assert (
                status_of(await over_tls(bridge, host, b"OPTIONS * HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode()))
                == 400
            )
            assert (
                status_of(await over_tls(bridge, host, b"GET /#x HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())) == 400
            )
            assert b'"path": "/p"' in await over_tls(bridge, host, own)
        assert len(secure.seen) == 1

    async def test_the_greeting_names_the_same_host(self, bridged: Callable[..., Any], secure: Server) -> None:
        """Another name in the TLS greeting ends the connection."""
        host = f"api.test:{secure.port}"
        async with bridged(policy(host, "other.test")) as bridge:
            with pytest.raises(ssl.SSLError, match=r"(?i)unrecognized.name"):
                await over_tls(bridge, host, b"", greet="other.test", check=False)
        [record] = bridge.records
        assert (record.host, record.status, record.allowed) == ("api.test", 0, False)
        assert secure.seen == []

    async def test_a_connect_whose_host_header_differs(self, bridged: Callable[..., Any]) -> None:
        """Refuses such a CONNECT, and one without a port or a host."""
        async with bridged(policy("api.test")) as bridge:
            for target, host, status in (
                (b"api.test:443", b"other.test:443", 403),
                (b"api.test", b"api.test", 400),
                (b"a b:443", b"api.test", 400),
                (b"http://api.test:443", b"api.test:443", 400),
            ):
                reply = await bridge.say(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, host))
                assert status_of(reply) == status

    async def test_http_through_a_tunnel(self, bridged: Callable[..., Any], plain: Server) -> None:
        """Some clients make a tunnel for plain HTTP, too; the same rules hold."""
        host = b"api.test:%d" % plain.port
        connect = b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host)
        async with bridged(policy(host.decode())) as bridge:
            reply = await bridge.say(connect + b"GET /t HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host)
            assert b'"path": "/t"' in reply
            reply = await bridge.say(connect + b"GET /t HTTP/1.1\r\nHost: other.test\r\n\r\n")
            assert status_of(reply.partition(b"\r\n\r\n")[2]) == 403
            assert status_of(await bridge.say(connect)) == 200


class TestAddresses:
    async def test_private_addresses_are_refused(self, bridged: Callable[..., Any], plain: Server) -> None:
        """A name on the list that stands for this machine is not reached unless that is allowed."""
        async with bridged(policy(f"api.test:{plain.port}", allow_private=False)) as bridge:
            reply = await bridge.say(GET % (plain.port, plain.port))
        assert status_of(reply) == 403
        assert b"private" in reply
        assert plain.seen == []
        assert bridge.records[0].allowed is False

    async def test_a_name_is_looked_up_once(self, bridged: Callable[..., Any], plain: Server) -> None:
        """The checked address is the one to connect to: a second answer, which is another one, is never asked for."""
        answers = [["127.0.0.2"], ["127.0.0.1"]]

        async def find(host: str, port: int) -> Sequence[str]:
            return answers.pop(0)

        rules = policy(f"api.test:{plain.port}", f"127.0.0.2:{plain.port}", allow_private=False)
        async with bridged(rules, find=find) as bridge:
            reply = await bridge.say(GET % (plain.port, plain.port))
        assert status_of(reply) == 502
        assert len(answers) == 1
        assert plain.seen == []

    async def test_hosts_that_are_not_there(self, bridged: Callable[..., Any]) -> None:
        """A name without an address, and an address without a listener, end as 502."""

        async def nowhere(host: str, port: int) -> Sequence[str]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        async with bridged(policy("api.test"), find=nowhere) as bridge:
            reply = await bridge.say(b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\n\r\n")
            assert (status_of(reply), b"not known" in reply) == (502, True)
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        async with bridged(policy(f"api.test:{port}")) as bridge:
            reply = await bridge.say(GET % (port, port))
        assert (status_of(reply), b"refused" in reply) == (502, True)
        assert bridge.records[0].allowed is True


class TestCertificates:
    @pytest.mark.full
    async def test_hosts_are_verified(self, bridged: Callable[..., Any], secure: Server) -> None:
        """A host whose certificate is for another name, or of an unknown authority, gets no request."""
        get = b"GET / HTTP/1.1\r\nHost: %s:%d\r\nAuthorization: PLACEHOLDER_TOKEN\r\n\r\n"
        wrong = f"wrong.test:{secure.port}"
        async with bridged(policy(wrong, token_for=(wrong,))) as bridge:
            reply = await over_tls(bridge, wrong, get % (b"wrong.test", secure.port))
        assert (status_of(reply), b"not valid" in reply) == (502, True)
        host = f"api.test:{secure.port}"
        async with bridged(policy(host, token_for=(host,)), trust=World().trust()) as bridge:
            reply = await over_tls(bridge, host, get % (b"api.test", secure.port))
        assert (status_of(reply), b"not valid" in reply) == (502, True)
        assert secure.seen == []

    async def test_a_client_that_trusts_nobody(self, bridged: Callable[..., Any], secure: Server) -> None:
        """Its own refusal is recorded; garbage instead of TLS is, too."""
        host = f"api.test:{secure.port}"
        async with bridged(policy(host)) as bridge:
            bridge.ca_path.write_bytes(Authority().ca_pem)
            with pytest.raises(ssl.SSLError):
                await over_tls(bridge, host, b"")
            await bridge.say(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() + b"\x16\x03\x01\x00\x02xx")
        assert [record.status for record in bridge.records] == [0, 0]
        assert all("TLS" in record.reason for record in bridge.records)


class TestSecrets:
    async def test_only_for_their_own_hosts(self, bridged: Callable[..., Any], plain: Server) -> None:
        """Another host gets the placeholder as the code wrote it."""
        async with bridged(
            policy(f"api.test:{plain.port}", token_for=(f"else.test:{plain.port}",), http=True)
        ) as bridge:
            text = b"GET http://api.test:%d/ HTTP/1.1\r\nHost: api.test:%d\r\nX: PLACEHOLDER_TOKEN\r\nConnection: close\r\n\r\n"
            reply = await bridge.say(text % (plain.port, plain.port))
        assert plain.seen[0].headers["X"] == "PLACEHOLDER_TOKEN"
        assert b"PLACEHOLDER_TOKEN" in reply

    async def test_not_without_tls(self, bridged: Callable[..., Any], plain: Server) -> None:
        """Unless that is said."""
        host = f"api.test:{plain.port}"
        text = b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\nX: PLACEHOLDER_TOKEN\r\nConnection: close\r\n\r\n"
        for allowed, seen in ((False, "PLACEHOLDER_TOKEN"), (True, TOKEN)):
            async with bridged(policy(host, token_for=(host,), http=allowed)) as bridge:
                await bridge.say(text % (host.encode(), host.encode()))
            assert plain.seen.pop().headers["X"] == seen

    @pytest.mark.parametrize(
        ("where", "kind", "body", "got"),
        [
            ("headers", "text/plain", "PLACEHOLDER_TOKEN", "PLACEHOLDER_TOKEN"),
            ("body", "application/json; charset=utf-8", '{"a": "PLACEHOLDER_TOKEN"}', json.dumps({"a": TOKEN})),
            (
                "body",
                "application/x-www-form-urlencoded",
                "a=PLACEHOLDER_TOKEN",
                "a=s3cr3t-Value%2FWith%2BSigns%3Dand-more",
            ),
            ("body", "text/plain", "PLACEHOLDER_TOKEN \udcff", f"{TOKEN} \ufffd"),
            ("url", "text/plain", "PLACEHOLDER_TOKEN", "PLACEHOLDER_TOKEN"),
        ],
    )
    async def test_parts_of_a_request(
        self, bridged: Callable[..., Any], plain: Server, where: str, kind: str, body: str, got: str
    ) -> None:
        """A secret goes into the parts that it is for, spelled as they need it, and into no other."""
        host = f"api.test:{plain.port}"
        data = body.encode("utf-8", "surrogateescape")
        for framing, sent in (
            (b"Content-Length: %d" % len(data), data),
            (b"Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data)),
        ):
            async with bridged(policy(host, token_for=(host,), where=(where,), http=True)) as bridge:
                reply = await bridge.say(
                    b"POST http://%s/a?t=PLACEHOLDER_TOKEN HTTP/1.1\r\nHost: %s\r\nX: PLACEHOLDER_TOKEN\r\n"
                    b"Content-Type: %s\r\nConnection: close\r\n%s\r\n\r\n%s"
                    % (host.encode(), host.encode(), kind.encode(), framing, sent)
                )
            seen = plain.seen.pop()
            assert seen.got.decode("utf-8", "replace") == got
            assert seen.headers["X"] == (TOKEN if where == "headers" else "PLACEHOLDER_TOKEN")
            assert ("s3cr3t-Value%2FWith%2BSigns%3D" in seen.path) == (where == "url")
            assert status_of(reply) == 200
            for spelled in (TOKEN, "s3cr3t-Value%2FWith"):
                assert spelled.encode() not in reply

    async def test_basic_authorization(self, bridged: Callable[..., Any], plain: Server) -> None:
        """A placeholder as password is found in what is encoded, and the result hidden in the reply."""
        host = f"api.test:{plain.port}"
        basic = base64.b64encode(b"user:PLACEHOLDER_TOKEN").decode()
        async with bridged(policy(host, token_for=(host,), http=True)) as bridge:
            reply = await bridge.say(
                f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nAuthorization: Basic {basic}\r\nConnection: close\r\n\r\n".encode()
            )
        real = base64.b64encode(f"user:{TOKEN}".encode())
        assert plain.seen[0].headers["Authorization"] == f"Basic {real.decode()}"
        assert status_of(reply) == 200
        assert real not in reply
        assert b"Basic " + b"*" * len(real) in reply

    async def test_hidden_across_borders_of_parts(self, bridged: Callable[..., Any], plain: Server) -> None:
        """A reply in parts of any size has none of it, in whatever spelling, and is as long as it was."""
        spelled = [TOKEN.encode(), base64.b64encode(b"x" + TOKEN.encode() + b"yz"), TOKEN.encode().hex().encode()]
        whole = b"<" + b"|".join(spelled) + b">" + TOKEN[:-1].encode()

        def special(handler: Handler) -> bool:
            handler.send_response(200)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            size = int(handler.path.partition("=")[2])
            for start in range(0, len(whole), size):
                part = whole[start : start + size]
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            handler.wfile.write(b"0\r\n\r\n")
            return True

        plain.special = special
        host = f"api.test:{plain.port}"
        bodies = set[bytes]()
        async with bridged(policy(host, token_for=(host,), http=True)) as bridge:
            for size in (1, 2, 7, 30, 1000):
                reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
                writer.write(
                    f"GET http://{host}/?n={size} HTTP/1.0\r\nHost: {host}\r\nX: PLACEHOLDER_TOKEN\r\n\r\n".encode()
                )
                bodies.add((await reader.read()).partition(b"\r\n\r\n")[2])
                writer.close()
                await writer.wait_closed()
        [body] = bodies
        assert len(body) == len(whole)
        assert body.endswith(b">" + TOKEN[:-1].encode())
        assert TOKEN.encode() not in body
        assert spelled[2] not in body
        assert body.startswith(b"<" + b"*" * len(TOKEN) + b"|")
        middle = body.split(b"|")[1]
        assert middle.count(b"*") >= len(TOKEN)

    async def test_encoded_replies_are_refused(self, bridged: Callable[..., Any], plain: Server) -> None:
        """A reply that cannot be read cannot be searched; the host is asked not to encode, and for whole replies."""
        host = f"api.test:{plain.port}"

        def special(handler: Handler) -> bool:
            handler.reply(b"\x1f\x8b", {"Content-Encoding": "gzip"})
            return True

        plain.special = special
        text = (
            f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX: {{}}\r\nRange: bytes=0-1\r\n"
            "Accept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        )
        async with bridged(policy(host, token_for=(host,), http=True)) as bridge:
            assert status_of(await bridge.say(text.format("no").encode())) == 200  # there is nothing to hide yet
            assert status_of(await bridge.say(text.format("PLACEHOLDER_TOKEN").encode())) == 502
        assert [seen.headers["Accept-Encoding"] for seen in plain.seen] == ["identity"] * 2
        assert [seen.headers["Range"] for seen in plain.seen] == ["bytes=0-1", None]

    @pytest.mark.parametrize("value", ["", "two\r\nlines: x", "ümlaut-token"])
    async def test_secrets_that_fit_nowhere(self, bridged: Callable[..., Any], plain: Server, value: str) -> None:
        """The code is told that it cannot be had, and not what it is."""
        host = f"api.test:{plain.port}"
        async with bridged(policy(host, token_for=(host,), http=True), secrets={"env:TOKEN": value}) as bridge:
            reply = await bridge.say(
                f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX: PLACEHOLDER_TOKEN\r\n\r\n".encode()
            )
        assert status_of(reply) == 502
        assert plain.seen == []
        assert not value or value.encode() not in reply

    async def test_a_resolver_that_fails(
        self, bridged: Callable[..., Any], plain: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Of its error only the type is shown."""
        host = f"api.test:{plain.port}"
        caplog.set_level(logging.DEBUG)
        async with bridged(policy(host, token_for=(host,), http=True), secrets={TOKEN: "x"}) as bridge:
            reply = await bridge.say(
                f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nX: PLACEHOLDER_TOKEN\r\n\r\n".encode()
            )
        assert (status_of(reply), b"KeyError" in reply, TOKEN in caplog.text) == (502, True, False)
        with pytest.raises(SecretError):
            EgressProxy(policy("a.test", token_for=("a.test",)))
        assert EgressProxy(policy("a.test")).ca_pem.startswith(b"-----BEGIN CERTIFICATE")


class TestMessages:
    @pytest.mark.parametrize(
        "lines",
        [
            b"Content-Length: 5\r\nTransfer-Encoding: chunked",
            b"Content-Length: 5\r\nContent-Length: 6",
            b"Content-Length: -1",
            b"Content-Length: 5, 6",
            b"Transfer-Encoding: gzip, chunked",
            b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            b"Transfer-Encoding: \x0bchunked",
            b"Host: other.test",
            b"X : y",
            b"X: a\r\n folded\x00",
            b"X: a\rY: b",
            b"X: a\nContent-Length : 1",
        ],
    )
    async def test_smuggling(self, bridged: Callable[..., Any], plain: Server, lines: bytes) -> None:
        """A request that two readers could read in two ways is refused."""
        host = b"api.test:%d" % plain.port
        tail = b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: %s\r\n\r\n" % host
        async with bridged(policy(host.decode())) as bridge:
            reply = await bridge.say(
                b"POST http://%s/ HTTP/1.1\r\nHost: %s\r\n%s\r\n\r\n%s" % (host, host, lines, tail)
            )
        assert status_of(reply) in (400, 501)
        assert plain.seen == []

    async def test_hop_by_hop_headers_stay_here(self, bridged: Callable[..., Any], plain: Server) -> None:
        """Such headers, and those that Connection names, do not go on; the Host cannot be taken away like that."""
        host = f"api.test:{plain.port}"
        async with bridged(policy(host)) as bridge:
            await bridge.say(
                f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close, X-Mine, host\r\nX-Mine: 1\r\nTE: trailers\r\n"
                "Keep-Alive: 5\r\nProxy-Authorization: Basic eA==\r\nUpgrade: h2c\r\nAccept-Encoding: gzip\r\nX-End: 2\r\n\r\n".encode()
            )
        [seen] = plain.seen
        assert {name.lower(): value for name, value in seen.headers.items()} == {
            "host": host,
            "accept-encoding": "gzip",
            "x-end": "2",
        }

    @pytest.mark.parametrize(
        ("head", "status"),
        [
            ("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n", 501),
            ("TRACE {url} HTTP/1.1\r\nHost: {host}\r\n\r\n", 405),
            ("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2000\r\n\r\n", 413),
            (
                "POST {url} HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n"
                + "x" * 2000
                + "\r\n",
                413,
            ),
            ("GET {url} HTTP/1.1\r\nHost: {host}\r\nX: " + "x" * 400_000 + "\r\n\r\n", 431),
            ("nonsense\r\n\r\n", 400),
            ("GET {url} HTTP/2.0\r\nHost: {host}\r\n\r\n", 505),
            ("GET {url} HTTP/1.1\r\n\r\n", 400),
        ],
    )
    async def test_what_is_not_passed_on(
        self, bridged: Callable[..., Any], plain: Server, head: str, status: int
    ) -> None:
        """Websockets, TRACE, bodies and heads over their bounds, and what is not HTTP/1.1."""
        host = f"api.test:{plain.port}"
        async with bridged(policy(host, max_request_bytes=1000)) as bridge:
            reply = await bridge.say(head.format(url=f"http://{host}/", host=host).encode())
        assert status_of(reply) == status
        assert not plain.seen or "chunked" in head  # whose length is known only when it is too late

    async def test_a_client_that_waits_before_it_sends(self, bridged: Callable[..., Any], plain: Server) -> None:
        """Expect: 100-continue is answered here."""
        host = f"api.test:{plain.port}"
        async with bridged(policy(host)) as bridge:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            writer.write(
                f"POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            assert status_of(await reader.readuntil(b"\r\n\r\n")) == 100
            writer.write(b"ok")
            assert b'"body": "ok"' in await reader.read()
            writer.close()
            await writer.wait_closed()
        assert "expect" not in plain.seen[0].headers

    @pytest.mark.full
    async def test_slow_heads(self, bridged: Callable[..., Any], plain: Server) -> None:
        """A head that comes byte by byte is cut off in time; so is silence."""
        async with bridged(policy("api.test", header_seconds=0.3, idle_seconds=0.3)) as bridge:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)

            async def drip() -> None:
                for byte in b"GET http://api.test/ HTTP/1.1\r\nHost: api.test\r\nX: ":
                    writer.write(bytes([byte]))
                    await asyncio.sleep(0.02)

            dripping = asyncio.create_task(drip())
            reply = await reader.read()
            dripping.cancel()
            await asyncio.wait({dripping})
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass
            assert status_of(reply) == 408
            assert status_of(await bridge.say(b"", hang_up=False)) == 408

    async def test_too_many_connections(self, bridged: Callable[..., Any], plain: Server) -> None:
        """One more than there may be is turned away, and there is room again later."""
        host = f"api.test:{plain.port}"
        get = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
        async with bridged(policy(host, max_connections=1)) as bridge:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            writer.write(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            assert status_of(await bridge.say(get)) == 503
            writer.close()
            await writer.wait_closed()

            async def answers() -> bool:
                return status_of(await bridge.say(get)) == 200

            await until(answers)

    async def test_a_listener_that_fails(
        self, bridged: Callable[..., Any], plain: Server, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The exception is logged, and the request goes on."""

        def fail(_: object) -> None:
            raise ValueError("no")

        async with bridged(policy(f"api.test:{plain.port}"), on_request=fail) as bridge:
            assert status_of(await bridge.say(GET % (plain.port, plain.port))) == 200
        assert "has failed" in caplog.text


class TestReplies:
    """A host that does as it likes."""

    @pytest.fixture
    async def raw(self) -> Any:
        """A server that says what it is told to, whatever it is asked."""
        said: list[bytes] = [b""]
        wait = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            for part in said:
                if part != b"wait":
                    writer.write(part)
            await writer.drain()
            if said[-1] == b"wait":
                await wait.wait()
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        yield said, server.sockets[0].getsockname()[1]
        wait.set()
        server.close()
        await server.wait_closed()

    @pytest.mark.parametrize(
        ("reply", "status"),
        [
            (b"", 502),
            (b"nonsense\r\n\r\n", 502),
            (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", 502),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", 502),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 502),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", 502),
            (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 400_000 + b"\r\n\r\n", 502),
            (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\n\r\n", 204),
            (b"HTTP/1.1 304 Same\r\nContent-Length: 99999\r\n\r\n", 304),
            (b"HTTP/1.0 200 OK\r\n\r\nto the end", 200),
        ],
    )
    async def test_its_reply_is_passed_on_or_refused(
        self, bridged: Callable[..., Any], raw: Any, reply: bytes, status: int
    ) -> None:
        """Whole and sensible replies come through; others become a 502 with a reason."""
        said, port = raw
        said[:] = [reply]
        async with bridged(policy(f"api.test:{port}", max_response_bytes=10_000)) as bridge:
            got = await bridge.say(GET % (port, port))
        assert status_of(got) == status
        assert bridge.records[0].status == status
        assert bool(bridge.records[0].reason) == (status == 502)

    @pytest.mark.parametrize(
        "reply",
        [
            b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n" + b"x" * 0x2000 + b"\r\n0\r\n\r\n",
        ],
    )
    async def test_a_reply_that_breaks_off(self, bridged: Callable[..., Any], raw: Any, reply: bytes) -> None:
        """The code sees a broken reply as well, not one that seems to be whole."""
        said, port = raw
        said[:] = [reply]
        async with bridged(policy(f"api.test:{port}", max_response_bytes=1000)) as bridge:
            got = await bridge.say(GET % (port, port))
        assert status_of(got) == 200
        assert not got.endswith(b"0\r\n\r\n")
        assert bridge.records[0].reason

    @pytest.mark.full
    async def test_a_host_that_says_nothing(self, bridged: Callable[..., Any], raw: Any) -> None:
        """A silent host is given up in time."""
        said, port = raw
        said[:] = [b"HTTP/1.1 ", b"wait"]
        async with bridged(policy(f"api.test:{port}", idle_seconds=0.2)) as bridge:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            writer.write(GET % (port, port))
            assert status_of(await reader.read()) == 504
            writer.close()
            await writer.wait_closed()

    async def test_a_host_that_takes_nothing(self, bridged: Callable[..., Any], raw: Any) -> None:
        """A body that it does not read is given up in time, too."""
        said, port = raw
        said[:] = [b"", b"wait"]
        async with bridged(policy(f"api.test:{port}", idle_seconds=0.3)) as bridge:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            writer.write(
                b"POST http://api.test:%d/ HTTP/1.1\r\nHost: api.test:%d\r\nContent-Length: 50000000\r\n\r\n"
                % (port, port)
            )
            for _ in range(400):
                writer.write(bytes(100_000))
            try:
                reply = await reader.read()
            except ConnectionResetError:  # the rest of the body was on its way
                reply = b"HTTP/1.1 504"
            assert status_of(reply) in (502, 504)
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass
        [record] = bridge.records
        assert record.sent < 50_000_000
        assert record.reason

    async def test_a_host_that_answers_before_the_end(self, bridged: Callable[..., Any], raw: Any) -> None:
        """Its answer to a body that it does not want comes through while that is still being sent."""
        said, port = raw
        said[:] = [b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"]
        async with bridged(policy(f"api.test:{port}")) as bridge:
            reader, writer = await asyncio.open_connection("127.0.0.1", bridge.port)
            writer.write(
                b"POST http://api.test:%d/ HTTP/1.1\r\nHost: api.test:%d\r\nContent-Length: 1000\r\n\r\nab"
                % (port, port)
            )
            assert status_of(await reader.read()) == 403
            writer.close()
            await writer.wait_closed()
