"""Callers with tokens, who sign in at an identity provider on the login page: the whole way, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
import time
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from tests.net.oauth.login_server import LoginServer, login_server

from toolexec import Exec
from toolexec.run.audit import AuditLog
from toolexec.server.app import ToolServer
from toolexec.server.auth import ApiKey, AuthSettings, JwtSettings, SignInSettings
from toolexec.server.auth.credentials import hash_key
from toolexec.server.http import HttpSettings, serve_http
from toolexec.server.settings import ServeSettings

pytestmark = pytest.mark.full
KEY, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
SECRET = "the-secret-of-the-client"
STAFF = {"email": "ann@example.com", "email_verified": True, "groups": ["staff", "admins"]}
PER = {"kind": "oauth", "per": "caller", "scopes": ["read"]}
TOOLS: dict[str, Any] = {"read": {"path": "/mcp/notes"}}


@dataclass
class Company:
    """A server whose callers are people of a company: its identity provider, and a backend that they log in to."""

    idp: LoginServer
    there: LoginServer
    server: ToolServer
    root: str

    def token(self, who: str, **claims: Any) -> str:
        """Return an access token for the server."""
        body = {"iss": self.idp.url, "aud": "tools", "sub": who, "exp": time.time() + 60} | claims
        return jwt.encode(body, KEY, algorithm="RS256", headers={"kid": "key"})

    async def call(self, credential: str) -> Any:
        headers = {"authorization": f"Bearer {credential}"}
        async with httpx2.AsyncClient(headers=headers, timeout=20, verify=False) as http:
            transport: Any = streamable_http_client(f"{self.root}/mcp", http_client=http)
            async with Client(transport, mode="legacy") as client:
                return await client.call_tool("notes__read", {})

    async def link(self, credential: str) -> str:
        """Return the link of a call that wants a login."""
        result = await self.call(credential)
        return str(result.structured_content["error"]["details"]["link"])


class Browser:
    """What *person* has, who is known by that name at the identity provider and at the backend."""

    def __init__(self, company: Company, person: str) -> None:
        self.company = company
        self.person = person
        self.http = httpx2.AsyncClient(timeout=20, trust_env=False, verify=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()

    async def press(self, link: str, origin: str = "") -> httpx2.Response:
        """Press the button of the page."""
        return await self.http.post(link, data={"sign_in": "1"}, headers={"origin": origin or self.company.root})

    async def signed_in(self, link: str) -> str:
        """Sign in; return where the identity provider sends the browser back to."""
        shown = await self.http.get(link)
        assert "Sign in at" in shown.text
        assert 'type="password"' not in shown.text
        page = await self.press(link)
        assert page.status_code == 200, page.text
        self.company.idp.visitor = self.person
        answer = await self.http.get(_going_on(page))
        return str(answer.headers["location"])

    async def log_in(self, link: str) -> httpx2.Response:
        """Do all of it, with the login at the backend, too."""
        page = await self.http.get(await self.signed_in(link))
        if page.status_code != 200:
            return page
        self.company.there.visitor = self.person
        back = await self.http.get(_going_on(page))
        return await self.http.get(str(back.headers["location"]))


def _going_on(page: httpx2.Response) -> str:
    found = re.search(r'href="([^"]+)"', page.text)
    assert found is not None, page.text
    return unescape(found[1])


@pytest.fixture
async def company(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Company]:
    """Serve callers with tokens and one with a key, of whom staff of example.com may sign in."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOOLEXEC_LOGIN_KEY", base64.b64encode(b"k" * 32).decode())
    monkeypatch.setenv("IDP_SECRET", SECRET)
    async with login_server() as idp, login_server() as there:
        idp.key, idp.claims = KEY, {**STAFF}
        public = RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        idp.documents["/jwks"] = {"keys": [{**public, "kid": "key", "use": "sig"}]}
        ex = Exec()
        ex.add_http("notes", there.url, tools=TOOLS, auth={**PER, "issuer": there.url})
        auth = AuthSettings(
            api_keys=(ApiKey(id="ci", sha256=hash_key("key-of-ci")),),
            jwt=JwtSettings(
                issuer=idp.url, audience="tools", jwks_url=f"{idp.url}/jwks", roles_claim="groups", leeway=0
            ),
            sign_in=SignInSettings(
                client_id="toolexec",
                client_secret="secretref:env:IDP_SECRET",
                domains=("example.com",),
                groups=("staff",),
            ),
        )
        http = HttpSettings(port=0)
        settings = ServeSettings(transport="http", expose="direct", http=http, auth=auth)
        stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
        async with ToolServer(ex, settings) as server:
            work = serve_http(server, http, auth, logins=server.logins, ready=address.set_result, stop=stop)
            task = asyncio.create_task(work)
            try:
                yield Company(idp, there, server, (await address).removesuffix("/mcp"))
            finally:
                stop.set()
                await task


