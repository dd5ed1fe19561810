"""Logging in: what a login asks for and keeps, how it is renewed, and what it refuses."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from tests.net.oauth.login_server import LoginServer, login_server, visit

from toolexec.errors import LoginError
from toolexec.net.oauth.login import begin_code_login, log_in
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.net.oauth.store import LoginStore


@pytest.fixture
async def server() -> AsyncIterator[LoginServer]:
    """Run a server to log in to."""
    async with login_server() as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> LoginStore:
    """Return a store in files of its own."""
    return LoginStore(tmp_path / "logins")


def session_of(server: LoginServer, store: LoginStore, **settings: Any) -> OAuthSession:
    """Return the login to a server."""
    return OAuthSession("notes", f"{server.url}/mcp", OAuthSettings(**settings), store)


async def call(session: OAuthSession, url: str = "") -> httpx2.Response:
    """Make a request as a backend does: with the token, and once more where there is another."""
    url = url or session.server
    async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=60) as client:
        token = await session.token(url)
        response = await client.post(url, headers={"Authorization": f"Bearer {token}"} if token else {})
        if response.status_code in (401, 403):
            challenges = response.headers.get_list("www-authenticate")
            if await session.refused(url, token, response.status_code, challenges):
                token = await session.token(url)
                response = await client.post(url, headers={"Authorization": f"Bearer {token}"})
        return response


async def test_a_person_logs_in_and_calls_are_accepted(server: LoginServer, store: LoginStore) -> None:
    """The client registers itself, sends PKCE and the resource, and its token is taken."""
    session = session_of(server, store)
    assert (await call(session)).status_code == 401
    assert session.needed is not None
    assert session.needed.command == "toolexec login notes"
    shown: list[str] = []

    async def show(link: str, code: str) -> None:
        shown.append(link)
        await visit(link)

    status = await log_in(session, show)
    assert (status.issuer, status.scopes, status.renews) == (server.url, ("read",), True)
    asked = dict(parse_qsl(urlsplit(shown[0]).query))
    assert asked["resource"] == f"{server.url}/mcp"
    assert asked["code_challenge_method"] == "S256"
    assert asked["scope"] == "read"
    assert len(urlsplit(asked["redirect_uri"]).path) > 20
    assert server.asked[0]["resource"] == f"{server.url}/mcp"
    assert (await call(session)).status_code == 200
    assert session.needed is None


async def test_a_client_is_registered_for_where_browsers_come_back_to(server: LoginServer, store: LoginStore) -> None:
    """A place on this machine is that of a native client, one of a server that of a web client (OpenID Connect)."""
    session = session_of(server, store)
    for place in ("http://127.0.0.1:9/x", "https://tools.example/login/callback/notes"):
        login = await begin_code_login(session, place)
        assert dict(parse_qsl(urlsplit(login.request.link).query))["redirect_uri"] == place
    kinds = [(each["application_type"], each["redirect_uris"]) for each in server.clients.values()]
    assert kinds == [
        ("native", ["http://127.0.0.1:9/x"]),
        ("web", ["https://tools.example/login/callback/notes"]),
    ]


async def test_a_login_is_kept_for_later_processes_in_a_file_of_its_owner(
    server: LoginServer, store: LoginStore
) -> None:
    """Another process with the same settings uses the login; its file is for its owner alone."""
    await log_in(session_of(server, store), visit)
    assert (await call(session_of(server, store))).status_code == 200
    (file,) = store.directory.glob("*.json")
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    with pytest.raises(Exception, match="may be read or written by others"):
        await session_of(server, store).token(f"{server.url}/mcp")


async def test_many_calls_share_one_refresh(server: LoginServer, store: LoginStore) -> None:
    """Twenty calls whose token is refused at the same time ask for a new one once."""
    session = session_of(server, store)
    await log_in(session, visit)
    server.tokens.clear()
    answers = await asyncio.gather(*(call(session) for _ in range(20)))
    assert {each.status_code for each in answers} == {200}
    assert [each["grant_type"] for each in server.asked] == ["authorization_code", "refresh_token"]
    assert server.asked[1]["resource"] == f"{server.url}/mcp"


async def test_a_token_that_ends_is_renewed_before_the_call(server: LoginServer, store: LoginStore) -> None:
    """A token is replaced shortly before its time is over, and what the refresh token is replaced by is kept."""
    now = [1000.0]
    session = OAuthSession("notes", f"{server.url}/mcp", OAuthSettings(), store, clock=lambda: now[0])
    await log_in(session, visit)
    now[0] += 3599
    assert (await call(session)).json() == {"token": "access-token-number-2"}
    now[0] += 3599
    assert (await call(session)).json() == {"token": "access-token-number-3"}


async def test_a_token_that_lasts_seconds_is_used_for_half_of_them(server: LoginServer, store: LoginStore) -> None:
    """A short time does not make each call ask for another token."""
    now = [1000.0]
    server.seconds = 20
    session = OAuthSession("notes", f"{server.url}/mcp", OAuthSettings(), store, clock=lambda: now[0])
    await log_in(session, visit)
    now[0] += 9
    assert (await call(session)).json() == {"token": "access-token-number-1"}
    now[0] += 2
    assert (await call(session)).json() == {"token": "access-token-number-2"}


async def test_two_processes_do_not_use_a_refresh_token_twice(server: LoginServer, store: LoginStore) -> None:
    """One process takes from the store what the other one has renewed."""
    one, two = session_of(server, store), session_of(server, store)
    await log_in(one, visit)
    assert await two.token(two.server)
    server.tokens.clear()
    answers = await asyncio.gather(call(one), call(two))
    assert [each.status_code for each in answers] == [200, 200]
    assert len(server.asked) == 2


async def test_a_refresh_token_that_was_revoked_asks_for_a_login_once(server: LoginServer, store: LoginStore) -> None:
    """The calls say that the login has ended, and do not ask with the dead token again."""
    session = session_of(server, store)
    await log_in(session, visit)
    server.tokens.clear()
    server.refresh_tokens.clear()
    assert [(await call(session)).status_code for _ in range(3)] == [401, 401, 401]
    assert session.needed is not None
    assert "its login has ended: toolexec login notes" in session.needed.message
    assert len(server.asked) == 2


async def test_scopes_that_are_missing_are_named_and_added(server: LoginServer, store: LoginStore) -> None:
    """A call that needs more scopes names them and the command; that login has those of before, too."""
    session = session_of(server, store)
    await log_in(session, visit)
    server.needed = "write"
    assert (await call(session)).status_code == 403
    assert session.needed is not None
    assert session.needed.command == "toolexec login notes --scope write"
    assert session.needed.details["scopes"] == ["write"]
    status = await log_in(session, visit, scopes=["write"])
    assert set(status.scopes) == {"read", "write"}
    assert (await call(session)).status_code == 200


async def test_a_client_logs_in_by_itself_and_steps_up(server: LoginServer, store: LoginStore) -> None:
    """With the flow client no person is needed; more scopes are asked for once."""
    session = session_of(
        server, store, flow="client", client_id="robot", client_secret="the-secret-of-it", issuer=server.url
    )
    assert (await call(session)).status_code == 200
    assert server.heads[0]["authorization"] == f"Basic {base64.b64encode(b'robot:the-secret-of-it').decode()}"
    server.needed = "read write"
    assert (await call(session)).status_code == 200
    assert [each.get("scope") for each in server.asked] == ["read", "read write"]
    assert "the-secret-of-it" not in next(store.directory.glob("*.json")).read_text()


async def test_calls_that_step_up_at_the_same_time_share_one_login(server: LoginServer, store: LoginStore) -> None:
    """Ten calls that lack the same scope have a client log in once more; a server that wants ever more is not followed."""
    session = session_of(
        server, store, flow="client", client_id="robot", client_secret="the-secret-of-it", issuer=server.url
    )
    assert (await call(session)).status_code == 200
    server.needed = "read write"
    answers = await asyncio.gather(*(call(session) for _ in range(10)))
    assert {each.status_code for each in answers} == {200}
    assert len(server.asked) == 2
    server.needed = " ".join(f"s{number}" for number in range(200))
    assert (await call(session)).status_code == 403
    assert len(server.asked) == 2
    assert session.needed is not None


async def test_a_token_that_was_replaced_is_still_a_secret(server: LoginServer, store: LoginStore) -> None:
    """An answer to a call that was made with it may come later."""
    session = session_of(server, store)
    await log_in(session, visit)
    server.tokens.clear()
    assert (await call(session)).status_code == 200
    assert {"access-token-number-1", "access-token-number-2", "refresh-token-number-1"} <= session.secrets
    await session.logout()
    assert "access-token-number-2" in session.secrets


async def test_a_client_proves_itself_with_a_key(server: LoginServer, store: LoginStore) -> None:
    """With a private key an assertion is signed for the issuer alone, and lives for two minutes."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    session = session_of(server, store, flow="client", client_id="robot", private_key=pem, issuer=server.url)
    assert (await call(session)).status_code == 200
    import jwt

    claims = jwt.decode(
        server.asked[0]["client_assertion"], key.public_key(), algorithms=["ES256"], audience=server.url
    )
    assert (claims["iss"], claims["sub"]) == ("robot", "robot")
    assert claims["exp"] - claims["iat"] == 120


