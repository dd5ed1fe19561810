"""Methods of a gRPC server as tools: what they look like, how they are called, and what each failure means."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from google.protobuf import descriptor_pb2
from packages.grpc.tests.service import NAME, Shop, descriptor_set, serving, shop_file
from tests.waiting import until, until_blocking

from toolexec.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConnectionLostError,
    InputValidationError,
    RemoteToolError,
    ToolExecError,
    ToolTimeoutError,
)
from toolexec.provider import SecretResolver, SourceBackend, ToolCall, source_of
from toolexec_grpc.wire import RetryInfo, Status

FULL = {
    "count": 3, "total": "9007199254740993", "size": "18446744073709551615", "price": 1.5, "open": True, "name": "ü",
    "data": "aGk=", "color": "GREEN", "tags": ["a", "b"], "when": "2026-11-23T05:00:00Z", "long": "1.500s",
    "extra": {"a": [1.0, None, {"b": "c"}]}, "note": "n", "mask": "count,name",
    "any": {"@type": "type.googleapis.com/shop.v1.Tree", "label": "x", "children": []},
    "tree": {"label": "t", "children": [{"label": "u", "children": []}]},
    "displayName": "d", "stock": {"7": {"label": "s", "children": []}}, "byName": "me",
}  # fmt: skip


@pytest.fixture
def shop() -> Shop:
    """A shop without a server."""
    return Shop()


@pytest.fixture
def target(shop: Shop) -> Iterator[str]:
    """Where its server listens."""
    with serving(shop) as address:
        yield address


@asynccontextmanager
async def backend(target: str, **settings: Any) -> AsyncIterator[SourceBackend]:
    """A started backend for the server."""
    secrets = settings.pop("secrets", None)
    made = SourceBackend("api", source_of("grpc", "api", {"target": target, **settings}, secrets=secrets))
    await made.start()
    try:
        yield made
    finally:
        await made.aclose()


async def call(made: SourceBackend, name: str, args: Any = None, timeout: float | None = None) -> Any:
    """Call a method."""
    return await made.call(name, ToolCall(f"api:{name}", args, timeout=timeout))


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
async def test_a_server_describes_itself(shop: Shop, version: str) -> None:
    """By either version of reflection: unary and server-streaming methods are tools, the others are named as skipped."""
    with serving(shop, reflect=version) as target:
        async with backend(target) as made:
            assert made.status().available, made.status().reason
            names = [tool.id for tool in await made.list_tools()]
            assert names == [f"api:Shop.{name}" for name in ("Echo", "Grow", "Put", "Shout", "Count")]
            assert made.status().skipped.keys() == {"Shop.Collect", "Shop.Chat"}
            assert "stream of messages" in made.status().skipped["Shop.Chat"]
            assert made.status().info["target"] == target
            assert await call(made, "Shop.Grow", {"label": "a"}) == {"label": "a", "children": []}


async def test_a_descriptor_set_has_comments(target: str, tmp_path: Path) -> None:
    """Comments become descriptions; no reflection is needed."""
    file = tmp_path / "shop.binpb"
    file.write_bytes(descriptor_set(shop_file()))
    async with backend(target, descriptors=str(file)) as made:
        tools = {tool.name: tool for tool in await made.list_tools()}
        assert tools["Shop.Echo"].description == "Sends back\nwhat it gets."
        assert tools["Shop.Grow"].description == f"Calls {NAME}/Grow."
        assert tools["Shop.Shout"].description.startswith("Deprecated. ")
        properties: Any = tools["Shop.Echo"].input_schema.to_json()["properties"]
        assert properties["count"]["description"] == "How many."
        assert properties["color"]["description"] == "A hue."
        assert (await call(made, "Shop.Echo", FULL))["count"] == 3


async def test_idempotency_levels_are_annotations(target: str) -> None:
    """A method's word on repeating it is a hint; one that says nothing may do anything."""
    async with backend(target) as made:
        hints = {tool.name: tool.annotations.on() for tool in await made.list_tools()}
    assert hints["Shop.Grow"] == ["read_only", "idempotent", "open_world"]
    assert hints["Shop.Put"] == ["idempotent", "destructive", "open_world"]
    assert hints["Shop.Echo"] == ["destructive", "open_world"]


