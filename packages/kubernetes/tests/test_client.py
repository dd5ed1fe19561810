"""The client of an API server, against a real server on this machine that answers as is wanted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from toolexec.errors import ConfigurationError
from toolexec_kubernetes import KubernetesConfig, client
from toolexec_kubernetes.client import KubeClient
from toolexec_kubernetes.failures import KubeError

PODS = "/api/v1/namespaces/code/pods"


class Api:
    """An API server: `answers` has what it says, one after the other, and `asked` what it was asked."""

    def __init__(self, directory: Path) -> None:
        self.answers: list[tuple[int, Any, dict[str, str]]] = []
        self.asked: list[tuple[str, str, Any]] = []
        self.tokens: list[str] = []
        self.media: list[str] = []
        self.file = directory / "kubeconfig"
        self.host = ""

    def say(self, status: int, body: Any = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, {} if body is None else body, named))

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.asked.append((request.method, request.path, json.loads(body) if body else dict(request.query)))
        self.tokens.append(request.headers.get("Authorization", ""))
        self.media.append(request.headers.get("Content-Type", ""))
        status, said, headers = self.answers.pop(0)
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        return web.Response(status=status, body=data, headers=headers)

    def write(self, *, host: str = "", token: str = "first", **context: str) -> KubernetesConfig:
        """Write a kubeconfig, and return the settings that have it."""
        cluster = {"server": host or self.host}
        contexts = [
            {"name": "own", "context": {"cluster": "c", "user": "u", **context}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "elsewhere"}},
        ]
        found = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": contexts,
            "current-context": "own",
        }
        self.file.write_text(json.dumps(found), "utf-8")
        return KubernetesConfig(kubeconfig=str(self.file), namespace="code")


@pytest.fixture
async def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """Give a server that listens; another try comes at once."""
    monkeypatch.setattr(client, "_PAUSE", 0.0)
    found = Api(tmp_path)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.host = f"http://{host}:{port}"
    found.write()
    yield found
    await runner.cleanup()


@pytest.fixture
async def kube(api: Api) -> AsyncIterator[KubeClient]:
    found = await KubeClient.connect(api.write())
    yield found
    await found.aclose()


def status(message: str, reason: str = "") -> dict[str, Any]:
    return {"kind": "Status", "message": message, "reason": reason}


async def test_objects_are_read_made_changed_and_removed(api: Api, kube: KubeClient) -> None:
    """Each request names us, and says what its body is."""
    for said in ({"items": []}, {"made": 1}, {"changed": 1}, {}, status("none", "NotFound")):
        api.say(404 if "reason" in said else 200, said)
    path = kube.path("v1", "pods")
    assert await kube.get(path, labelSelector="a=b") == {"items": []}
    assert await kube.create(path, {"kind": "Pod"}) == {"made": 1}
    assert await kube.merge(f"{path}/a", {"spec": {}}) == {"changed": 1}
    assert await kube.delete(f"{path}/a", grace=0, version="7")
    assert not await kube.delete(f"{path}/a")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    assert api.asked == [
        ("GET", PODS, {"labelSelector": "a=b"}),
        ("POST", PODS, {"kind": "Pod"}),
        ("PATCH", f"{PODS}/a", {"spec": {}}),
        ("DELETE", f"{PODS}/a", {**options, "gracePeriodSeconds": 0, "preconditions": {"resourceVersion": "7"}}),
        ("DELETE", f"{PODS}/a", options),
    ]
    assert set(api.tokens) == {"Bearer first"}
    assert api.media[1:3] == ["application/json", "application/merge-patch+json"]
    assert kube.path("apps/v1", "jobs", "x") == "/apis/apps/v1/namespaces/code/jobs/x"


async def test_a_request_is_repeated_where_that_does_no_harm(api: Api, kube: KubeClient) -> None:
    """A question that is sent as an object is not repeated; what was made by the first try is not an error."""
    api.say(503, status("busy"))
    api.say(200, {"a": 1})
    assert await kube.get("/version") == {"a": 1}
    api.say(500, status("timed out"))
    api.say(409, status("it exists", "AlreadyExists"))
    assert await kube.create(PODS, {}) == {}
    api.say(409, status("resourcequotas changed"))
    api.say(201, {"b": 2})
    assert await kube.create(PODS, {}) == {"b": 2}
    api.say(503, status("busy"))
    with pytest.raises(KubeError, match="busy"):
        await kube.ask("/reviews", {})
    api.say(429, status("slow down"), Retry_After="0")
    api.say(200, {"c": 3})
    assert await kube.ask("/reviews", {}) == {"c": 3}
    assert len(api.asked) == 9
    assert not api.answers


async def test_a_server_that_stays_busy_is_given_up(api: Api, kube: KubeClient) -> None:
    """After three tries, or at once where it asks to wait for longer than a request is repeated."""
    for _ in range(3):
        api.say(502, b"<html>bad gateway</html>")
    with pytest.raises(KubeError, match="bad gateway") as caught:
        await kube.get("/version")
    assert (caught.value.status, caught.value.reason, len(api.asked)) == (502, "", 3)
    api.say(429, status("slow down"), Retry_After="3600")
    with pytest.raises(KubeError, match="slow down") as caught:
        await kube.get("/version")
    assert (caught.value.retry_after, len(api.asked)) == (3600.0, 4)


async def test_an_answer_that_does_not_change_is_not_waited_for(api: Api, kube: KubeClient) -> None:
    """A name that is taken at the first try is that of another object."""
    for code, said in ((409, status("it exists", "AlreadyExists")), (403, status("may not")), (500, b"")):
        api.say(code, said)
    for match in ("it exists", "may not"):
        with pytest.raises(KubeError, match=match):
            await kube.create(PODS, {})
    with pytest.raises(KubeError, match="Internal Server Error"):
        await kube.ask(PODS, {})
    assert len(api.asked) == 3


async def test_credentials_are_read_again_when_they_are_refused(api: Api, kube: KubeClient) -> None:
    """Once for a request: if those are refused, too, it fails; a kubeconfig that is gone changes nothing."""
    api.write(token="second")
    api.say(401, status("Unauthorized"))
    api.say(200, {"a": 1})
    assert await kube.get("/version") == {"a": 1}
    assert api.tokens == ["Bearer first", "Bearer second"]
    api.file.unlink()
    for _ in range(2):
        api.say(401, status("Unauthorized"))
    with pytest.raises(KubeError, match="Unauthorized"):
        await kube.get("/version")
    assert api.tokens[2:] == ["Bearer second"] * 2


async def test_the_clock_is_that_of_the_server(api: Api, kube: KubeClient) -> None:
    """A date that cannot be read changes nothing."""
    api.say(200, Date="Fri, 01 Jan 2100 00:00:00 GMT")
    await kube.get("/version")
    assert abs(kube.now() - 4102444800) < 60
    api.say(200, Date="yesterday")
    await kube.get("/version")
    assert abs(kube.now() - 4102444800) < 60


async def test_what_is_not_an_api_server_is_said(api: Api, kube: KubeClient) -> None:
    for said in (b"<html>", b"[]"):
        api.say(200, said)
        with pytest.raises(KubeError, match="not an API server") as caught:
            await kube.get("/version")
        assert caught.value.status == 0
    api.say(200, b"said \xff")
    assert await kube.text(f"{PODS}/a/log", tailLines="4") == "said \ufffd"


async def test_events_are_given_as_they_come(api: Api, kube: KubeClient) -> None:
    """Empty lines are left out; a refusal, or a line that is not an event, is an error."""
    api.say(200, b'{"a": 1}\n\n{"b": 2}\n')
    assert [each async for each in kube.events(PODS, 5, resourceVersion="3")] == [{"a": 1}, {"b": 2}]
    asked = {"resourceVersion": "3", "watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
    assert api.asked == [("GET", PODS, asked)]
    for code, said, match in ((410, status("too old", "Expired"), "too old"), (200, b"<html>\n", "not an API server")):
        api.say(code, said)
        with pytest.raises(KubeError, match=match):
            async for _ in kube.events(PODS, 5):
                pass


async def test_streams_that_are_refused_have_the_status(api: Api, kube: KubeClient) -> None:
    """The seconds to wait are in the error, too, where the server says it."""
    api.say(429, status("slow"), Retry_After="7")
    with pytest.raises(KubeError) as caught:
        await kube.stream(f"{PODS}/a/attach", [("stdin", "true")])
    assert (caught.value.status, caught.value.retry_after) == (429, 7.0)


async def test_a_client_that_is_closed_asks_nothing(api: Api) -> None:
    """Closing twice is not an error."""
    found = await KubeClient.connect(api.write())
    await found.aclose()
    await found.aclose()
    with pytest.raises(KubeError, match="the client is closed") as caught:
        await found.ask("/version", {})
    assert (caught.value.status, api.asked) == (0, [])


async def test_a_cluster_that_cannot_be_reached_has_no_status(api: Api) -> None:
    """Neither has one that ends the connection, or does not speak TLS where it should."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for host in (f"http://127.0.0.1:{port}", api.host.replace("http", "https")):
        found = await KubeClient.connect(api.write(host=host))
        with pytest.raises(KubeError) as caught:
            await found.ask("/version", {})
        await found.aclose()
        assert caught.value.status == 0
        assert str(caught.value)
    server.close()
    await server.wait_closed()


