"""Which endpoints names and files give: what is found, what is refused, and what stays while nothing can be looked up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing, closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.here import use_names
from packages.remote.tests.tools import Workshop
from packages.remote.tests.virtual import VirtualLoop
from tests.waiting import PATIENCE

from toolexec.errors import ConfigurationError, SandboxDeniedError, SandboxUnavailableError
from toolexec.remote import RemoteSettings
from toolexec.runtime import Runtime
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.discovery import Discovery
from toolexec_remote.sources import FileSource, Member

NAME = "dns+https://runtime.code.svc:8090/v1/execute"
PLAIN = "dns+http://runtime.code.svc:8090/v1/execute"


def settings_of(*endpoints: str, **fields: Any) -> RemoteSettings:
    return RemoteSettings(endpoints=endpoints, key_id="k", token="a token of sixteen", **fields)


class Names:
    """Gives the addresses that it has now, or fails with an error; counts how often it was asked, and when last."""

    def __init__(self, *addresses: str) -> None:
        self.now: Sequence[str] | OSError = addresses
        self.asked: list[float] = []
        self.hangs = False

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("runtime.code.svc", 8090)
        self.asked.append(asyncio.get_running_loop().time())
        if self.hangs:
            await asyncio.Event().wait()
        if isinstance(self.now, OSError):
            raise self.now
        return self.now


async def found_by(names: Names, entry: str = NAME, **fields: Any) -> Discovery:
    """Return what was found by one look."""
    discovery = Discovery(settings_of(entry, **fields), names)
    await discovery.use(PATIENCE)
    await discovery.aclose()
    return discovery


async def test_each_address_of_a_name_is_an_endpoint() -> None:
    """Each once, with the name for `Host` and certificates."""
    discovery = await found_by(Names("10.0.0.2", "10.0.0.1", "10.0.0.2", "fd12::1"))
    host = "runtime.code.svc:8090"
    assert discovery.members == (
        Member("https://10.0.0.1:8090/v1/execute", host),
        Member("https://10.0.0.2:8090/v1/execute", host),
        Member("https://[fd12::1]:8090/v1/execute", host),
    )
    first = discovery.members[0]
    assert (first.headers, first.tls_name) == ({"Host": host}, "runtime.code.svc")
    assert discovery.states == {}


@pytest.mark.parametrize(
    ("address", "entry", "networks", "why"),
    [
        ("169.254.169.254", NAME, (), "this network or machine only"),
        ("169.254.169.254", NAME, ("169.254.0.0/16", "10.0.0.0/8"), "this network or machine only"),
        ("::ffff:169.254.169.254", NAME, ("0.0.0.0/0", "::/0"), "this network or machine only"),
        ("fd00:ec2::254", NAME, ("::/0", "10.0.0.0/8"), "this network or machine only"),
        ("fd12::1%eth0", NAME, (), "not a plain one"),
        ("127.0.0.1", NAME, (), "this machine"),
        ("::ffff:127.0.0.1", NAME, (), "this machine"),
        ("::1", NAME, (), "this machine"),
        ("10.1.0.1", NAME, ("10.0.0.0/16", "fd00::/8"), "not in 10.0.0.0/16"),
        ("8.8.8.8", PLAIN, (), "of the internet"),
    ],
)
async def test_addresses_that_must_not_be_reached_are_refused(
    address: str, entry: str, networks: tuple[str, ...], why: str
) -> None:
    """The error says which, and that waiting does not help; a good address beside it is used."""
    discovery = await found_by(Names(address), entry, networks=networks, plain_http=True)
    problem = discovery.problems[entry]
    assert isinstance(problem, SandboxDeniedError)
    assert (problem.code, problem.outcome, problem.retryable) == ("address_denied", "not_sent", False)
    assert why in str(problem.details["addresses"])
    assert (discovery.members, discovery.is_hopeless) == ((), True)
    some = await found_by(Names(address, "10.0.0.1"), entry, networks=networks, plain_http=True)
    assert [member.endpoint.split("/")[2] for member in some.members] == ["10.0.0.1:8090"]
    assert address in some.states[entry]
    assert some.is_hopeless  # of further ones: that is left to the endpoint


@pytest.mark.parametrize(
    ("address", "entry", "networks"),
    [
        ("8.8.8.8", NAME, ()),
        ("192.168.7.7", PLAIN, ()),
        ("127.0.0.3", NAME, ("127.0.0.0/8",)),
        ("8.8.8.8", PLAIN, ("8.8.8.0/24",)),
    ],
)
async def test_addresses_that_may_be_reached_are_used(address: str, entry: str, networks: tuple[str, ...]) -> None:
    """Private ones and, over TLS, those of the internet; others where `networks` has them."""
    discovery = await found_by(Names(address), entry, networks=networks, plain_http=True)
    assert len(discovery.members) == 1
    assert discovery.problems == {}


async def test_a_refused_name_fails_at_once() -> None:
    """Without waiting for the end of the run: its cause has the addresses."""
    backend = RemoteBackend(settings_of(NAME))
    use_names(backend, Names("169.254.169.254"))
    async with aclosing(backend):
        state = await backend.check()
        with pytest.raises(SandboxUnavailableError) as caught:
            await Runtime([backend]).execute(Workshop().request("x", timeout=30.0))
    assert (caught.value.retryable, caught.value.outcome) == (False, "not_sent")
    assert isinstance(state.error, SandboxUnavailableError)
    assert not state.error.retryable
    assert isinstance(state.error.__cause__, SandboxDeniedError)
    assert state.error.__cause__.code == "address_denied"
    assert NAME in state.error.details["endpoints"]


async def test_a_name_that_is_not_found_now_is_worth_a_retry() -> None:
    """Through the router: nothing was run, and the error says which name, and why."""
    backend, names = RemoteBackend(settings_of(NAME, connect_timeout=0.2)), Names()
    names.now = OSError("the resolver failed")
    use_names(backend, names)
    async with aclosing(backend):
        with pytest.raises(SandboxUnavailableError) as caught:
            await Runtime([backend]).execute(Workshop().request("x", timeout=0.3))
    assert (caught.value.retryable, caught.value.outcome) == (True, "not_sent")
    assert "the resolver failed" in str(caught.value.details)


def test_names_are_looked_up_again_and_failures_change_nothing() -> None:
    """Every second at most, often while in use, seldom when idle; a resolver that fails or hangs keeps what was."""
    names = Names("10.0.0.1")
    changes: list[int] = []

    async def happen() -> None:
        discovery = Discovery(settings_of(NAME), names)
        discovery.on_look = lambda: changes.append(len(discovery.members))
        await discovery.use(1.0)
        assert len(discovery.members) == 1
        names.now = ["10.0.0.1", "10.0.0.2"]
        await asyncio.sleep(1.01)
        assert len(discovery.members) == 2
        for wrong in (OSError("no such name"), []):
            names.now = wrong
            await asyncio.sleep(1.01)
            assert len(discovery.members) == 2
            assert discovery.problems[NAME].retryable
        names.now, names.hangs = ["10.0.0.3"], True
        before = len(names.asked)
        await asyncio.sleep(30)
        assert len(names.asked) == before + 1  # it is not asked again before it has answered
        assert "within 5 s" in discovery.states[NAME]
        assert len(discovery.members) == 2
        await discovery.aclose()
        names.hangs = False
        again = Discovery(settings_of(NAME), names)
        await again.use(1.0)
        names.asked.clear()
        await asyncio.sleep(600)
        late = [at for at in names.asked if at > asyncio.get_running_loop().time() - 500]
        assert all(15 <= after - before <= 30.1 for before, after in pairwise(late))
        assert len(late) > 15
        names.now = ["10.0.0.4"]
        again.touch()
        await asyncio.sleep(0.01)
        assert again.names == ("https://10.0.0.4:8090/v1/execute",)
        await again.aclose()

    with closing(VirtualLoop()) as loop:
        loop.run_until_complete(happen())
    assert changes[0] == 1


async def look(path: Path, text: str, **fields: Any) -> tuple[Member, ...]:
    path.write_text(text)
    entry = f"file:{path}"
    found, _ = await FileSource(entry, settings_of(entry, **fields)).look()
    return found


async def test_a_file_has_an_endpoint_on_each_line_or_a_list(tmp_path: Path) -> None:
    """Comments and empty lines say nothing, and what is there twice counts once."""
    a, b = "https://a.example.com/v1/execute", "http://127.0.0.1:8090/v1/execute"
    path = tmp_path / "runtimes"
    assert await look(path, f"# ours\n{a}\n\n  {b}\n{a}\n") == (Member(a), Member(b))
    assert await look(path, json.dumps([b, a])) == (Member(b), Member(a))
    refused = "https://169.254.169.254/v1/execute"
    assert await look(path, f"{a}\n{refused}\n") == (Member(a),)
    with pytest.raises(SandboxDeniedError):
        await look(path, refused)
    with pytest.raises(SandboxDeniedError):
        await look(path, b, networks=("10.0.0.0/8",))


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "[1]", '["https://a.example.com"', "http://far.example.com/", "ftp://a", NAME, "file:/x"],
)
async def test_a_file_that_makes_no_sense_changes_nothing(tmp_path: Path, text: str) -> None:
    """The endpoints that it had before stay, and the problem is known; the next good one counts."""
    path = tmp_path / "runtimes"
    path.write_text("https://a.example.com/v1/execute")
    entry = f"file:{path}"
    discovery = Discovery(settings_of(entry))
    await discovery.use(PATIENCE)
    path.write_text(text)
    await discovery._look(entry, discovery._sources[entry])
    assert discovery.names == ("https://a.example.com/v1/execute",)
    assert entry in discovery.states
    path.write_text("https://b.example.com/v1/execute")
    await discovery._look(entry, discovery._sources[entry])
    assert discovery.names == ("https://b.example.com/v1/execute",)
    assert discovery.states == {}
    await discovery.aclose()


async def test_endpoints_of_several_kinds_are_one_set(tmp_path: Path) -> None:
    """An endpoint that two of them name counts once; a file that is not there yet is waited for."""
    one = "https://10.0.0.1:8090/v1/execute"
    discovery = Discovery(settings_of(one, NAME, f"file:{tmp_path / 'later'}"), Names("10.0.0.1", "10.0.0.2"))
    looked = asyncio.Event()
    discovery.on_look = lambda: looked.set() if not discovery._unseen else None
    assert discovery.names == (one,)
    await discovery.use(PATIENCE)
    await asyncio.wait_for(looked.wait(), PATIENCE)
    await discovery.aclose()
    assert discovery.names == (one, "https://10.0.0.2:8090/v1/execute")
    assert not discovery.is_hopeless


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endpoints": ("dns+https://10.0.0.1/v1/execute",)}, "leave dns. out"),
        ({"endpoints": ("dns+http://runtime.code.svc/v1/execute",)}, "plain_http"),
        ({"endpoints": ("dns+ftp://runtime.code.svc/",)}, "not a URL of HTTP"),
        ({"endpoints": ("file:runtimes",)}, "file:/etc/toolexec/runtimes"),
        ({"endpoints": (NAME,), "networks": ("10.0.0.1/8",)}, "not a network"),
        ({"endpoints": (NAME,), "discovery_interval": 0.0}, "discovery_interval"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given: dict[str, Any], said: str) -> None:
    """Before anything is looked up."""
    with pytest.raises(ConfigurationError, match=said):
        RemoteSettings(key_id="k", token="a token of sixteen", **given)
