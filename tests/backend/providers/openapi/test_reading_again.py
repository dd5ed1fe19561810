"""Documents that are read again, and those that are large."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.openapi import API, answer, api

from toolexec import Exec
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.openapi import json_steps, source
from toolexec.backend.secrets import SecretResolver
from toolexec.model.redaction import Redactor
from toolexec.net.http import HTTPRequest, HTTPResponse

ONE = json.dumps(api({"/x": {"get": {}}})).encode()
TWO = json.dumps(api({"/x": {"get": {}}, "/y": {"get": {}}})).encode()
URL = "https://docs.example.com/s.json"


async def test_a_file_with_the_same_bytes_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same definition means that nothing has changed; other bytes, and other settings, make another one."""
    file = tmp_path / "api.json"
    file.write_bytes(ONE)
    parsed: list[str] = []
    read = source.read_document

    def counted(data: bytes, where: str) -> Any:
        parsed.append(where)
        return read(data, where)

    monkeypatch.setattr(source, "read_document", counted)
    environment = {"API_TOKEN": "first-token-value"}
    secrets = SecretResolver(environment=environment, redact=Redactor())
    found = API(str(file), headers={"Authorization": "Bearer ${API_TOKEN}"}, secrets=secrets)
    first = await found.load()
    file.write_bytes(ONE)
    assert await found.load() is first
    assert len(parsed) == 1
    environment["API_TOKEN"] = "second-token-value"
    second = await found.load()
    assert second is not first
    await found.call("get_x")
    assert ("Authorization", "Bearer second-token-value") in found.requests[-1].headers
    file.write_bytes(TWO)
    assert len((await found.load()).tools) == 2
    assert len(parsed) == 3


async def test_a_server_is_asked_whether_its_document_has_changed() -> None:
    """Its own names for the version are sent back; an answer without a body, or with the same one, changes nothing."""
    responses = [
        answer(ONE, etag='"1"', last_modified="Wed, 21 Oct 2015 07:28:00 GMT"),
        answer(b"", status=304),
        answer(ONE, etag='"2"'),
        answer(b"", status=304),
        answer(TWO),
        answer(TWO),
    ]
    seen: list[HTTPRequest] = []

    def reply(request: HTTPRequest) -> HTTPResponse:
        seen.append(request)
        return responses[len(seen) - 1]

    found = API(URL, reply, base_url="https://api.example.com")
    definitions = [await found.load() for _ in responses]
    assert [each is definitions[0] for each in definitions] == [True] * 4 + [False] * 2
    assert definitions[4] is definitions[5]
    conditions = [{key: text for key, text in each.headers if key.startswith("If-")} for each in seen]
    both = {"If-None-Match": '"1"', "If-Modified-Since": "Wed, 21 Oct 2015 07:28:00 GMT"}
    assert conditions == [{}, both, both, {"If-None-Match": '"2"'}, {"If-None-Match": '"2"'}, {}]


async def test_a_document_is_asked_for_in_full_after_other_settings() -> None:
    """A version that was read with other settings is not one to compare with."""
    environment = {"API_TOKEN": "first-token-value"}
    secrets = SecretResolver(environment=environment, redact=Redactor())
    found = API(URL, answer(ONE, etag='"1"'), headers={"A-Key": "${API_TOKEN}"}, secrets=secrets)
    await found.load()
    environment["API_TOKEN"] = "second-token-value"
    await found.load()
    assert not [key for request in found.requests for key, _ in request.headers if key.startswith("If-")]


async def test_what_is_referred_to_may_have_changed(tmp_path: Path) -> None:
    """With references to other documents all are read each time."""
    (tmp_path / "other.json").write_text(json.dumps({"get": {"operationId": "first"}}))
    file = tmp_path / "api.json"
    file.write_text(json.dumps(api({"/x": {"$ref": "other.json"}})))
    found = API(str(file), allow_refs=True)
    assert [each.tool.name for each in (await found.load()).tools] == ["first"]
    (tmp_path / "other.json").write_text(json.dumps({"get": {"operationId": "second"}}))
    assert [each.tool.name for each in (await found.load()).tools] == ["second"]