async def test_the_whole_way_of_a_person(company: Company) -> None:
    """The browser goes to the identity provider, with PKCE, a state and a nonce, and from there to the backend; the
    call is made with that login. The client's secret goes to the token endpoint of the identity provider alone."""
    link = await company.link(company.token("ann"))
    async with Browser(company, "ann") as ann:
        page = await ann.log_in(link)
        assert (page.status_code, "Logged in to notes" in page.text) == (200, True)
    assert not (await company.call(company.token("ann"))).is_error
    assert [owner for _, owner in company.there.served] == ["ann"]
    (asked,), (head,) = company.idp.asked, company.idp.heads
    assert len(asked["code_verifier"]) >= 43
    assert asked["redirect_uri"] == f"{company.root}/login/sign-in"
    assert base64.b64decode(head["authorization"].removeprefix("Basic ")).decode() == f"toolexec:{SECRET}"
    assert SECRET not in json.dumps(company.there.asked + company.there.heads)


async def test_a_caller_with_a_key_proves_itself_with_it(company: Company) -> None:
    """The page of such a caller asks for the key, and does not send anyone to the identity provider."""
    link = await company.link("key-of-ci")
    async with Browser(company, "ci") as browser:
        shown = await browser.http.get(link)
        assert ('type="password"' in shown.text, "Sign in at" in shown.text) == (True, False)
        assert (await browser.press(link)).status_code == 403
        page = await browser.http.post(link, data={"proof": "key-of-ci"}, headers={"origin": company.root})
        assert page.status_code == 200
    assert company.idp.paths == []


async def test_a_link_in_the_hands_of_another_person(company: Company) -> None:
    """One who has signed in as another person, comes back with another browser, or presses a button on another page, gets
    nothing, and nor does the sender of the link."""
    link = await company.link(company.token("bob"))
    async with Browser(company, "ann") as ann, Browser(company, "bob") as bob:
        page = await ann.log_in(link)
        assert (page.status_code, "made for another caller" in page.text) == (403, True)
        assert (await ann.press(link, "https://evil.example")).status_code == 403
        back = await bob.signed_in(link)
        page = await ann.http.get(back)
        assert (page.status_code, "begun in another browser" in page.text) == (403, True)
        assert (await bob.http.get(back)).status_code == 200
        assert (await bob.http.get(back)).status_code == 403  # an answer counts once
    assert company.there.asked == []


FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "nonce": ({"nonce": "another"}, "another nonce"),
    "no nonce": ({"nonce": None}, "another nonce"),
    "issuer": ({"iss": "https://evil.example"}, "of another issuer"),
    "expired": ({"exp": 1_000_000}, "has expired"),
    "no end": ({"exp": None}, "lacks exp"),
    "audience": ({"aud": "another-client"}, "not meant for this server"),
    "audience of calls": ({"aud": "tools"}, "not meant for this server"),
    "shared audience": ({"aud": ["toolexec", "other"]}, "another client"),
    "party": ({"azp": "other"}, "another client"),
    "no subject": ({"sub": None, "azp": "toolexec"}, "does not say who"),
    "taken ID": ({"sub": "ci"}, "ID of a caller who has an API key"),
    "domain": ({"email": "ann@evil.example"}, "no verified mail address"),
    "part of a domain": ({"email": "ann@example.com.evil.example"}, "no verified mail address"),
    "unverified": ({"email_verified": False}, "no verified mail address"),
    "group": ({"groups": ["guests"]}, "none of the groups"),
}


async def test_what_an_identity_token_must_not_say(company: Company, caplog: pytest.LogCaptureFixture) -> None:
    """Each forged or foreign ID token, one signed with another key, and an account that may not sign in, ends on a page
    that says why; no login begins at the backend, and no code, secret, token or mail address is in the log."""
    caplog.set_level(logging.DEBUG)
    link = await company.link(company.token("ann"))
    async with Browser(company, "ann") as ann:
        for name, (claims, why) in FORGED.items():
            company.idp.claims = STAFF | claims
            page = await ann.log_in(link)
            assert (page.status_code in (403, 502), why in unescape(page.text)) == (True, True), (name, page.text)
            assert "href" not in page.text
        company.idp.claims, company.idp.key = {**STAFF}, OTHER
        page = await ann.log_in(link)
        assert (page.status_code, "the token is not valid" in page.text) == (502, True)
        company.idp.key = None  # and none of a signature at all
        page = await ann.log_in(link)
        assert (page.status_code, "in a way that is not accepted" in page.text) == (502, True)
        company.idp.key = KEY
        assert company.there.asked == []
        codes = [each["code"] for each in company.idp.asked]
        leaks = [SECRET, "access-token-number", "evil.example/", "ann@", *codes, link.rpartition("/")[2]]
        ours = [each for each in caplog.records if each.name.startswith(("toolexec", "uvicorn"))]  # not the browser's
        logged = "\n".join(each.getMessage() for each in ours)
        assert "the token has expired" in logged
        assert [word for word in leaks if word in logged] == []
        assert (await ann.log_in(link)).status_code == 200  # the link was not used up


