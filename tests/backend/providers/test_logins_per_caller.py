"""Calls that are made with the login of their caller, and never with another's."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.backend.providers.test_login import TOOLS, described
from tests.net.oauth.login_server import LoginServer, login_server, visit

from toolexec import Exec, Gate
from toolexec.backend.base import LoginBackend
from toolexec.errors import BackendUnavailableError, ConfigurationError, LoginRequiredError, PolicyError, ToolExecError
from toolexec.model.origin import Caller, Origin, acting
from toolexec.net.oauth.callers import CallerLogins
from toolexec.net.oauth.session import OAuthSession
from toolexec.net.oauth.settings import OAuthSettings
from toolexec.run.audit import AuditLog, read_last
from toolexec.run.layers.audit import Audit
from toolexec.run.layers.cache import Cache

PER = {"kind": "oauth", "scopes": ["read"], "per": "caller"}
WHO: dict[str, Any] = {"read": {"path": "/mcp/notes", "query": {"who": "{{who}}"}, "read_only": True}}
KEY = base64.b64encode(b"k" * 32).decode()


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LoginServer]:
    """Run a server to log in to, with a place of its own for logins."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOOLEXEC_LOGIN_KEY", KEY)
    async with login_server() as found:
        yield found


async def add(ex: Exec, server: LoginServer, kind: str = "http", tools: dict[str, Any] = TOOLS) -> LoginBackend:
    """Add the server as a provider of a kind, and return that."""
    if kind == "http":
        ex.add_http("notes", server.url, tools=tools, auth={**PER, "issuer": server.url})
    else:
        await ex.add_openapi("notes", described(server), auth={"person": {**PER, "issuer": server.url}})
    backend = ex.backends.get("notes")
    assert isinstance(backend, LoginBackend)
    return backend


async def log_in(backend: LoginBackend, server: LoginServer, caller: str) -> None:
    """Log a caller in."""

    async def show(link: str, code: str) -> None:
        server.visitor = caller
        await visit(link, code)

    await backend.log_in(show, caller=caller)


async def call(ex: Exec, caller: str, tool: str = "notes:read", **args: Any) -> Any:
    """Make a call as a caller."""
    with acting(Origin(caller=Caller(id=caller))):
        return await ex.run_tool(tool, args)


@pytest.mark.parametrize("kind", ["http", "openapi"])
async def test_each_caller_has_a_login(server: LoginServer, kind: str) -> None:
    """Calls have the token of their caller; without one the error says whose is missing, and nothing is sent."""
    async with Exec() as ex:
        backend = await add(ex, server, kind)
        await log_in(backend, server, "ann")
        assert (await call(ex, "ann")).ok
        with pytest.raises(LoginRequiredError, match="caller 'bob smith' has to log in") as raised:
            await call(ex, "bob smith")
        command = raised.value.command
        assert command == "toolexec login notes --caller 'bob smith'" + (" --scope read" if "scope" in command else "")
        await log_in(backend, server, "bob smith")
        assert (await call(ex, "bob smith")).ok
        assert [owner for _, owner in server.served] == ["ann", "bob smith"]
        (status,) = [each for each in ex.backend_statuses() if each.name == "notes"]
        assert status.info["login"] == "one per caller, 2 in use"
        assert await backend.log_out(caller="ann")
        with pytest.raises(LoginRequiredError, match="ann"):
            await call(ex, "ann")
        assert (await call(ex, "bob smith")).ok


async def test_a_call_of_no_known_caller_is_refused_and_says_what_to_configure(server: LoginServer) -> None:
    """A caller that is not known gets no login: no common one, and no other caller's."""
    async with Exec() as ex:
        backend = await add(ex, server)
        await log_in(backend, server, "ann")
        for caller in (Caller(), Caller(id="ann", tenant="a/b")):
            with acting(Origin(caller=caller)), pytest.raises(PolicyError, match="the login of each caller") as raised:
                await ex.run_tool("notes:read")
            assert raised.value.code == "no_caller"
        assert server.served == []
        with acting(Origin(caller=Caller(id="ann", tenant="t"))), pytest.raises(LoginRequiredError, match="t/ann"):
            await ex.run_tool("notes:read")