async def test_schemas_are_those_of_the_json_mapping(target: str) -> None:
    """Each kind of field, both ways; what refers to itself stays a reference."""
    async with backend(target) as made:
        tools = {tool.name: tool for tool in await made.list_tools()}
    schema: Any = tools["Shop.Echo"].input_schema.to_json()
    fields = schema["properties"]
    assert fields["count"]["type"] == ["integer", "string", "null"]
    assert (fields["count"]["minimum"], fields["count"]["maximum"]) == (-(2**31), 2**31 - 1)
    assert fields["total"]["type"] == ["integer", "string", "null"]
    assert fields["price"]["type"] == ["number", "string", "null"]
    assert fields["size"]["minimum"] == 0
    assert fields["data"]["contentEncoding"] == "base64"
    assert fields["color"]["anyOf"][0] == {"type": "string", "enum": ["UNKNOWN", "RED", "GREEN"]}
    assert fields["tags"] == {"type": ["array", "null"], "items": {"type": "string"}}
    assert fields["when"] == {"type": ["string", "null"], "format": "date-time"}
    assert fields["note"] == {"type": ["string", "null"]}
    assert fields["stock"]["type"] == ["object", "null"]
    assert fields["stock"]["additionalProperties"] == {"$ref": "#/$defs/shop.v1.Tree"}
    assert fields["display_name"] == {
        "type": ["string", "null"],
        "description": "The same as `displayName`.",
        "deprecated": True,
    }
    assert schema["$defs"]["shop.v1.Tree"]["properties"]["children"]["items"] == {"$ref": "#/$defs/shop.v1.Tree"}
    assert fields["displayName"] == {"type": ["string", "null"]}
    assert "required" not in schema
    output = tools["Shop.Echo"].output_schema
    assert output is not None
    shown: Any = output.to_json()
    assert {"count", "tags", "color"} <= set(shown["required"])
    assert not {"when", "byName", "note"} & set(shown["required"])
    assert tools["Shop.Echo"].input_schema.conforms(FULL)
    assert output.conforms(FULL)
    assert not tools["Shop.Echo"].input_schema.conforms({"byName": "a", "byMail": "b"})
    assert not tools["Shop.Echo"].input_schema.conforms({"total": "many"})
    assert not tools["Shop.Echo"].input_schema.conforms({"data": "?"})
    grow: Any = tools["Shop.Grow"].input_schema.to_json()
    assert grow["properties"]["children"]["items"] == {"$ref": "#/$defs/shop.v1.Tree"}
    count: Any = tools["Shop.Count"].output_schema
    assert count.conforms([{"label": "a", "children": []}])
    shout = tools["Shop.Shout"]
    assert shout.input_schema.conforms({"value": "a"})
    assert shout.output_schema is not None
    assert shout.output_schema.conforms("A")


async def test_values_make_the_round_trip(target: str, shop: Shop) -> None:
    """Every kind of value arrives as it was meant and comes back as it was; what is not given comes back as zero."""
    async with backend(target) as made:
        assert await call(made, "Shop.Echo", FULL) == FULL
        request = shop.calls[-1][1]
        assert request.total == 9007199254740993
        assert request.data == b"hi"
        assert request.stock[7].label == "s"
        empty = await call(made, "Shop.Echo")
        assert empty["total"] == "0"
        assert empty["color"] == "UNKNOWN"
        assert "when" not in empty
        assert (await call(made, "Shop.Echo", {"total": 5, "price": "NaN"}))["price"] == "NaN"
        spelled = {
            "count": "3",
            "total": 5.0,
            "color": 2,
            "data": "_-8",
            "display_name": "d",
            "tree": None,
            "by_name": "me",
        }
        echoed = await call(made, "Shop.Echo", spelled)
        assert {name: echoed[name] for name in ("count", "total", "color", "data", "displayName", "byName")} == {
            "count": 3, "total": "5", "color": "GREEN", "data": "/+8=", "displayName": "d", "byName": "me",
        }  # fmt: skip
        assert "tree" not in echoed
        assert await call(made, "Shop.Shout", {"value": "hi"}) == "HI"
        assert await call(made, "Shop.Shout", {"value": None}) == await call(made, "Shop.Shout") == ""


