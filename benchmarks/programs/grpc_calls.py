"""A unary call of a gRPC server in another process: the bare stubs and a whole `Exec`.

Batches take turns, so that whatever else the machine does falls on all of them alike.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from concurrent import futures
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from benchmarks.meter import Meter, run_program
from toolexec import Exec

_AT_ONCE = 1000
_PATH = "/bench.Users/Get"


def _describe() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="bench", syntax="proto3")
    user = file.message_type.add(name="User")
    for number, (name, kind) in enumerate((("id", 5), ("name", 9), ("email", 9), ("active", 8)), start=1):
        user.field.add(name=name, number=number, type=kind, json_name=name, label=1)
    user.field.add(name="tags", number=5, type=9, json_name="tags", label=3)
    service = file.service.add(name="Users")
    service.method.add(name="Get", input_type=".bench.User", output_type=".bench.User")
    return file


def _message() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_describe())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.User"))


class _Handlers(grpc.GenericRpcHandler):
    def __init__(self, user: Any) -> None:
        self._method = grpc.unary_unary_rpc_method_handler(
            lambda request, _: request, request_deserializer=user.FromString, response_serializer=user.SerializeToString
        )

    def service(self, handler_call_details: Any) -> Any:
        return self._method if handler_call_details.method == _PATH else None


def _serve() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_Handlers(_message()),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    server.stop(None)


async def batch(call: Callable[[], Awaitable[Any]], count: int) -> float:
    """The seconds of a call, as the mean of *count*."""
    begun = perf_counter()
    for _ in range(count):
        await call()
    return (perf_counter() - begun) / count


async def compare(meter: Meter, target: str, descriptors: str) -> None:
    """Make the same call by the stubs and by a tool; each side has a connection of its own."""
    user = _message()
    args = {"id": 7, "name": "Ada Lovelace", "email": "ada@example.com", "active": True, "tags": ["a", "b", "c"]}
    message = user(**args)
    codec = {"request_serializer": user.SerializeToString, "response_deserializer": user.FromString}
    blocking = grpc.insecure_channel(target)
    blocking_stub = blocking.unary_unary(_PATH, **codec)
    async with grpc.aio.insecure_channel(target) as channel, Exec() as ex:
        stub = channel.unary_unary(_PATH, **codec)
        await ex.add_grpc("bench", target, descriptors=descriptors)

        async def bare() -> Any:
            return await stub(message)

        async def direct() -> Any:
            return blocking_stub(message)

        async def tool() -> Any:
            return (await ex.run_tool("bench:Users.Get", args)).raise_for_error()

        assert (await tool()).value == args
        ways = {"grpc.bare": bare, "grpc.blocking": direct, "grpc.call": tool}
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(10 if meter.quick else 60):
            for name, one in ways.items():
                figure = await batch(one, 20)
                if number:  # the first warms up
                    taken[name].append(figure)
        for name, figures in taken.items():
            meter.record(name, *figures)
        pairs = zip(taken["grpc.call"], taken["grpc.bare"], strict=True)
        meter.record("grpc.ratio", median(ours / theirs for ours, theirs in pairs))
        begun = perf_counter()
        results = await asyncio.gather(*(ex.run_tool("bench:Users.Get", args) for _ in range(_AT_ONCE)))
        meter.record("grpc.at_once", perf_counter() - begun)
        meter.record("grpc.errors", sum(not result.ok for result in results))
    blocking.close()


async def main(meter: Meter) -> None:
    """Start the server and measure."""
    command = [sys.executable, "-m", "benchmarks.programs.grpc_calls", "serve"]
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        file = Path(directory) / "bench.binpb"
        file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[_describe()]).SerializeToString())
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            await compare(meter, f"127.0.0.1:{server.stdout.readline().strip()}", str(file))
        finally:
            server.stdin.close()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        _serve()
    else:
        run_program(main)
