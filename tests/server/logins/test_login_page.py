"""Callers who log in at the page of a server: what they are asked, and what becomes of links in wrong hands."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitCompleteNotification, ElicitRequestURLParams, ElicitResult
from tests.net.oauth.login_server import LoginServer, login_server
from tests.server.test_endpoints import MAIN, endpoint, keys, serving

from toolexec import Exec
from toolexec.model.origin import Caller
from toolexec.run.audit import AuditLog
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, serve_http
from toolexec.server.logins.links import LoginLinks, NoLoginError
from toolexec.server.settings import ServeSettings

KEYS = tuple(ApiKey(id=name, sha256=hash_key(f"key-of-{name}")) for name in ("ann", "bob"))
PER = {"kind": "oauth", "per": "caller", "scopes": ["read"]}
TOOLS: dict[str, Any] = {"read": {"path": "/mcp/notes"}}


@dataclass
class Running:
    """A server that is up, and the authorization server of its backend."""

    there: LoginServer
    server: ToolServer
    root: str
    finished: list[str] = field(default_factory=list[str])
    """The logins whose end clients were notified of."""
    notified: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def client(self, who: str, era: str, answer: Any = None) -> AsyncGenerator[Client]:
        """Connect with the official client; with *answer* it opens links."""

        async def receive(message: Any) -> None:
            if isinstance(message, ElicitCompleteNotification):
                self.finished.append(message.params.elicitation_id)
                self.notified.set()

        async with AsyncExitStack() as stack:
            headers = {"x-api-key": f"key-of-{who}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=20, verify=False))
            transport: Any = streamable_http_client(f"{self.root}/mcp", http_client=http)
            client = Client(transport, mode=era, elicitation_callback=answer, message_handler=receive)  # type: ignore[arg-type]
            yield await stack.enter_async_context(client)

    async def link(self, who: str) -> str:
        """Return the link that a caller's client gets."""
        async with self.client(who, "legacy") as client:
            result = await client.call_tool("notes__read", {})
        assert result.is_error
        assert result.structured_content is not None
        return str(result.structured_content["error"]["details"]["link"])

    @property
    def owners(self) -> list[str]:
        """Return whose tokens the calls had that the backend took."""
        return [owner for _, owner in self.there.served]


