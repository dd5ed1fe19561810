"""Real HTTP clients get through the proxy to real servers, and nowhere else."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.runtime.egress.conftest import TOKEN, Bridge, Server, policy
from tests.servers import require_modern_node

from toolexec.runtime.egress import environment

pytestmark = pytest.mark.anyio


def fetch(bridge: Bridge, url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """With urllib."""
    context = ssl.create_default_context(cafile=str(bridge.ca_path))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({"http": bridge.url, "https": bridge.url}),
        urllib.request.HTTPSHandler(context=context),
    )
    try:
        with opener.open(urllib.request.Request(url, headers=headers), timeout=20) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


async def test_urllib_over_http(bridged: Callable[..., Any], plain: Server) -> None:
    """A plain request comes through, and is recorded without its query."""
    async with bridged(policy(f"api.test:{plain.port}")) as bridge:
        status, _, body = await asyncio.to_thread(fetch, bridge, f"http://api.test:{plain.port}/a/b?q=1")
    said = json.loads(body)
    assert (status, said["path"]) == (200, "/a/b?q=1")
    assert said["headers"]["host"] == f"api.test:{plain.port}"
    [record] = bridge.records
    assert (record.host, record.port, record.method, record.path) == ("api.test", plain.port, "GET", "/a/b")
    assert (record.status, record.allowed, record.reason, record.received) == (200, True, "", len(body))


async def test_urllib_over_https_with_a_secret(bridged: Callable[..., Any], secure: Server) -> None:
    """The host gets the secret, the code the placeholder's echo without it."""
    host = f"api.test:{secure.port}"
    async with bridged(policy(host, token_for=(host,))) as bridge:
        status, headers, body = await asyncio.to_thread(
            fetch, bridge, f"https://{host}/x", Authorization="Bearer PLACEHOLDER_TOKEN"
        )
    assert secure.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert status == 200
    assert TOKEN not in repr(headers) + body.decode()
    assert headers["x-echo"] == "Bearer " + "*" * len(TOKEN)
    assert json.loads(body)["headers"]["authorization"] == "Bearer " + "*" * len(TOKEN)
    assert TOKEN not in repr(bridge.records)


async def test_httpx_keeps_its_connection(bridged: Callable[..., Any], secure: Server, plain: Server) -> None:
    """Several requests, with bodies of known and of unknown length, over one connection to the host."""
    host = f"api.test:{secure.port}"

    async def parts() -> Any:
        for _ in range(3):
            yield b"x" * 1000

    async with bridged(policy(host, f"api.test:{plain.port}")) as bridge:
        context = ssl.create_default_context(cafile=str(bridge.ca_path))
        async with httpx.AsyncClient(proxy=bridge.url, verify=context, trust_env=False) as client:
            for scheme, port in (("https", secure.port), ("http", plain.port)):
                base = f"{scheme}://api.test:{port}"
                got = [
                    await client.post(f"{base}/1", content=b"abc"),
                    await client.post(f"{base}/2", content=parts()),
                    await client.get(f"{base}/3"),
                    await client.head(f"{base}/4"),
                ]
                assert [reply.status_code for reply in got] == [200] * 4
                assert got[0].json()["body"] == "abc"
                assert got[1].json()["body"] == "x" * 3000
    for server in (secure, plain):
        assert len({seen.client_address for seen in server.seen}) == 1


async def test_node_fetch(bridged: Callable[..., Any], secure: Server, plain: Server) -> None:
    """Node finds the proxy and its certificate by the environment alone."""
    node = require_modern_node()
    secret = f"api.test:{secure.port}"
    code = """
    const [one, two, three] = process.argv.slice(1);
    const a = await fetch(one, {headers: {authorization: "Bearer PLACEHOLDER_TOKEN"}});
    const b = await fetch(two, {method: "POST", body: "hi"});
    const c = await fetch(three).then((reply) => reply.status, (error) => String(error.cause.cause));
    console.log(JSON.stringify([a.status, await a.json(), b.status, await b.json(), c]));
    """
    async with bridged(policy(secret, f"api.test:{plain.port}", token_for=(secret,))) as bridge:
        done = await asyncio.to_thread(
            subprocess.run,
            [
                node,
                "--input-type=module",
                "-e",
                code,
                f"https://{secret}/n",
                f"http://api.test:{plain.port}/n",
                "http://other.test/",
            ],
            env={"PATH": os.environ["PATH"], **environment(bridge.port, str(bridge.ca_path))},
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    a, first, b, second, third = json.loads(done.stdout)
    assert (a, b, second["body"]) == (200, 200, "hi")
    assert first["headers"]["authorization"] == "Bearer " + "*" * len(TOKEN)
    assert secure.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert "403" in third
    assert sorted(record.allowed for record in bridge.records) == [False, True, True]


async def test_python_finds_the_proxy_by_the_environment(bridged: Callable[..., Any], secure: Server) -> None:
    """urllib in a process of its own, with nothing but the variables."""
    host = f"api.test:{secure.port}"
    async with bridged(policy(host)) as bridge:
        done = await asyncio.to_thread(
            subprocess.run,
            [
                sys.executable,
                "-I",
                "-c",
                "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).status)",
                f"https://{host}/",
            ],
            env=environment(bridge.port, str(bridge.ca_path)),
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.stdout.strip() == "200", done.stderr