async def test_nothing_is_registered_again_for_the_same_document(tmp_path: Path) -> None:
    """Listeners are called once, and the status counts the readings."""
    file = tmp_path / "api.json"
    file.write_bytes(ONE)
    backend = SourceBackend("api", API(str(file)).source)
    seen: list[int] = []
    backend.on_tools(lambda tools: seen.append(len(tools)))
    async with Exec() as ex:
        await ex.add_backends(backend)
        await ex.refresh("api")
        assert seen == [1]
        assert backend.status().info["readings"] == 2
        assert backend.status().info["unchanged_readings"] == 1
        file.write_bytes(TWO)
        await ex.refresh("api")
        assert seen == [1, 2]
        assert ex.index.find("api:get_y") is not None


async def test_documents_are_parsed_and_built_off_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing, the operations and their tools are the work of other threads."""
    threads: list[bool] = []

    def watched(name: str) -> None:
        inner = getattr(source, name)

        def outer(*args: Any, **settings: Any) -> Any:
            threads.append(threading.current_thread() is not threading.main_thread())
            return inner(*args, **settings)

        monkeypatch.setattr(source, name, outer)

    for name in ("read_document", "upgraded", "read_operations", "destination_of"):
        watched(name)
    file = tmp_path / "api.json"
    file.write_bytes(ONE)
    await API(str(file)).load()
    assert threads == [True] * 4


def big(schemas: int) -> str:
    """Return a document with many schemas and paths, in JSON with blanks."""
    kinds = {f"S{number}": {"type": "object", "properties": {"a": {"type": "string"}}} for number in range(schemas)}
    paths = {f"/x/{number}": {"get": {"operationId": f"get{number}"}} for number in range(schemas)}
    return json.dumps(api(paths, components={"schemas": kinds}, tags=[{"name": "ü"}, {}, []]), indent=1)


def test_large_documents_are_parsed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step reads more than a small part: the interpreter is not held for all of it."""
    steps: list[int] = []

    class Decoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
            found, end = super().raw_decode(s, idx)
            steps.append(end - idx)
            return found, end

    text = big(6000)
    assert len(text) > 1 << 20
    expected = json.loads(text)
    monkeypatch.setattr(json_steps.json, "JSONDecoder", Decoder)
    monkeypatch.setattr(json_steps.json, "loads", None)
    assert json_steps.load_json(text, float) == expected
    assert max(steps) < 200


@pytest.mark.parametrize(
    "text",
    [
        "{}", ' {\n} ', '{"a": 1, "a": {"b": [1, {"c": "\\u00fc"}]}}', '{"a": {"b": {"c": {"d": {"e": {"f": NaN}}}}}}',
        '[{"a": 1}]', '"x"', "5", "null",
    ],
)  # fmt: skip
def test_steps_read_what_the_standard_library_does(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Values, repeated names and constants are the same."""
    monkeypatch.setattr(json_steps, "_SMALL", 0)
    assert json_steps.load_json(text, str) == json.loads(text, parse_constant=str)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a"', '{"a":', '{"a": 1', '{"a": 1,}', "{a: 1}", '{"a": 1} x', '{"a": {"b" 1}}', '{"a": "\n"}']
)
def test_steps_refuse_what_the_standard_library_does(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The error is the same."""
    monkeypatch.setattr(json_steps, "_SMALL", 0)
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as found:
        json_steps.load_json(text, str)
    assert str(found.value) == str(expected.value)


async def test_the_loop_goes_on_while_a_document_is_read() -> None:
    """A task of the loop runs many times before a large document is there."""
    turns = 0
    done = asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await asyncio.to_thread(json_steps.load_json, big(6000), float)
    done.set()
    await counting
    assert found["openapi"]
    assert turns > 10
