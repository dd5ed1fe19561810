"""A gRPC server of the tests' own, with reflection; its services are described here, without protoc."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    text_format,
    timestamp_pb2,
    wrappers_pb2,
)
from grpc_reflection.v1alpha import reflection

NAME = "shop.v1.Shop"
KNOWN = (any_pb2, duration_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)

_FIELDS = """
count int32; total int64; size uint64; price double; open bool; name string; data bytes; color .shop.v1.Color;
tags *string; when .google.protobuf.Timestamp; long .google.protobuf.Duration; extra .google.protobuf.Struct;
note .google.protobuf.StringValue; mask .google.protobuf.FieldMask; any .google.protobuf.Any; tree .shop.v1.Tree;
display_name string
"""
_SCALARS = ("int32", "int64", "uint64", "double", "bool", "string", "bytes")


def shop_file(name: str = "shop/v1/shop.proto", package: str = "shop.v1") -> Any:
    """Describe the service, with comments."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.dependency.extend(known.DESCRIPTOR.name for known in KNOWN)
    color = file.enum_type.add(name="Color")
    for number, value in enumerate(("UNKNOWN", "RED", "GREEN")):
        color.value.add(name=value, number=number)
    everything = file.message_type.add(name="Everything")
    for text in _FIELDS.replace("\n", " ").strip().split("; "):
        field, kind = text.split()
        _field(everything, field, kind.replace("shop.v1", package))
    entry = everything.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    _field(entry, "key", "int32")
    _field(entry, "value", f".{package}.Tree")
    _field(everything, "stock", f"*.{package}.Everything.StockEntry")
    everything.oneof_decl.add(name="choice")
    for field in ("by_name", "by_mail"):
        _field(everything, field, "string").oneof_index = 0
    tree = file.message_type.add(name="Tree")
    _field(tree, "label", "string")
    _field(tree, "children", f"*.{package}.Tree")
    service = file.service.add(name="Shop")
    everything_name, wrapped = f".{package}.Everything", ".google.protobuf.StringValue"
    for method, taken, given, how in (
        ("Echo", everything_name, everything_name, ""),
        ("Grow", f".{package}.Tree", f".{package}.Tree", "idempotency_level: NO_SIDE_EFFECTS"),
        ("Put", everything_name, everything_name, "idempotency_level: IDEMPOTENT"),
        ("Shout", wrapped, wrapped, "deprecated: true"),
        ("Count", everything_name, f".{package}.Tree", ""),
        ("Collect", everything_name, f".{package}.Tree", ""),
        ("Chat", everything_name, f".{package}.Tree", ""),
    ):
        added = service.method.add(name=method, input_type=taken, output_type=given)
        text_format.Parse(how, added.options)
        added.client_streaming = method in ("Collect", "Chat")
        added.server_streaming = method in ("Count", "Chat")
    for path, text in (
        ((6, 0, 2, 0), " Sends back\n what it gets.\n"),
        ((4, 0, 2, 0), " How many.\n"),
        ((5, 0), " A hue."),
    ):
        file.source_code_info.location.add(path=path, leading_comments=text)
    return file


def _field(message: Any, name: str, kind: str) -> Any:
    field = message.field.add(name=name, number=len(message.field) + 1)
    if kind.startswith("*"):
        field.label = field.LABEL_REPEATED
        kind = kind[1:]
    if kind in _SCALARS:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    else:
        field.type = field.TYPE_ENUM if kind.endswith("Color") else field.TYPE_MESSAGE
        field.type_name = kind
    words = name.split("_")
    field.json_name = words[0] + "".join(word.title() for word in words[1:])
    return field


def descriptor_set(*files: Any) -> bytes:
    """Return a set of these files and all that they import."""
    found = descriptor_pb2.FileDescriptorSet()
    for known in KNOWN:
        found.file.add().ParseFromString(known.DESCRIPTOR.serialized_pb)
    found.file.extend(files)
    return found.SerializeToString()


class Shop:
    """What the server does; `behave` decides how Echo answers, and `calls` has what arrived."""

    def __init__(self, *files: Any) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        for known in KNOWN:
            self.pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        self.files = files or (shop_file(),)
        for file in self.files:
            self.pool.Add(file)
        self.calls: list[tuple[str, Any, dict[str, Any], float | None]] = []
        self.behave: Callable[[Any, Any], Any] = lambda request, _: request
        self.cancelled = threading.Event()
        self.message = {
            name: message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"{self.files[0].package}.{name}"))
            for name in ("Everything", "Tree")
        }

    def service(self, details: Any) -> Any:
        """Return what answers a method."""
        name = details.method.rpartition("/")[2]
        service, method = details.method[1:].split("/")
        try:
            descriptor = self.pool.FindServiceByName(service).methods_by_name.get(method)
        except KeyError:
            return None
        if descriptor is None:
            return None
        taken, given = map(message_factory.GetMessageClass, (descriptor.input_type, descriptor.output_type))
        make = grpc.unary_stream_rpc_method_handler if name == "Count" else grpc.unary_unary_rpc_method_handler
        return make(
            self.count if name == "Count" else self.shout if name == "Shout" else self.echo,
            request_deserializer=taken.FromString,
            response_serializer=given.SerializeToString,
        )

    def echo(self, request: Any, context: Any) -> Any:
        """Answer as `behave` says."""
        self._note("Echo", request, context)
        return self.behave(request, context)

    def shout(self, request: Any, context: Any) -> Any:
        """Answer in capitals."""
        return wrappers_pb2.StringValue(value=request.value.upper())

    def count(self, request: Any, context: Any) -> Iterator[Any]:
        """Answer with so many trees, or without end."""
        self._note("Count", request, context)
        context.add_callback(self.cancelled.set)
        number = 0
        while (number < request.count or request.open) and context.is_active():
            yield self.message["Tree"](label=str(number))
            number += 1
            if request.open:
                self.cancelled.wait(0.01)
        if request.name == "fail":
            context.abort(grpc.StatusCode.DATA_LOSS, "the rest is lost")

    def _note(self, name: str, request: Any, context: Any) -> None:
        self.calls.append((name, request, dict(context.invocation_metadata()), context.time_remaining()))


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def service(self, handler_call_details: Any) -> Any:
        """Find what answers."""
        return self._shop.service(handler_call_details)


class _Version1(grpc.GenericRpcHandler):
    """Reflection under the name of its version 1, whose messages are the same."""

    def __init__(self, names: Sequence[str], pool: Any) -> None:
        from grpc_reflection.v1alpha import reflection_pb2

        self._handler = grpc.stream_stream_rpc_method_handler(
            reflection.ReflectionServicer(names, pool).ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )

    def service(self, handler_call_details: Any) -> Any:
        """Find what answers."""
        wanted = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
        return self._handler if handler_call_details.method == wanted else None


@contextmanager
def serving(
    shop: Shop, *, reflect: str = "v1", credentials: Any = None, address: str = "127.0.0.1:0", threads: int = 8
) -> Iterator[str]:
    """Run a server until the block ends; yields where it listens. *reflect*: `v1`, `v1alpha` or nothing."""
    server = grpc.server(futures.ThreadPoolExecutor(threads))
    names = [f"{file.package}.{service.name}" for file in shop.files for service in file.service]
    server.add_generic_rpc_handlers((_Handlers(shop),))
    if reflect == "v1":
        server.add_generic_rpc_handlers((_Version1([*names, "grpc.reflection.v1.ServerReflection"], shop.pool),))
    elif reflect:
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], server, shop.pool)
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, credentials)
    server.start()
    try:
        yield address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
    finally:
        server.stop(None).wait()