async def test_answers_that_are_forged(company: Company) -> None:
    """Another state, another issuer, a missing one and a refusal send no code to the token endpoint."""
    link = await company.link(company.token("ann"))
    async with Browser(company, "ann") as ann:
        for changed, status, why in (
            ({"state": "forged"}, 403, "not the answer to a sign-in"),
            ({"iss": "https://evil.example"}, 502, "names the issuer"),
            ({"iss": ""}, 502, "names the issuer"),
            ({"error": "access_denied"}, 502, "refused the login: access_denied"),
            ({"code": ""}, 502, "has no code"),
        ):
            place, _, query = (await ann.signed_in(link)).partition("?")
            page = await ann.http.get(f"{place}?{urlencode({**dict(parse_qsl(query)), **changed})}")
            assert (page.status_code, why in unescape(page.text)) == (status, True), page.text
        company.idp.wrong["answer_iss"] = ""
        page = await ann.http.get(await ann.signed_in(link))
        assert (page.status_code, "names no issuer" in page.text) == (502, True)
        twice = f"{await ann.signed_in(link)}&state=x"
        assert (await ann.http.get(twice)).status_code == 403
    assert company.idp.asked == []


@pytest.mark.parametrize("place", ["http://169.254.169.254/latest", "http://10.0.0.1/", "/elsewhere"])
async def test_a_token_endpoint_that_redirects(company: Company, place: str) -> None:
    """A token endpoint that redirects, to a private address or any other, is not followed: the page says so, and the
    same link works once that is over."""
    link = await company.link(company.token("ann"))
    async with Browser(company, "ann") as ann:
        company.idp.moved["/token"] = place
        page = await ann.log_in(link)
        assert (page.status_code, "redirects" in page.text, "href" in page.text) == (502, True, False)
        assert "/elsewhere" not in company.idp.paths
        assert company.there.asked == []
        company.idp.moved.clear()
        assert (await ann.log_in(link)).status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_endpoint": "http://10.0.0.1/token"},
        {"issuer": "https://evil.example"},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)
async def test_an_identity_provider_that_says_wrong_things_of_itself(company: Company, wrong: dict[str, Any]) -> None:
    """Another issuer, a token endpoint over http elsewhere and no PKCE end the sign-in before anyone is sent there."""
    company.idp.wrong |= wrong
    link = await company.link(company.token("ann"))
    async with Browser(company, "ann") as ann:
        page = await ann.press(link)
        assert (page.status_code, "The login has failed" in page.text, "href" in page.text) == (502, True, False)
        company.idp.wrong.clear()
        company.idp.wrong["code_challenge_methods_supported"] = None  # it does not say
        assert (await ann.log_in(link)).status_code == 200
        assert urlsplit(company.idp.url).netloc in (await ann.http.get(await company.link(company.token("bob")))).text


async def test_the_audit_log_has_each_sign_in(company: Company, tmp_path: Path) -> None:
    """A refused ID token, an account that may not sign in, another browser, another person and a good one are notes
    with the caller and the outcome, beside those of the logins; none has a secret."""
    links = company.server.logins
    assert links is not None
    links.audit = AuditLog.open(tmp_path / "audit.jsonl", state=tmp_path)
    link = await company.link(company.token("ann"))
    with closing(links.audit):
        async with Browser(company, "ann") as ann, Browser(company, "bob") as bob:
            for claims in ({"aud": "other"}, {"groups": []}):
                company.idp.claims = STAFF | claims
                await ann.log_in(link)
            company.idp.claims = {**STAFF}
            await bob.http.get(await ann.signed_in(link))
            await bob.log_in(link)
            assert (await ann.log_in(link)).status_code == 200
        text = (tmp_path / "audit.jsonl").read_text()
    notes = [each for each in map(json.loads, text.splitlines()) if each["kind"] == "note"]
    found = [(each["note"].split()[1], each["outcome"], (each.get("by") or {}).get("id")) for each in notes]
    assert found == [
        ("sign-in", "login", None),
        ("sign-in", "not_allowed", None),
        ("sign-in", "another_browser", None),
        ("sign-in", "ok", "bob"),
        ("login", "another_caller", "bob"),
        ("sign-in", "ok", "ann"),
        ("login", "ok", None),
    ]
    assert {each["caller"]["id"] for each in notes} == {"ann"}
    secrets = [SECRET, link.rpartition("/")[2], *(each["code"] for each in company.idp.asked), *company.idp.tokens]
    assert [secret for secret in secrets if secret in text] == []