async def test_a_login_must_be_that_of_a_caller_where_each_has_one(server: LoginServer) -> None:
    """The commands say so, and so do settings that cannot work."""
    async with Exec() as ex:
        backend = await add(ex, server)
        with pytest.raises(ConfigurationError, match="--caller ID"):
            await backend.log_in(visit)
        ex.add_http("all", server.url, tools=TOOLS, auth={"kind": "oauth", "issuer": server.url})
        shared = ex.backends.get("all")
        assert isinstance(shared, LoginBackend)
        with pytest.raises(ConfigurationError, match='set per = "caller"'):
            await shared.log_in(visit, caller="ann")
        with pytest.raises(ConfigurationError, match="no person logs in"):
            OAuthSettings(flow="client", per="caller", client_id="c", client_secret="s", issuer=server.url)
        with pytest.raises(ConfigurationError, match="per"):
            OAuthSettings(per="person")  # type: ignore[arg-type]


async def test_a_revoked_token_is_renewed_once_and_disturbs_no_other_caller(server: LoginServer) -> None:
    """Twenty calls of one caller share a refresh, while another's go on meanwhile."""
    async with Exec(gate=None) as ex:
        backend = await add(ex, server)
        for caller in ("ann", "bob"):
            await log_in(backend, server, caller)
        del server.tokens["access-token-number-1"]
        server.hold = asyncio.Event()
        calls = [asyncio.ensure_future(call(ex, "ann", "notes:write")) for _ in range(20)]
        assert (await call(ex, "bob", "notes:write")).ok  # while ann's token is being renewed, or before
        server.hold.set()
        assert all(each.ok for each in await asyncio.gather(*calls))
        assert [each["grant_type"] for each in server.asked] == ["authorization_code"] * 2 + ["refresh_token"]
        assert [owner for _, owner in server.served].count("ann") == 20
        server.tokens.clear()
        server.refresh_tokens = {t: s for t, s in server.refresh_tokens.items() if server.owners[t] == "bob"}
        with pytest.raises(LoginRequiredError, match="'ann' has to log in: its login has ended"):
            await call(ex, "ann")
        assert (await call(ex, "bob")).ok


async def test_no_answer_is_kept_for_another_caller(server: LoginServer) -> None:
    """A cache for all callers does not have what was read with the login of one."""
    async with Exec(gate=Gate(cache=Cache(identity="none"))) as ex:
        backend = await add(ex, server)
        for caller in ("ann", "bob"):
            await log_in(backend, server, caller)
            assert (await call(ex, caller)).ok
        assert [owner for _, owner in server.served] == ["ann", "bob"]


async def test_the_audit_log_says_whose_login_was_used_and_no_token(server: LoginServer, tmp_path: Path) -> None:
    """Each record of a call with a login has its owner beside the caller."""
    path = tmp_path / "audit.jsonl"
    log = AuditLog.open(path, args="redacted", state=tmp_path)
    async with Exec(gate=Gate(audit=Audit(log))) as ex:
        backend = await add(ex, server)
        await log_in(backend, server, "ann")
        await call(ex, "ann")
        with pytest.raises(LoginRequiredError):
            await call(ex, "bob")
    log.close()
    records = [each for each in read_last(path, 20) if each["kind"] == "call"]
    assert [(each["caller"]["id"], each.get("login"), each["outcome"]) for each in records] == [
        ("ann", "ann", "ok"),
        ("bob", None, "login_required"),
    ]
    assert "token-number" not in path.read_text()


