"""Single endpoints as tools: what is sent, what comes back, and what is refused before anything is sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

import pytest
from tests.backend.providers.service import Service

from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    InputValidationError,
    RemoteToolError,
    ToolTimeoutError,
)
from toolexec.exec import Exec
from toolexec.model.content import ToolReply

pytestmark = pytest.mark.anyio

HOSTILE = ["; rm -rf /", "$(id)", "`id`", "a\r\nX-Injected: 1", "<script>", "' OR 1=1 --", "{{7*7}}", "${HOME}", "%0d%0a", "gr\u00fc\u00df \U0001f600"]  # fmt: skip


@asynccontextmanager
async def calling(settings: dict[str, Any], secrets: SecretResolver | None = None) -> AsyncIterator[Callable[..., Any]]:
    """Give a function that calls a tool by its name and returns the Result."""
    async with Exec(gate=None) as ex:
        await ex.add_backends(SourceBackend("api", source_of("http", "api", settings, secrets=secrets)))

        async def call(name: str, **args: Any) -> Any:
            return await ex.run_tool(f"api:{name}", args)

        call.ex = ex  # type: ignore[attr-defined]
        yield call


def one(service: Service, **tool: Any) -> dict[str, Any]:
    """Settings with one tool, `it`."""
    return {"base_url": service.url, "tools": {"it": tool}}


async def test_whole_request(service: Service) -> None:
    """Arguments reach path, query, headers and body, each with its type."""
    tool = {
        "method": "POST",
        "path": "/users/{id}/notes",
        "query": {"q": "{{q}}", "tag": "{{tags}}", "v": "2", "n": 3, "flag": True},
        "headers": {"X-Trace": "t-{{trace}}"},
        "body": {"text": "{{text}}", "all": ["{{number}}", {"nested": "{{object}}"}], "label": "n. {{number}}", "fixed": 1},
        "parameters": {"number": {"type": "integer"}, "tags": {"type": "array"}, "q": {"default": "x y"}},
    }  # fmt: skip
    async with calling({**one(service, **tool), "headers": {"X-All": "1"}, "query": {"key": "k"}}) as call:
        result = await call("it", id="a/b", tags=["1", "2"], trace=7, text=None, number=5, object={"a": [1.5]})
        schema = json.loads(call.ex.index.get("api:it").tool.input_schema.text)
    assert result.ok
    [seen] = service.seen
    assert (seen.method, seen.path) == ("POST", "/users/a%2Fb/notes")
    assert seen.query == "key=k&q=x%20y&tag=1&tag=2&v=2&n=3&flag=true"
    assert (seen.headers["x-trace"], seen.headers["x-all"]) == ("t-7", "1")
    assert seen.headers["content-type"] == "application/json"
    assert seen.json == {"text": None, "all": [5, {"nested": {"a": [1.5]}}], "label": "n. 5", "fixed": 1}
    assert schema["required"] == ["id", "text", "number", "object"]
    assert schema["additionalProperties"] is False


async def test_what_is_left_out(service: Service) -> None:
    """An argument that is not given leaves nothing behind."""
    tool = {"path": "/x", "query": {"a": "{{a}}", "b": "{{b}}"}, "headers": {"X-A": "{{a}}"}}
    async with calling(one(service, **tool)) as call:
        assert (await call("it", b="1")).ok
    assert service.seen[0].query == "b=1"
    assert "x-a" not in service.seen[0].headers


@pytest.mark.parametrize("value", HOSTILE)
async def test_hostile_values_arrive_literally(service: Service, value: str) -> None:
    """Data stays data that looks like a command, a template or a line break."""
    tool = {"method": "POST", "path": "/p/{v}", "query": {"v": "{{v}}"}, "body": {"v": "{{v}}", "t": "<{{v}}>"}}
    async with calling(one(service, **tool)) as call:
        result = await call("it", v=value)
    assert result.ok
    [seen] = service.seen
    assert seen.json == {"v": value, "t": f"<{value}>"}
    assert "x-injected" not in seen.headers
    assert unquote(seen.path) == f"/p/{value}"
    assert seen.path.count("/") == 2 + value.replace("/", "").count("/")
    assert parse_qs(seen.query) == {"v": [value]}


@pytest.mark.parametrize(
    "value", ["..", ".", "../admin", "a/../b", "..\\x", "a\\..", "", "\0", ["a"], {"a": 1}, None], ids=repr
)
async def test_paths_that_lead_elsewhere(service: Service, value: Any) -> None:
    """Refuses what is not a part of one segment, and sends nothing."""
    tool = {"path": "/users/{id}/x", "parameters": {"id": {"type": ["string", "array", "object", "null"]}}}
    async with calling(one(service, **tool)) as call:
        with pytest.raises(InputValidationError, match="/id"):
            (await call("it", id=value)).raise_for_error()
    assert service.seen == []


async def test_two_dots_from_two_arguments(service: Service) -> None:
    """Two harmless arguments make no step up together."""
    async with calling(one(service, path="/users/{a}{b}/x")) as call:
        with pytest.raises(InputValidationError):
            (await call("it", a=".", b=".")).raise_for_error()
    assert service.seen == []


@pytest.mark.parametrize("value", ["a\r\nX-Injected: 1", "a\nb", "\0", "\x1b[2J"], ids=repr)
async def test_header_injection(service: Service, value: str) -> None:
    """Refuses line breaks in headers before anything is sent."""
    async with calling(one(service, path="/x", headers={"X-A": "{{v}}"})) as call:
        with pytest.raises(InputValidationError, match="line break") as failure:
            (await call("it", v=value)).raise_for_error()
    assert failure.value.outcome == "not_sent"
    assert service.seen == []


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("html", "<h1>Please log in</h1>"),
        ("text", "gr\u00fc\u00df"),
        ("broken-utf8", {"a": "\ufffd\ufffd"}),
        ("unknown-charset", "Qapla"),
        ("empty", None),
    ],
)
async def test_kinds_of_responses(service: Service, kind: str, value: Any) -> None:
    """JSON is a value, text is text in its encoding, and nothing is null."""
    async with calling(one(service, path=f"/content/{kind}")) as call:
        result = await call("it")
    if kind == "broken-utf8":
        assert isinstance(result.error, RemoteToolError)
    else:
        assert result.value == value


@pytest.mark.parametrize(("kind", "part"), [("binary", "resource"), ("png", "image")])
async def test_bytes(service: Service, kind: str, part: str) -> None:
    """Bytes are a part of the reply, not text."""
    async with calling(one(service, path=f"/content/{kind}")) as call:
        result = await call("it")
    assert isinstance(result.reply, ToolReply)
    assert result.reply.content[0]["type"] == part


@pytest.mark.parametrize("kind", ["broken-json", "nan", "deep"])
async def test_what_is_not_json(service: Service, kind: str) -> None:
    """A response that says that it is JSON and is not is an error of the service."""
    async with calling(one(service, path=f"/content/{kind}")) as call:
        result = await call("it")
    assert isinstance(result.error, RemoteToolError)
    assert "it is not" in result.error.message
    assert not result.error.retryable


async def test_response_path(service: Service) -> None:
    """JMESPath picks the value; a page of a login is not JSON."""
    tools = {
        "names": {"path": "/items", "response": "data.items[?id > `0`].name"},
        "page": {"path": "/content/html", "response": "data"},
        "gone": {"path": "/items", "method": "DELETE", "response": "data"},
    }
    async with calling({"base_url": service.url, "tools": tools}) as call:
        assert (await call("names")).value == ["item 1", "item 2"]
        assert (await call("gone")).value is None
        result = await call("page")
    assert isinstance(result.error, RemoteToolError)
    assert "where JSON was expected" in result.error.message


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (422, False), (429, True), (500, True), (501, False), (503, True)],
)
async def test_statuses(service: Service, status: int, retryable: bool) -> None:
    """An error keeps the status, the body and a hint, and says whether to try again."""
    async with calling(one(service, path=f"/status/{status}")) as call:
        error = (await call("it")).error
    assert isinstance(error, RemoteToolError)
    assert (error.details["status"], error.retryable, error.outcome == "not_sent") == (status, retryable, False)
    assert error.details["body"]["error"] == "no such luck"
    assert error.details.get("hint")
    assert error.details.get("retry_after") == (7.0 if status in (429, 503) else None)
    assert str(status) in error.message
    assert "no such luck" in error.message


async def test_statuses_that_are_expected(service: Service) -> None:
    """`success` says which statuses are answers."""
    tools = {"gone": {"path": "/status/404", "success": [200, 404]}, "ok": {"path": "/items", "success": [201]}}
    async with calling({"base_url": service.url, "tools": tools}) as call:
        assert (await call("gone")).value["error"] == "no such luck"
        assert (await call("ok")).error.details["status"] == 200


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/reset", ConnectionLostError),
        ("/half", ConnectionLostError),
        ("/hang", ToolTimeoutError),
        ("/drip", ToolTimeoutError),
    ],
)
async def test_lost_answers(service: Service, path: str, kind: type[Exception]) -> None:
    """Nothing is sent twice by itself, and the error says that the call may have been made."""
    settings = {"base_url": service.raw, "tools": {"it": {"path": path, "method": "POST"}}, "timeout": 0.3}
    async with calling(settings) as call:
        error = (await call("it")).error
    assert isinstance(error, kind)
    assert error.outcome != "not_sent"
    assert service.paths() == [path]


async def test_refused_connection() -> None:
    """A refused connection has sent nothing, so the call may be made again."""
    async with calling({"base_url": "http://127.0.0.1:1", "tools": {"it": {"path": "/x", "method": "POST"}}}) as call:
        with pytest.raises(BackendUnavailableError) as failure:
            (await call("it")).raise_for_error()
    assert failure.value.outcome == "not_sent"


async def test_too_much(service: Service) -> None:
    """Neither 50 MB nor a bomb are read to their end."""
    tools = {"large": {"path": f"/large?size={50 << 20}"}, "bomb": {"path": "/encoded/bomb-gzip"}}
    async with calling({"base_url": service.url, "tools": tools, "max_response_bytes": 1 << 20}) as call:
        for name in tools:
            error = (await call(name)).error
            assert isinstance(error, RemoteToolError)
            assert "is refused" in error.message


@pytest.mark.parametrize(
    "to", ["http://169.254.169.254/latest", "http://10.0.0.1/", "http://127.0.0.1:1/", "http://localhost/"]
)
async def test_redirects_to_other_hosts(service: Service, to: str) -> None:
    """A redirect leads only to hosts of the settings."""
    async with calling(one(service, path="/go", query={"to": to})) as call:
        error = (await call("it")).error
    assert isinstance(error, RemoteToolError)
    assert "a redirect is not followed" in error.message
    assert service.paths() == ["/go"]


@pytest.mark.parametrize(
    ("auth", "header", "query"),
    [
        ({"bearer": "secretref:env:T"}, "Bearer hunter2hunter2", ""),
        ({"username": "me", "password": "${T}"}, "Basic bWU6aHVudGVyMmh1bnRlcjI=", ""),
        ({"header": "Authorization", "value": "Key ${T}"}, "Key hunter2hunter2", ""),
        ({"query": "api_key", "value": "${T}"}, None, "api_key=hunter2hunter2"),
    ],
    ids=str,
)
async def test_credentials(service: Service, auth: dict[str, str], header: str | None, query: str) -> None:
    """References are filled in late, reach the service, and are taken out of all that comes back."""
    secrets = SecretResolver(environment={"T": "hunter2hunter2"})
    tools = {"echo": {"path": "/x"}, "fail": {"path": "/status/400"}}
    async with calling({"base_url": service.url, "auth": auth, "tools": tools}, secrets) as call:
        echoed = await call("echo")
        failed = await call("fail")
        [status] = [each for each in call.ex.backend_statuses() if each.name == "api"]
    assert service.seen[0].headers.get("authorization") == header
    assert service.seen[0].query == query
    for text in (str(echoed.value), failed.error.message, str(failed.error.details), str(status.to_dict())):
        assert "hunter2hunter2" not in text
        assert "bWU6aHVudGVyMmh1bnRlcjI" not in text


async def test_missing_secret() -> None:
    """A variable that is not set is the reason in the status, and is named there."""
    settings = {"base_url": "https://api.example.com", "auth": {"bearer": "${NO_SUCH}"}, "tools": {"it": {"path": "/"}}}
    async with calling(settings, SecretResolver(environment={})) as call:
        [status] = [each for each in call.ex.backend_statuses() if each.name == "api"]
    assert not status.available
    assert "NO_SUCH" in (status.reason or "")


async def test_annotations(service: Service) -> None:
    """The method says what a tool may do, unless the settings say it."""
    tools: dict[str, Any] = {
        method.lower(): {"path": "/x", "method": method} for method in ("GET", "PUT", "POST", "DELETE")
    }
    tools["search"] = {"path": "/x", "method": "POST", "read_only": True, "idempotent": True}
    async with calling({"base_url": service.url, "tools": tools}) as call:
        found = {tool.name: tool.annotations for tool in await call.ex.backends.get("api").list_tools()}
    facts = {name: (each.read_only, each.idempotent, each.destructive) for name, each in found.items()}
    assert facts == {
        "get": (True, True, None),
        "put": (False, True, None),
        "post": (False, False, None),
        "delete": (False, True, True),
        "search": (True, True, None),
    }


async def test_bodies(service: Service) -> None:
    """A form where the header says so, text as it is, nothing where the argument is not there."""
    tools = {
        "form": {"path": "/f", "method": "POST", "headers": {"Content-Type": "application/x-www-form-urlencoded"}, "body": {"a": "{{a}}"}},
        "text": {"path": "/t", "method": "POST", "body": "<q>{{a}}</q>", "headers": {"Content-Type": "application/xml"}},
        "any": {"path": "/a", "method": "POST", "body": "{{a}}", "input_schema": {"type": "object", "properties": {"a": {}}}},
    }  # fmt: skip
    async with calling({"base_url": service.url, "tools": tools}) as call:
        for name, args in (("form", {"a": "x&y"}), ("text", {"a": "1"}), ("any", {"a": [1]}), ("any", {})):
            assert (await call(name, **args)).ok
    sent = [(each.body, each.headers.get("content-type")) for each in service.seen]
    assert sent == [
        (b"a=x%26y", "application/x-www-form-urlencoded"),
        (b"<q>1</q>", "application/xml"),
        (b"[1]", "application/json"),
        (b"", None),
    ]


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".json"])
async def test_files(service: Service, suffix: str, tmp_path: Path) -> None:
    """A file holds the same settings, and is read again at each refresh."""
    written = {
        ".toml": 'base_url = "{url}"\n[tools.it]\npath = "/{name}"\n',
        ".yaml": 'base_url: "{url}"\ntools:\n  it:\n    path: "/{name}"\n',
        ".json": '{{"base_url": "{url}", "tools": {{"it": {{"path": "/{name}"}}}}}}',
    }[suffix]
    file = tmp_path / f"spec{suffix}"
    file.write_text(written.format(url=service.url, name="one"))
    async with calling({"file": str(file)}) as call:
        assert (await call("it")).ok
        file.write_text(written.format(url=service.url, name="two"))
        await call.ex.backends.get("api").refresh()
        assert (await call("it")).ok
        file.write_text("{")
        status = await call.ex.backends.get("api").refresh()
        assert status.available
        assert (await call("it")).ok
    assert service.paths() == ["/one", "/two", "/two"]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"base_ulr": "x"}, "did you mean base_url"),
        ({"base_url": "ftp://a.test"}, "base_url must be a URL"),
        ({"base_url": "http://u:p@a.test"}, "base_url must be a URL"),
        ({"tools": {"it": {"path": "/x"}}}, "give a base_url"),
        ({"tools": {"it": {"path": "/x", "metod": "GET"}}}, "did you mean method"),
        ({"tools": {"it": {"path": "/x", "method": "GETT"}}}, "there is no method 'GETT'"),
        ({"tools": {"it": {"path": "http://{host}/x"}}}, "the host of"),
        ({"tools": {"it": {"path": "https://a.test/{x y}"}}}, "a placeholder in"),
        ({"tools": {"it": {"path": "https://a.test/", "response": "a["}}}, "is not JMESPath"),
        ({"tools": {"it": {"path": "https://a.test/", "body": {}}}}, "has no body"),
        ({"tools": {"it": {"path": "https://a.test/", "success": [99]}}}, "statuses from 100 to 599"),
        ({"tools": {"it": {"path": "https://a.test/{a}", "parameters": {"b": {}}}}}, "no placeholder is called 'b'"),
        (
            {"tools": {"it": {"path": "https://a.test/{a}", "input_schema": {"properties": {"a": {}}}}}},
            "must require it",
        ),
        ({"tools": {"it": {"path": "https://a.test/{a}", "input_schema": {"properties": {}}}}}, "has no property 'a'"),
        ({"tools": {"a b": {"path": "https://a.test/"}}}, "its name"),
        ({"tools": {"it": 1}}, "must be a mapping"),
        ({"auth": {"bearer": "x", "query": "y"}}, "auth must be one of"),
        ({"timeout": "5"}, "timeout"),
        ({"file": "/no/such/file.toml"}, "cannot read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-",
)
def test_settings_that_cannot_work(settings: dict[str, Any], reason: str) -> None:
    """Each mistake is refused when the provider is made, with what to do about it."""
    with pytest.raises(ConfigurationError, match=reason):
        source_of("http", "api", settings)


def test_nothing_secret_is_shown() -> None:
    """Neither the repr nor an error of the settings shows a credential."""
    from toolexec.backend.providers.http.config import HTTPProvider

    shown = repr(HTTPProvider(name="api", base_url="https://a.test", auth={"bearer": "hunter2hunter2"}))
    assert "hunter2" not in shown
    with pytest.raises(ConfigurationError) as failure:
        source_of("http", "api", {"base_url": "https://a.test", "auth": {"bearer": ["hunter2hunter2"]}})
    assert "hunter2" not in str(failure.value)
