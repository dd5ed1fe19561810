"""The methods of a gRPC service as tools: schemas and comments from its descriptors, calls and streams as JSON.

    pip install 'toolexec[grpc]'
    python packages/grpc/examples/grpc_service.py

Prints:

    shop:Shop.Find: Finds what is sold under a name. (read_only)
    shop:Shop.Watch: Watches a price. (destructive)
    find: {'name': 'tea', 'cents': '350', 'sizes': ['S', 'L']}
    watch: 351
    watch: 352
    refused: cents must be an integer or digits
    failed: NOT_FOUND, retryable: False
"""

import asyncio
import tempfile
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from toolexec import Exec
from toolexec.errors import InputValidationError

STRING, INT64 = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_INT64


def describe() -> Any:
    """Describe the service; usually protoc does that: --include_imports --include_source_info -o shop.binpb."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop.v1", syntax="proto3")
    item = file.message_type.add(name="Item")
    for number, (name, kind, label) in enumerate((("name", STRING, 1), ("cents", INT64, 1), ("sizes", STRING, 3)), 1):
        item.field.add(name=name, json_name=name, number=number, type=kind, label=label)
    service = file.service.add(name="Shop")
    find = service.method.add(name="Find", input_type=".shop.v1.Item", output_type=".shop.v1.Item")
    find.options.idempotency_level = descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS
    service.method.add(name="Watch", input_type=".shop.v1.Item", output_type=".shop.v1.Item", server_streaming=True)
    for number, comment in enumerate(("Finds what is sold under a name.", "Watches a price.")):
        file.source_code_info.location.add(path=(6, 0, 2, number), leading_comments=comment)
    return file


class Shop(grpc.GenericRpcHandler):
    """What the server does."""

    def __init__(self, file: Any) -> None:
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        self.item = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.v1.Item"))

    def service(self, handler_call_details: Any) -> Any:
        codec = {"request_deserializer": self.item.FromString, "response_serializer": self.item.SerializeToString}
        if handler_call_details.method == "/shop.v1.Shop/Find":
            return grpc.unary_unary_rpc_method_handler(self.find, **codec)
        return grpc.unary_stream_rpc_method_handler(self.watch, **codec)

    def find(self, request: Any, context: Any) -> Any:
        if request.name != "tea":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no {request.name}")
        return self.item(name="tea", cents=350, sizes=["S", "L"])

    def watch(self, request: Any, context: Any) -> Iterator[Any]:
        yield from (self.item(cents=request.cents + step) for step in (1, 2))


@contextmanager
def serving(file: Any) -> Iterator[str]:
    """Run the server; yields where it listens."""
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[Shop(file)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


async def main(target: str, descriptors: Path) -> None:
    async with Exec() as ex:
        await ex.add_grpc("shop", target, descriptors=descriptors, timeout=5)  # without: by server reflection
        for entry in sorted(ex.index.tools(), key=lambda entry: entry.tool.id):
            print(f"{entry.tool.id}: {entry.tool.description} ({entry.tool.annotations.on()[0]})")

        print("find:", (await ex.run_tool("shop:Shop.Find", {"name": "tea"})).value)
        async for event in ex.stream_tool("shop:Shop.Watch", {"cents": "350"}):
            if event.kind == "chunk":
                print("watch:", event.data["cents"])

        try:
            await ex.run_tool("shop:Shop.Watch", {"cents": "cheap"})
        except InputValidationError as error:
            print("refused:", error.violations[0].path[1:], "must be an integer or digits")
        lost = await ex.run_tool("shop:Shop.Find", {"name": "coffee"})
        print(f"failed: {lost.error.details['status']}, retryable: {lost.error.retryable}")


if __name__ == "__main__":
    described = describe()
    with tempfile.TemporaryDirectory() as directory, serving(described) as address:
        path = Path(directory) / "shop.binpb"
        path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[described]).SerializeToString())
        asyncio.run(main(address, path))