async def test_without_a_key_calls_say_what_to_set(server: LoginServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where logins cannot be kept safely there are none, and nothing is sent."""
    monkeypatch.delenv("TOOLEXEC_LOGIN_KEY")
    monkeypatch.setattr("toolexec.net.oauth.caller_store.system_ring", lambda: None)
    async with Exec(gate=None) as ex:
        await add(ex, server)
        with pytest.raises(BackendUnavailableError, match="set TOOLEXEC_LOGIN_KEY"):
            await call(ex, "ann")
        assert server.served == []


def test_no_more_logins_are_held_than_there_is_room_for() -> None:
    """The one that was not used for the longest time gives way, and its caller gets another session."""
    made: list[str] = []

    def make(caller: str) -> OAuthSession:
        made.append(caller)
        return OAuthSession("notes", "https://notes.example", OAuthSettings(per="caller"), caller=caller)

    logins = CallerLogins(make, most=2)
    first = logins.of("ann")
    assert logins.of("bob") is not first
    assert logins.of("ann") is first
    logins.of("eve")
    assert len(logins) == 2
    assert logins.of("ann") is first
    logins.of("bob")
    assert made == ["", "ann", "bob", "eve", "bob"]


NAMES = ("ann", "bob", "eve")
STEPS = st.lists(
    st.tuples(st.sampled_from(["call", "call", "login", "logout", "revoke", "end"]), st.sampled_from(NAMES)),
    min_size=3,
    max_size=12,
)


@settings(max_examples=15)
@given(steps=STEPS, together=st.booleans())
def test_no_order_of_logins_calls_and_ends_mixes_callers(steps: list[tuple[str, str]], together: bool) -> None:
    """Whatever callers do, one after the other or all at once, each call has its caller's token or is not made."""

    async def check(state: Path) -> None:
        async with login_server() as server, Exec(gate=None) as ex:
            backend = await add(ex, server, tools=WHO)
            source: Any = ex.backends.get("notes").source  # type: ignore[attr-defined]
            logins = await source.find_logins()
            logins._most = 2  # fewer than callers: sessions come and go
            make = logins._make

            def made(caller: str) -> OAuthSession:
                session = make(caller)
                session.store.directory = state
                session.store._given = KEY
                return session

            logins._make = made
            refused: list[tuple[str, object]] = []

            async def step(what: str, who: str) -> None:
                owned = [token for token, owner in server.owners.items() if owner == who]
                try:
                    if what == "call":
                        result = await call(ex, who, who=who)
                        assert result.ok or isinstance(result.error, ToolExecError)
                    elif what == "login":
                        await backend.log_in(partial(_visit_as, server, who), caller=who)
                    elif what == "logout":
                        await backend.log_out(caller=who)
                    elif what == "revoke":
                        [server.tokens.pop(token, None) for token in owned]
                    else:
                        [(server.tokens.pop(each, None), server.refresh_tokens.pop(each, None)) for each in owned]
                except LoginRequiredError as error:
                    refused.append((who, error.details["caller"]))
                except BackendUnavailableError:
                    pass  # its token was revoked while it was renewed

            if together:
                await asyncio.gather(*(step(*each) for each in steps))
            else:
                for each in steps:
                    await step(*each)
            assert all(query == f"who={owner}" for query, owner in server.served)
            assert all(who == named for who, named in refused)
            if not together:
                _check_alone(steps, [owner for _, owner in server.served])

    with tempfile.TemporaryDirectory() as state:
        asyncio.run(check(Path(state)))


def _check_alone(steps: list[tuple[str, str]], served: list[str]) -> None:
    """Check that exactly the calls of those were made that were logged in then."""
    there: set[str] = set()
    expected: list[str] = []
    for what, who in steps:
        if what == "login":
            there.add(who)
        elif what in ("logout", "end"):
            there.discard(who)
        elif what == "call" and who in there:
            expected.append(who)
    assert served == expected


async def _visit_as(server: LoginServer, who: str, link: str, code: str) -> None:
    server.visitor = who
    await visit(link, code)