async def test_an_any_of_an_unknown_type_leaves_the_answer(target: str, shop: Shop) -> None:
    """The bytes of it are shown, and the rest of the answer as it is."""

    def answer(request: Any, context: Any) -> Any:
        made = shop.message["Everything"](name="kept")
        made.any.type_url, made.any.value = "type.googleapis.com/no.Such", b"hi"
        return made

    shop.behave = answer
    async with backend(target) as made:
        echoed = await call(made, "Shop.Echo")
    assert echoed["name"] == "kept"
    assert echoed["any"] == {"@type": "type.googleapis.com/no.Such", "value": "aGk="}


@pytest.mark.parametrize(
    "args",
    [
        {"count": "many"}, {"count": 2**31}, {"color": "BLUE"}, {"when": "now"}, {"nope": 1},
        {"byName": "a", "byMail": "b"}, {"any": {"@type": "type.googleapis.com/no.Such"}}, {"tags": "a"},
        {"name": "\ud800"}, {"stock": {"x": {}}},
    ],
    ids=lambda args: next(iter(args)),
)  # fmt: skip
async def test_what_is_not_a_message_is_never_sent(target: str, shop: Shop, args: Any) -> None:
    """Arguments are converted strictly, also where the check of the schema was left out."""
    async with backend(target) as made:
        with pytest.raises(InputValidationError):
            await call(made, "Shop.Echo", args)
    assert shop.calls == []


async def test_deep_arguments_are_refused(target: str, shop: Shop) -> None:
    """However deep, they neither crash nor leave."""
    tree: dict[str, Any] = {}
    for _ in range(5000):
        tree = {"children": [tree]}
    async with backend(target) as made:
        with pytest.raises(InputValidationError):
            await call(made, "Shop.Grow", tree)
    assert shop.calls == []


async def test_answers_are_streamed(target: str) -> None:
    """Each is a chunk; the value of `done`, and of a call in one piece, is the list."""
    trees = [{"label": str(number), "children": []} for number in range(3)]
    async with backend(target) as made:
        stream = made.stream("Shop.Count", ToolCall("api:Shop.Count", {"count": 3}))
        events = [(event.kind, event.data) async for event in stream]
        assert events == [*(("chunk", tree) for tree in trees), ("done", trees)]
        assert await call(made, "Shop.Count", {"count": 3}) == trees
        with pytest.raises(RemoteToolError, match="DATA_LOSS: the rest is lost"):
            await call(made, "Shop.Count", {"count": 1, "name": "fail"})


async def test_a_stream_that_is_left_ends_at_the_server(target: str, shop: Shop) -> None:
    """Closing it cancels the call."""
    async with backend(target) as made, asyncio.timeout(60):
        stream = made.stream("Shop.Count", ToolCall("api:Shop.Count", {"open": True}))
        assert (await anext(stream)).data["label"] == "0"
        await stream.aclose()
        assert await asyncio.to_thread(shop.cancelled.wait, 30)


