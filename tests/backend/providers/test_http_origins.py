"""Credentials of an HTTP provider stay with the origins that its operator named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.backend.providers.service import Service, serving

from toolexec import Exec
from toolexec.errors import BackendUnavailableError, ConfigurationError, InputValidationError

CREDENTIALS: list[dict[str, Any]] = [
    {"auth": {"bearer": "the-key"}},
    {"auth": {"query": "key", "value": "the-key"}},
    {"headers": {"X-Key": "the-key"}},
    {"query": {"key": "the-key"}},
]


@pytest.fixture
def other() -> Iterator[Service]:
    """A second service, on an origin of its own."""
    with serving() as service:
        yield service


async def called(tool: str, args: dict[str, Any] | None = None, **settings: Any) -> None:
    """Call a tool of a provider, and require that it answers."""
    async with Exec(gate=None) as ex:
        await ex.add_http("api", **settings)
        (await ex.run_tool(f"api:{tool}", args or {})).raise_for_error()


def knows(service: Service) -> bool:
    """Say whether a request with the key has reached a service."""
    return any("the-key" in f"{each.query} {each.headers}" for each in service.seen)


@pytest.mark.parametrize("credential", CREDENTIALS, ids=str)
async def test_a_tool_elsewhere_takes_no_credential_along(
    service: Service, other: Service, credential: dict[str, Any]
) -> None:
    """A tool with a whole URL of another origin is refused before anything is sent; its sibling works."""
    tools = {"here": {"path": "/here"}, "there": {"path": f"{other.url}/there"}}
    await called("here", base_url=service.url, tools=tools, **credential)
    with pytest.raises(BackendUnavailableError, match=f"add {other.url} to credential_origins of the provider api"):
        await called("there", base_url=service.url, tools=tools, **credential)
    assert knows(service)
    assert other.seen == []


async def test_named_origins_get_it(service: Service, other: Service) -> None:
    """An origin that is named gets the credential; a tool elsewhere that needs none is called."""
    tools = {"there": {"path": f"{other.url}/there"}}
    await called("there", base_url=service.url, tools=tools)
    assert not knows(other)
    await called("there", base_url=service.url, tools=tools, credential_origins=[other.url], **CREDENTIALS[0])
    assert knows(other)


async def test_tools_of_one_origin_need_no_base_url(service: Service, other: Service) -> None:
    """Whole URLs of one origin name it; those of two say nothing, and neither gets the credential."""
    here, there = {"path": f"{service.url}/here"}, {"path": f"{other.url}/there"}
    await called("here", tools={"here": here}, **CREDENTIALS[0])
    assert knows(service)
    service.seen.clear()
    for name in ("here", "there"):
        with pytest.raises(BackendUnavailableError, match="credential_origins"):
            await called(name, tools={"here": here, "there": there}, **CREDENTIALS[0])
    assert service.seen == other.seen == []


@pytest.mark.parametrize("path", ["{where}", "/{where}", "?to={where}", "/a/{where}/b"])
@pytest.mark.parametrize("form", ["{}/x", "@{}/x", "//{}", "\\\\{}", ":80@{}", "#@{}"])
async def test_an_argument_chooses_no_host(service: Service, other: Service, path: str, form: str) -> None:
    """An argument becomes a part of the path or the query; it never moves the request to another host."""
    where = form.format(other.url.partition("//")[2])
    call = called("it", {"where": where}, base_url=service.url, tools={"it": {"path": path}}, **CREDENTIALS[0])
    if where[0] in "/\\" and not path.startswith("?"):
        with pytest.raises(InputValidationError, match="must not begin with a slash"):
            await call
        assert service.seen == []
    else:
        await call
        assert knows(service)
    assert other.seen == []


@pytest.mark.parametrize("credential", CREDENTIALS, ids=str)
async def test_a_redirect_takes_no_credential_along(
    service: Service, other: Service, credential: dict[str, Any]
) -> None:
    """A redirect to another host that may be reached is followed without the credential."""
    tools = {"it": {"path": "/go", "query": {"to": f"{other.url}/there"}}}
    hosts = [other.url.partition("//")[2]]
    await called("it", base_url=service.url, tools=tools, hosts=hosts, **credential)
    assert knows(service)
    assert [each.path for each in other.seen] == ["/there"]
    assert not knows(other)


@pytest.mark.parametrize("wrong", ["example.com", "https://example.com/path", "https://me@example.com"])
async def test_what_is_not_an_origin_is_an_error(wrong: str) -> None:
    """An entry that is not scheme and host is a mistake in the settings."""
    with pytest.raises(ConfigurationError, match="is not an origin"):
        await called("it", base_url="https://a.test", tools={"it": {"path": "/"}}, credential_origins=[wrong])