async def test_a_person_logs_in_on_another_device(server: LoginServer, store: LoginStore) -> None:
    """The code is shown, and asked for as often as the server wants, until it was typed in."""
    session, pauses, shown = session_of(server, store), list[float](), list[str]()

    async def show(link: str, code: str) -> None:
        shown.extend((link, code))

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        server.approved = len(pauses) == 3

    await log_in(session, show, device=True, sleep=sleep)
    assert shown == [f"{server.url}/type", "AB-CD"]
    assert pauses == [5, 5, 5]
    assert (await call(session)).status_code == 200


async def test_logging_out_forgets_the_login_and_ends_it_there(server: LoginServer, store: LoginStore) -> None:
    """The tokens are revoked, and no process has them any more."""
    session = session_of(server, store)
    await log_in(session, visit)
    assert await session.logout()
    assert not await session.logout()
    assert server.revoked == ["refresh-token-number-1", "access-token-number-1"]
    assert await session_of(server, store).token(session.server) == ""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"answer_iss": "https://evil.example"}, "names the issuer 'https://evil.example'"),
        ({"answer_iss": ""}, "names no issuer"),
        ({"issuer": "https://evil.example"}, "is that of 'https://evil.example'"),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
        ({"code_challenge_methods_supported": None}, "PKCE with S256"),
        ({"token_endpoint": "http://169.254.169.254/token"}, "http is for this machine only"),
        ({"token_endpoint": "http://login.example/token"}, "http is for this machine only"),
        ({"token_endpoint": "https://169.254.169.254/token"}, "private address"),
        ({"registration_endpoint": "file:///etc/passwd"}, "not a plain https URL"),
    ],
)
async def test_a_login_that_cannot_be_trusted_is_refused(
    server: LoginServer, store: LoginStore, wrong: dict[str, Any], message: str
) -> None:
    """Forged issuers and places that must not be reached end the login; nothing is kept."""
    server.wrong = wrong
    session = session_of(server, store)
    with pytest.raises(LoginError, match=message):
        await log_in(session, visit)
    assert await session.status() is None
    assert not server.asked