async def test_requests_go_by_the_proxy_and_under_the_name_that_are_set(api: Api, kube: KubeClient) -> None:
    """A name for TLS is passed on, and a token that must be awaited is."""

    class Settings:
        host = "http://cluster.test"
        proxy = api.host
        tls_server_name = "name.test"

        async def get_api_key_with_prefix(self, _: str) -> str:
            return "Bearer later"

    kube._configuration = Settings()
    assert (await kube._extras())["server_hostname"] == "name.test"
    api.say(200, {"a": 1})
    assert await kube.get("/version") == {"a": 1}
    assert api.tokens == ["Bearer later"]


async def test_a_namespace_is_that_of_the_settings_or_the_context(api: Api) -> None:
    """The context is the one that is named, else the current one."""
    api.write(namespace="mine")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"namespace": "code"}, "code"),
        ({}, "mine"),
        ({"context": "other"}, "elsewhere"),
    ]
    for words, namespace in cases:
        found = await KubeClient.connect(KubernetesConfig(kubeconfig=str(api.file), **words))
        await found.aclose()
        assert found.namespace == namespace
        assert found.host == api.host


async def test_a_kubeconfig_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is an error, too, without the context that was named, or with certificates that cannot be read."""
    monkeypatch.setattr(client, "_ACCOUNT", tmp_path / "none")
    with pytest.raises(ConfigurationError, match="no cluster is known: there is no kubeconfig"):
        await KubeClient.connect(KubernetesConfig(kubeconfig=str(tmp_path / "kubeconfig"), namespace="code"))
    found = Api(tmp_path)
    found.write(host="https://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="no cluster is known"):
        await KubeClient.connect(KubernetesConfig(kubeconfig=str(found.file), context="missing"))
    text = found.file.read_text("utf-8").replace('"server"', '"certificate-authority-data": "eA==", "server"')
    found.file.write_text(text, "utf-8")
    with pytest.raises(ConfigurationError, match="certificates of the cluster cannot be used"):
        await KubeClient.connect(KubernetesConfig(kubeconfig=str(found.file), namespace="code"))


async def test_a_pod_of_a_cluster_uses_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no kubeconfig, and no context is named, the account of the pod counts, with its namespace."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setattr(client, "_ACCOUNT", tmp_path)

    def load(*, client_configuration: Any) -> None:
        client_configuration.host = "http://inside"

    monkeypatch.setattr(client.kube_config, "load_incluster_config", load)
    (tmp_path / "namespace").write_text("inner\n", "utf-8")
    for namespace in ("inner", "default"):
        found = await KubeClient.connect(KubernetesConfig())
        await found.aclose()
        assert (found.host, found.namespace) == ("http://inside", namespace)
        (tmp_path / "namespace").unlink(missing_ok=True)


async def test_a_certificate_is_not_looked_at_where_the_kubeconfig_says_so(api: Api) -> None:
    text = api.file.read_text("utf-8").replace('"server"', '"insecure-skip-tls-verify": true, "server"')
    api.file.write_text(text, "utf-8")
    found = await KubeClient.connect(KubernetesConfig(kubeconfig=str(api.file), namespace="code"))
    context = client._tls(found._configuration)
    assert not context.check_hostname
    assert context.verify_mode == client.ssl.CERT_NONE
    await found.aclose()