async def test_a_call_has_a_deadline(target: str, shop: Shop) -> None:
    """The shorter of the call's and the provider's, which the server sees; when it passes, that is a timeout."""
    async with backend(target, timeout=50) as made:
        await call(made, "Shop.Echo")
        assert 0 < (shop.calls[-1][3] or 0) < 52
        await call(made, "Shop.Echo", timeout=20)
        assert 0 < (shop.calls[-1][3] or 0) < 22
        shop.behave = _wait
        with pytest.raises(ToolTimeoutError, match=r"within 0\.2 s") as caught:
            await call(made, "Shop.Echo", timeout=0.2)
        assert caught.value.details == {"status": "DEADLINE_EXCEEDED", "said": "Deadline Exceeded", "timeout": 0.2}
        assert caught.value.outcome != "not_sent"


def _until_over(context: Any) -> None:
    until_blocking(lambda: not context.is_active())


def _wait(request: Any, context: Any) -> Any:
    _until_over(context)
    return request


async def test_a_cancelled_call_ends_at_the_server(target: str, shop: Shop) -> None:
    """The cancellation is the caller's own."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(request: Any, context: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        _until_over(context)
        loop.call_soon_threadsafe(over.set)
        return request

    begun = asyncio.Event()
    shop.behave = wait
    async with backend(target) as made, asyncio.timeout(60):
        task = asyncio.create_task(call(made, "Shop.Echo"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await over.wait()


@pytest.mark.parametrize(
    ("code", "retryable"),
    [
        ("CANCELLED", False), ("UNKNOWN", False), ("INVALID_ARGUMENT", False), ("NOT_FOUND", False),
        ("ALREADY_EXISTS", False), ("PERMISSION_DENIED", False), ("UNAUTHENTICATED", False),
        ("RESOURCE_EXHAUSTED", True), ("FAILED_PRECONDITION", False), ("ABORTED", True), ("OUT_OF_RANGE", False),
        ("UNIMPLEMENTED", False), ("INTERNAL", False), ("UNAVAILABLE", True), ("DATA_LOSS", False),
    ],
)  # fmt: skip
async def test_every_status_of_the_server_is_an_error(target: str, shop: Shop, code: str, retryable: bool) -> None:
    """With what the server said; never one that says that nothing was done."""
    shop.behave = lambda request, context: context.abort(getattr(grpc.StatusCode, code), "because\nof that")
    async with backend(target) as made:
        with pytest.raises(RemoteToolError, match=f"{code}: because of that") as caught:
            await call(made, "Shop.Echo")
    assert caught.value.retryable is retryable
    assert caught.value.outcome != "not_sent"
    assert caught.value.details == {"status": code, "said": "because of that"}


async def test_a_server_may_say_when_to_try_again(target: str, shop: Shop) -> None:
    """In the details of its status."""
    info = RetryInfo()
    info.retry_delay.FromMilliseconds(2500)
    answer = Status(code=8, message="slow down")
    answer.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info.SerializeToString())
    status = answer.SerializeToString()

    def refuse(request: Any, context: Any) -> Any:
        context.set_trailing_metadata((("grpc-status-details-bin", status),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "slow down")

    shop.behave = refuse
    async with backend(target) as made:
        with pytest.raises(RemoteToolError) as caught:
            await call(made, "Shop.Echo")
    assert caught.value.details["retry_after"] == 2.5


async def _unavailable(made: SourceBackend) -> BackendUnavailableError | None:
    """Return the failure of a call without a connection; None while the connection does not know that it has ended."""
    try:
        await call(made, "Shop.Echo")
    except BackendUnavailableError as error:
        return error
    except (ConnectionLostError, RemoteToolError):
        return None
    raise AssertionError("there is no server, and it has answered")


async def test_what_was_never_sent_says_so(shop: Shop, tmp_path: Path) -> None:
    """Without a server nothing is sent; when it is back, so are the calls."""
    address = f"unix:{tmp_path / 'shop.sock'}"
    file = tmp_path / "shop.binpb"
    file.write_bytes(descriptor_set(shop_file()))
    async with backend(address, descriptors=str(file)) as made, asyncio.timeout(60):
        for _ in range(2):
            with serving(shop, address=address):
                assert (await call(made, "Shop.Echo", {"count": 1}))["count"] == 1
            failure = await until(lambda: _unavailable(made))
            assert "cannot connect" in failure.message
            assert failure.outcome == "not_sent"
            assert failure.retryable
    assert len(shop.calls) == 2


async def test_a_server_that_has_lost_another_one_has_got_the_call(target: str, shop: Shop) -> None:
    """Words of a server about a connection of its own do not mean that nothing was sent."""
    said = "failed to connect to all addresses; last error: connection reset by peer"
    shop.behave = lambda request, context: context.abort(grpc.StatusCode.UNAVAILABLE, said)
    async with backend(target) as made:
        with pytest.raises(ConnectionLostError) as caught:
            await call(made, "Shop.Echo")
    assert caught.value.outcome != "not_sent"
    assert len(shop.calls) == 1


async def test_a_connection_that_is_lost_during_a_call(tmp_path: Path) -> None:
    """The call may have done its work or not: that is unknown then."""
    shop = Shop()
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def wait(request: Any, context: Any) -> Any:
        loop.call_soon_threadsafe(begun.set)
        _until_over(context)
        return request

    shop.behave = wait
    async with Relay() as relay:
        with serving(shop) as target:
            relay.target = target
            async with backend(relay.address) as made, asyncio.timeout(60):
                task = asyncio.create_task(call(made, "Shop.Echo"))
                await begun.wait()
                relay.cut()
                with pytest.raises(ConnectionLostError, match="was lost") as caught:
                    await task
    assert caught.value.retryable
    assert caught.value.outcome != "not_sent"


async def test_a_call_that_waits_for_a_connection_never_began() -> None:
    """A host that does not answer: the reason says so after the attempt."""
    async with Relay() as relay:  # takes connections, and never answers
        async with backend(relay.address, connect_timeout=0.3) as made:
            assert "no connection to" in (made.status().reason or "")


async def test_messages_have_a_largest_size(target: str, shop: Shop) -> None:
    """One that is too large is not sent, and an answer that is too large is not taken."""
    async with backend(target, max_message_bytes=2000) as made:
        assert not made.status().available  # its descriptors alone are larger
    async with backend(target, max_message_bytes=10_000) as made:
        with pytest.raises(InputValidationError, match="10000 is the most"):
            await call(made, "Shop.Echo", {"name": "x" * 20_000})
        assert shop.calls == []
        shop.behave = lambda request, context: shop.message["Everything"](name="x" * 20_000)
        with pytest.raises(RemoteToolError, match="RESOURCE_EXHAUSTED") as caught:
            await call(made, "Shop.Echo")
        assert not caught.value.retryable


async def test_metadata_is_sent_and_stays_secret(target: str, shop: Shop) -> None:
    """References are filled in when the services are read; the server cannot echo them to the model."""
    secrets = SecretResolver(environment={"TOKEN": "s3cret-value"})
    shop.behave = lambda request, context: context.abort(
        grpc.StatusCode.INTERNAL, dict(context.invocation_metadata())["authorization"]
    )
    async with backend(target, metadata={"authorization": "Bearer ${TOKEN}"}, secrets=secrets) as made:
        with pytest.raises(RemoteToolError) as caught:
            await call(made, "Shop.Echo")
        assert shop.calls[-1][2]["authorization"] == "Bearer s3cret-value"
        assert "s3cret" not in str(caught.value.to_dict())
        shop.behave = lambda request, context: shop.message["Everything"](name="it is s3cret-value")
        assert "s3cret" not in (await call(made, "Shop.Echo"))["name"]
        assert "s3cret" not in str(made.status().to_dict())
    async with backend(target, metadata={"a": "${NO_SUCH}"}, secrets=SecretResolver(environment={})) as made:
        assert "NO_SUCH" in (made.status().reason or "")


async def test_two_services_of_one_name(tmp_path: Path) -> None:
    """Their packages distinguish them; `services` picks."""
    both = Shop(shop_file(), shop_file("shop/v2/shop.proto", "shop.v2"))
    with serving(both) as target:
        async with backend(target) as made:
            names = {tool.name for tool in await made.list_tools()}
            assert {"shop.v1.Shop.Echo", "shop.v2.Shop.Echo"} <= names
            assert (await call(made, "shop.v2.Shop.Echo", {"count": 2}))["count"] == 2
        async with backend(target, services=["shop.v2.Shop"]) as made:
            assert "Shop.Echo" in {tool.name for tool in await made.list_tools()}
        async with backend(target, services=["shop.v2.Shp"]) as made:
            assert "did you mean shop.v2.Shop" in (made.status().reason or "")


async def test_a_server_without_reflection(shop: Shop) -> None:
    """The reason says what to do."""
    with serving(shop, reflect="") as target:
        async with backend(target) as made:
            assert "has no reflection; give a descriptor set" in (made.status().reason or "")


async def test_descriptors_that_are_damaged(target: str, tmp_path: Path) -> None:
    """Each is a reason, or skips what is in it; a cycle of imports ends."""
    file = tmp_path / "x.binpb"
    for data, said in ((b"\xff\xff\xff", "is not a FileDescriptorSet"), (b"", "describes nothing")):
        file.write_bytes(data)
        async with backend(target, descriptors=str(file)) as made:
            assert said in (made.status().reason or "")
    async with backend(target, descriptors=str(tmp_path / "no")) as made:
        assert "cannot read" in (made.status().reason or "")
    found = descriptor_pb2.FileDescriptorSet()
    found.file.extend([shop_file(), shop_file("shop/v2/shop.proto", "shop.v2"), shop_file("shop/v3.proto", "shop.v3")])
    found.file[1].dependency.append("no/such.proto")
    found.file[2].dependency.append("shop/v3.proto")
    file.write_bytes(found.SerializeToString())
    async with backend(target, descriptors=str(file)) as made:
        status = made.status()
        assert "no/such.proto is missing" in status.skipped["shop.v2.Shop"]
        assert "imports itself" in status.skipped["shop.v3.Shop"]
        assert "Shop.Echo" in {tool.name for tool in await made.list_tools()}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "needs a target"),
        ({"target": ""}, "target must be"),
        ({"target": "http://a"}, "target must be"),
        ({"target": "a:1", "tagret": "b"}, "did you mean target"),
        ({"target": "a:1", "timeout": -1}, "timeout must be 0 or more"),
        ({"target": "a:1", "key": "k.pem"}, "certificate and key together"),
        ({"target": "a:1", "metadata": {"A B": "x"}}, "cannot be the name of metadata"),
        ({"target": "a:1", "metadata": {"grpc-x": "x"}}, "cannot be the name of metadata"),
        ({"target": "a:1", "metadata": {"a": "x\r\ny"}}, "characters that metadata cannot have"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    """Each is named at the door."""
    with pytest.raises(ConfigurationError, match=said):
        source_of("grpc", "api", settings)


async def test_a_thousand_calls_at_once(target: str) -> None:
    """All are answered, each with its own."""
    async with backend(target) as made, asyncio.timeout(120):
        answers = await asyncio.gather(*(call(made, "Shop.Grow", {"label": str(n)}) for n in range(1000)))
    assert [answer["label"] for answer in answers] == [str(n) for n in range(1000)]


def test_each_event_loop_has_its_connection(target: str) -> None:
    """A backend that is used from one loop after the other goes on."""
    made = SourceBackend("api", source_of("grpc", "api", {"target": target}))
    for number in range(2):
        answer = asyncio.run(call(made, "Shop.Grow", {"label": str(number)}))
        assert answer["label"] == str(number)
    asyncio.run(made.aclose())


async def test_calls_after_the_end_are_refused(target: str) -> None:
    """A call after the end was never begun."""
    async with backend(target) as made:
        await call(made, "Shop.Grow")
    with pytest.raises(ToolExecError, match="closed") as caught:
        await call(made, "Shop.Grow")
    assert caught.value.outcome == "not_sent"


class Relay:
    """Passes bytes on to *target*, until it is cut; without a target it takes connections and says nothing."""

    target = ""

    async def __aenter__(self) -> Self:
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """End all connections and take no more."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        if self.target:
            host, port = self.target.split(":")
            there, away = await asyncio.open_connection(host, int(port))
            self._writers.append(away)
            for source, sink in ((reader, away), (there, writer)):
                self._tasks.add(asyncio.create_task(self._pass_on(source, sink)))

    async def _pass_on(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except OSError:
            pass


def certificate(name: str, issuer: tuple[Any, Any] | None = None) -> tuple[Any, Any]:
    """Make a certificate for localhost, and its key; without an issuer it is an authority of its own."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256()), key


def pem(made: Any) -> bytes:
    """Write a certificate or a key."""
    from cryptography.hazmat.primitives import serialization as to

    if hasattr(made, "public_bytes"):
        return made.public_bytes(to.Encoding.PEM)
    return made.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())


async def test_tls_on_both_sides(shop: Shop, tmp_path: Path) -> None:
    """The server's certificate is verified, and the client shows its own; files and PEM are both taken."""
    authority = certificate("authority")
    server, client = certificate("server", authority), certificate("client", authority)
    files = {"ca": authority[0], "certificate": client[0], "key": client[1]}
    for name, made in files.items():
        (tmp_path / name).write_bytes(pem(made))
    paths = {name: str(tmp_path / name) for name in files}
    credentials = grpc.ssl_server_credentials(
        [(pem(server[1]), pem(server[0]))], root_certificates=pem(authority[0]), require_client_auth=True
    )
    with serving(shop, credentials=credentials, address="localhost:0") as target:
        for settings in (paths, {name: pem(made).decode() for name, made in files.items()}):
            async with backend(f"grpcs://{target}", **settings) as made:
                assert made.status().info["tls"]
                assert (await call(made, "Shop.Echo", {"count": 1}))["count"] == 1
        for wrong in ({"tls": True}, {}, {"ca": paths["ca"]}, {**paths, "authority": "example.com"}):
            async with backend(target, connect_timeout=5, **wrong) as made:
                assert not made.status().available
        async with backend(target, ca=str(tmp_path / "no.pem")) as made:
            assert "cannot read" in (made.status().reason or "")
    assert "BEGIN" not in repr(source_of("grpc", "api", {"target": target, **paths}).info())


async def test_idempotency_keys_are_metadata(target: str, shop: Shop) -> None:
    """Methods with side effects get the key of a call, unless the settings name no metadata for it."""

    async def sent(name: str, key: str = "k-1", **settings: Any) -> dict[str, Any]:
        async with backend(target, **settings) as made:
            await made.call(name, ToolCall(f"api:{name}", {}, idempotency_key=key))
        return shop.calls[-1][2]

    assert (await sent("Shop.Echo", metadata={"a": "b"}))["idempotency-key"] == "k-1"
    assert shop.calls[-1][2]["a"] == "b"
    assert "idempotency-key" not in await sent("Shop.Echo", "")
    assert "idempotency-key" not in await sent("Shop.Grow")
    assert (await sent("Shop.Put", idempotency_metadata="x-once"))["x-once"] == "k-1"
    found = await sent("Shop.Echo", idempotency_metadata="")
    assert not {"idempotency-key", "x-once"} & found.keys()
    with pytest.raises(InputValidationError, match="printable ASCII"):
        await sent("Shop.Echo", "\u00fc")
    with pytest.raises(ConfigurationError, match="cannot be the name of metadata"):
        await sent("Shop.Echo", idempotency_metadata="A B")