async def test_an_answer_with_another_state_is_not_taken(server: LoginServer, store: LoginStore) -> None:
    """An answer to another request is refused where it arrives, and the login waits until its time is over."""
    server.wrong = {"answer_state": "forged"}
    with pytest.raises(LoginError, match="there was no login within"):
        await log_in(session_of(server, store), visit, seconds=0.05)
    assert not server.asked


async def test_an_id_token_with_another_nonce_is_refused(server: LoginServer, store: LoginStore) -> None:
    """With the scope openid the answer must be one to this request."""
    session = session_of(server, store, scopes=["openid"])
    await log_in(session, visit)
    server.wrong = {"answer_nonce": "forged"}
    with pytest.raises(LoginError, match="another nonce"):
        await log_in(session, visit)


@pytest.mark.parametrize("path", ["/token", "/register", "/.well-known/oauth-authorization-server"])
async def test_redirects_are_not_followed(server: LoginServer, store: LoginStore, path: str) -> None:
    """A place that redirects, to a private address or to any other, ends the login."""
    server.moved[path] = "http://10.0.0.1/token"
    with pytest.raises(LoginError):
        await log_in(session_of(server, store), visit)
    assert "10.0.0.1" not in json.dumps(server.asked)
    assert await session_of(server, store).status() is None


@pytest.mark.parametrize("resource", ["https://other.example/mcp", "{url}/other", None])
async def test_metadata_of_another_resource_is_refused(
    server: LoginServer, store: LoginStore, resource: str | None
) -> None:
    """A server cannot have tokens made for another one."""
    server.resource_wrong = {"resource": resource.format(url=server.url) if resource else resource}
    with pytest.raises(LoginError, match="another resource"):
        await log_in(session_of(server, store), visit)


async def test_a_token_stays_with_the_origin_that_it_is_for(server: LoginServer, store: LoginStore) -> None:
    """A server that moves to another origin does not get the token, nor does another URL in the same session."""
    session = session_of(server, store)
    await log_in(session, visit)
    async with login_server() as other:
        assert await session.token(f"{other.url}/mcp") == ""
        assert not await session.refused(f"{other.url}/mcp", "", 401, ["Bearer"])
        moved = session_of(other, store)
        assert (await call(moved)).status_code == 401
        assert not other.asked


async def test_a_server_elsewhere_cannot_lead_to_this_machine(server: LoginServer, store: LoginStore) -> None:
    """The metadata of a remote server may not name loopback or private places."""
    session = OAuthSession("far", "https://far.example/mcp", OAuthSettings(), store)
    for place in (f"{server.url}/token", "https://127.0.0.1/token", "https://10.0.0.1/token", "https://localhost/t"):
        with pytest.raises(LoginError, match="private address"):
            session.reach.check(place, "the token endpoint")
    session.reach.check("https://login.example/token", "the token endpoint")


async def test_a_secret_goes_to_the_issuer_of_the_settings_alone(server: LoginServer, store: LoginStore) -> None:
    """A server that leads to another issuer gets no secret."""
    session = session_of(
        server, store, flow="client", client_id="robot", client_secret="s" * 20, issuer="https://login.example"
    )
    assert (await call(session)).status_code == 401
    assert session.needed is not None
    assert "leads to the authorization server" in session.needed.message
    assert not server.asked


async def test_no_token_is_in_a_repr_or_an_error(server: LoginServer, store: LoginStore) -> None:
    """Neither a status nor a repr has a token or a refresh token."""
    session = session_of(server, store)
    await log_in(session, visit)
    login = await store.load("notes", session.server)
    shown = f"{login!r} {session.in_short()} {await session.status()!r}"
    assert "token-number" not in shown
    assert session.secrets == {"access-token-number-1", "refresh-token-number-1"}