class Browser:
    """What a person has: a browser with its own cookies, who it is at the authorization server, and a key."""

    def __init__(self, running: Running, person: str, key: str = "") -> None:
        self.running = running
        self.person = person
        self.key = key or f"key-of-{person}"
        self.http = httpx2.AsyncClient(timeout=20, trust_env=False, verify=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()

    async def prove(self, link: str, origin: str = "") -> httpx2.Response:
        """Send the form with the key."""
        headers = {"origin": origin or self.running.root}
        return await self.http.post(link, data={"proof": self.key}, headers=headers)

    async def start(self, link: str) -> str:
        """Return where the page sends the browser, with the key of the person."""
        page = await self.http.get(link)
        assert page.status_code == 200, page.text
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        page = await self.prove(link)
        assert page.status_code == 200, page.text
        found = re.search(r'href="([^"]+)"', page.text)
        assert found is not None
        return unescape(found[1])

    async def authorize(self, link: str) -> str:
        """Log in at the authorization server; return where the browser comes back to."""
        self.running.there.visitor = self.person
        return str((await self.http.get(link)).headers["location"])

    async def log_in(self, link: str) -> httpx2.Response:
        """Do all of it."""
        return await self.http.get(await self.authorize(await self.start(link)))


@pytest.fixture
async def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    """Serve a backend that each caller logs in to, for two callers."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOOLEXEC_LOGIN_KEY", base64.b64encode(b"k" * 32).decode())
    async with login_server() as there:
        ex = Exec()
        ex.add_http("notes", there.url, tools=TOOLS, auth={**PER, "issuer": there.url})
        http, auth = HttpSettings(port=0), AuthSettings(api_keys=KEYS)
        settings = ServeSettings(transport="http", expose="direct", http=http, auth=auth)
        stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
        async with ToolServer(ex, settings) as server:
            work = serve_http(server, http, auth, logins=server.logins, ready=address.set_result, stop=stop)
            task = asyncio.create_task(work)
            try:
                yield Running(there, server, (await address).removesuffix("/mcp"))
            finally:
                stop.set()
                await task


async def refuses(context: Any, params: Any) -> ElicitResult:
    """Be a person who opens no links."""
    return ElicitResult(action="decline")


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_without_links_gets_one_in_the_error_and_calls_again(running: Running, era: str) -> None:
    """The error has the link as data, and after the login the same call is made, with that login."""
    for who in ("ann", "bob"):
        async with running.client(who, era) as client, Browser(running, who) as browser:
            result = await client.call_tool("notes__read", {})
            assert result.is_error
            error = result.structured_content["error"]  # type: ignore[index]
            assert error["code"] == "login_required"
            link = error["details"]["link"]
            assert link.startswith(f"{running.root}/login/")
            assert f"open {link} in a browser" in error["message"]
            assert (await client.call_tool("notes__read", {})).structured_content["error"]["details"]["link"] == link  # type: ignore[index]
            page = await browser.log_in(link)
            assert (page.status_code, "Logged in to notes" in page.text) == (200, True)
            assert "token-number" not in page.text
            assert not (await client.call_tool("notes__read", {})).is_error
    assert running.owners == ["ann", "bob"]


async def test_a_client_of_2025_11_25_is_sent_to_the_link_and_notified(running: Running) -> None:
    """The call ends with the error that the protocol has for that, and the end of the login is announced."""
    async with running.client("ann", "legacy", refuses) as client, Browser(running, "ann") as browser:
        with pytest.raises(MCPError) as raised:
            await client.call_tool("notes__read", {})
        assert raised.value.error.code == -32042
        (asked,) = raised.value.error.data["elicitations"]
        assert asked["mode"] == "url"
        assert asked["url"].startswith(f"{running.root}/login/")
        assert asked["elicitationId"] not in asked["url"]
        await browser.log_in(asked["url"])
        await asyncio.wait_for(running.notified.wait(), 20)
        assert running.finished == [asked["elicitationId"]]
        assert not (await client.call_tool("notes__read", {})).is_error
    assert running.owners == ["ann"]


async def test_a_client_of_the_newer_era_logs_in_within_its_call(running: Running) -> None:
    """The link is asked for between two requests of one call, which is then made; a person may also decline."""
    asked: list[Any] = []
    async with Browser(running, "ann") as browser:

        async def opens(context: Any, params: Any) -> ElicitResult:
            asked.append(params)
            assert (await browser.log_in(params.url)).status_code == 200
            return ElicitResult(action="accept")

        async with running.client("ann", "auto", opens) as client:
            assert not (await client.call_tool("notes__read", {})).is_error
    (params,) = asked
    assert isinstance(params, ElicitRequestURLParams)
    assert "Log in to notes" in params.message
    async with running.client("bob", "auto", refuses) as client:
        result = await client.call_tool("notes__read", {})
        assert result.structured_content["error"]["details"]["link"]  # type: ignore[index]
    assert running.owners == ["ann"]


async def test_a_link_in_the_hands_of_another_caller_gives_neither_of_them_anything(running: Running) -> None:
    """Another caller's key, a wrong key and a form of another page are refused; the caller itself can go on."""
    link = await running.link("bob")
    async with Browser(running, "ann") as ann, Browser(running, "bob") as bob:
        page = await ann.prove(link)
        assert (page.status_code, "made for another caller" in page.text) == (403, True)
        assert not page.headers.get("set-cookie")
        for key, origin in (("nonsense", ""), ("", ""), ("key-of-bob", "https://evil.example"), ("key-of-bob", "null")):
            ann.key = key
            assert (await ann.prove(link, origin)).status_code == 403
        refused = await ann.http.post(link, data={"proof": "key-of-bob"})  # no browser, or one that hides its page
        assert refused.status_code == 403
        form = {"content-type": "application/x-www-form-urlencoded", "origin": running.root}
        for content in ("&".join(f"a{number}=1" for number in range(99)), "proof=a&proof=b", "%ff=%ff", ""):
            assert (await ann.http.post(link, content=content, headers=form)).status_code == 403
        assert (await bob.log_in(link)).status_code == 200
        for used in (await bob.http.get(link), await bob.prove(link)):
            assert (used.status_code, "not valid" in used.text) == (403, True)
    assert len(running.there.asked) == 1


async def test_a_login_that_another_browser_comes_back_with_is_not_kept(running: Running) -> None:
    """Where a caller sends the link of the authorization server to someone else, it does not get that login."""
    link = await running.link("bob")
    async with Browser(running, "bob") as bob, Browser(running, "ann") as ann:
        back = await ann.authorize(await bob.start(link))  # she logs in, as herself, at his request
        page = await ann.http.get(back)
        assert (page.status_code, "begun in another browser" in page.text) == (403, True)
        assert running.there.asked == []
        assert await running.link("bob") != link


async def test_answers_that_are_forged_or_come_twice_are_refused(running: Running) -> None:
    """Another state, issuer, place or a second answer keeps nothing, and no code is sent for them."""
    async with Browser(running, "ann") as ann:
        back = await ann.authorize(await ann.start(await running.link("ann")))
        query = dict(parse_qsl(urlsplit(back).query))
        place = back.partition("?")[0]

        async def answer(where: str, **changed: str) -> int:
            return (await ann.http.get(f"{where}?{urlencode({**query, **changed})}")).status_code

        assert await answer(place, state="forged") == 403
        assert await answer(place.replace("/notes", "/other")) == 403
        assert (await ann.http.get(f"{back}&state={query['state']}")).status_code == 403
        assert await answer(place, iss="https://evil.example") == 502
        assert await answer(place) == 403  # an answer counts once, a forged one too
        assert running.there.asked == []
        assert (await ann.log_in(await running.link("ann"))).status_code == 200
        running.there.tokens.clear()
        running.there.refresh_tokens.clear()
        back = await ann.authorize(await ann.start(await running.link("ann")))
        assert (await ann.http.get(back)).status_code == 200
        assert (await ann.http.get(back)).status_code == 403


async def test_the_audit_log_has_how_each_login_ended_and_no_secret(running: Running, tmp_path: Path) -> None:
    """A link in other hands, an answer from another browser, a forged one and a login that is kept are four notes, with
    the caller, the backend and the outcome."""
    links = running.server.logins
    assert links is not None
    links.audit = AuditLog.open(tmp_path / "audit.jsonl", state=tmp_path)
    with closing(links.audit):
        async with Browser(running, "ann") as ann, Browser(running, "bob") as bob:
            link = await running.link("ann")
            assert (await bob.prove(link)).status_code == 403
            back = await ann.authorize(await ann.start(link))
            assert (await bob.http.get(back)).status_code == 403
            query = {**dict(parse_qsl(urlsplit(back).query)), "iss": "https://evil.example"}
            assert (await ann.http.get(f"{back.partition('?')[0]}?{urlencode(query)}")).status_code == 502
            assert (await ann.log_in(await running.link("ann"))).status_code == 200
        text = (tmp_path / "audit.jsonl").read_text()
    notes = [each for each in map(json.loads, text.splitlines()) if each["kind"] == "note"]
    assert [each["outcome"] for each in notes] == ["another_caller", "another_browser", "login", "ok"]
    assert {each["backend"] for each in notes} == {"notes"}
    assert [each["caller"]["id"] for each in notes] == ["ann"] * 4
    assert notes[0]["by"]["id"] == "bob"
    secrets = ["key-of-ann", "key-of-bob", query["code"], query["state"], *running.there.tokens]
    assert [secret for secret in secrets if secret in text] == []


async def test_a_token_endpoint_that_redirects_is_not_followed(running: Running) -> None:
    """The code goes to no other place, a private one among them, and the page says why there is no login."""
    running.there.moved["/token"] = "http://169.254.169.254/latest"
    async with Browser(running, "ann") as ann:
        page = await ann.log_in(await running.link("ann"))
        assert (page.status_code, "redirects" in page.text) == (502, True)
        assert "token-number" not in page.text
    running.there.moved.clear()
    assert await running.link("ann")


async def test_too_many_wrong_keys_must_wait(running: Running) -> None:
    """Wrong keys in the form count as they do in calls."""
    link = await running.link("ann")
    async with Browser(running, "ann", "wrong") as someone:
        for _ in range(20):
            assert (await someone.prove(link)).status_code == 403
        page = await someone.prove(link)
        assert page.status_code == 429
        assert int(page.headers["retry-after"]) > 0


async def test_what_a_page_shows_cannot_be_markup(running: Running) -> None:
    """Names of callers and words of authorization servers stand as text."""
    assert running.server.logins is not None
    pending = running.server.logins.ask(Caller(id="<b>x", method="api_key"), "no<i>tes", ())
    assert pending is not None
    async with httpx2.AsyncClient(timeout=20, verify=False) as http:
        page = (await http.get(running.server.logins.link(pending))).text
        assert "<b>x" not in page
        assert "<i>" not in page
        unknown = await http.get(f"{running.root}/login/callback/notes?state=x&error=%3Cscript%3E")
        assert (unknown.status_code, "<script" in unknown.text) == (403, False)
        assert (await http.put(running.server.logins.link(pending))).status_code == 405


async def test_the_caller_of_an_endpoint_proves_itself_with_a_key_of_that(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is the same, the keys are those of the endpoint, and the login is that of its caller alone."""
    monkeypatch.chdir(tmp_path)
    auth = f'{{ kind = "oauth", per = "caller", scopes = ["read"], issuer = "{running.there.url}" }}'
    provider = f'[providers.notes]\nkind = "http"\nbase_url = "{running.there.url}"\nauth = {auth}\n'
    provider += 'tools.read = { path = "/mcp/notes" }\n'
    main = f"{MAIN}{provider}[auth]\napi_keys = [{keys('ann')}]\n"
    async with serving(main + endpoint("team-a", "ann", more='expose = "direct"')) as there:
        async with there.client("/team-a/mcp", "ann", "legacy") as client:
            result: Any = await client.call_tool("notes__read", {})
            link = result.structured_content["error"]["details"]["link"]
            page = Running(running.there, running.server, there.root)
            async with Browser(page, "ann") as ann:
                assert (await ann.log_in(link)).status_code == 200
            assert not (await client.call_tool("notes__read", {})).is_error
        async with there.client("/mcp", "ann", "legacy") as client:
            result = await client.call_tool("run_tool", {"tool_id": "notes:read"})
            assert result.structured_content["error"]["code"] == "login_required"
    assert running.owners == ["ann"]


async def test_a_call_that_needs_more_scopes_brings_a_link_for_these(running: Running) -> None:
    """The login at the link has them, beside those that were there."""
    async with running.client("ann", "legacy") as client, Browser(running, "ann") as ann:
        await ann.log_in(await running.link("ann"))
        running.there.needed = "read write"
        result: Any = await client.call_tool("notes__read", {})
        error = result.structured_content["error"]
        assert error["details"]["scopes"] == ["read", "write"]
        where = await ann.start(error["details"]["link"])
        assert parse_qs(urlsplit(where).query)["scope"] == ["read write"]
        assert (await ann.http.get(await ann.authorize(where))).status_code == 200
        assert not (await client.call_tool("notes__read", {})).is_error


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_callers_of_an_mcp_server_log_in_at_the_page(running: Running, era: str) -> None:
    """The connection that was refused for want of a login is made with it at the next call, and others go on."""
    ex, there = running.server.ex, running.there
    there.said = "{owner}"
    await ex.add_mcp("remote", url=f"{there.url}/mcp", auth={"kind": "oauth", "per": "caller"})
    backend: Any = ex.backends.get("remote")

    async def show(link: str, code: str) -> None:
        async with Browser(running, "operator") as operator:
            await operator.http.get(await operator.authorize(link))

    await backend.log_in(show)
    for who in ("ann", "bob"):
        async with running.client(who, era) as client, Browser(running, who) as browser:
            refused = [await client.call_tool("remote__read", {}) for _ in range(12)]  # more than a breaker lets pass
            result: Any = refused[-1]
            link = result.structured_content["error"]["details"]["link"]
            assert (await browser.log_in(link)).status_code == 200
            result = await client.call_tool("remote__read", {})
            assert [part.text for part in result.content] == [who]


async def test_links_end_and_there_are_not_too_many() -> None:
    """A link that is too old is refused, the oldest gives way, and a caller has one for each backend."""
    now = [0.0]
    links = LoginLinks(Exec().backends, "https://tools.example", most=2, clock=lambda: now[0])
    ann = Caller(id="ann", method="api_key")
    first = links.ask(ann, "notes", ())
    assert first is not None
    assert links.ask(ann, "notes", ()) is first
    more = links.ask(ann, "notes", ("write",))
    assert more is not None
    assert more is not first
    with pytest.raises(NoLoginError):
        links.find(first.nonce)
    for name in ("mail", "calendar"):
        links.ask(ann, name, ())
    with pytest.raises(NoLoginError):
        links.find(more.nonce)
    last = links.ask(Caller(id="ann", method="jwt"), "calendar", ())
    assert last is not None
    assert links.find(last.nonce) is last
    with pytest.raises(NoLoginError, match="another caller"):
        await links.begin(last.nonce, ann)  # the same ID, proved in another way
    now[0] = 601.0
    with pytest.raises(NoLoginError, match="not valid"):
        links.find(last.nonce)
    assert links.ask(Caller(), "notes", ()) is None
    assert LoginLinks(Exec().backends, "").ask(ann, "notes", ()) is None
    assert parse_qs(urlsplit(links.link(last)).query) == {}
