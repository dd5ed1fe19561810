"""A unary call of a gRPC server in another process: the bare stubs, the source alone, and a whole `Exec`.

    python -m benchmarks.programs.grpc_calls [calls]

Rounds take turns, so that whatever else the machine does falls on all of them alike. Prints JSON, in microseconds.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from toolexec import Exec

_ROUNDS = 15
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


async def _timed(one: Callable[[], Awaitable[Any]], calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        await one()
    return (time.perf_counter() - begun) / calls * 1e6


async def _measure(target: str, calls: int, descriptors: str) -> dict[str, float]:
    user = _message()
    args = {"id": 7, "name": "Ada Lovelace", "email": "ada@example.com", "active": True, "tags": ["a", "b", "c"]}
    message = user(**args)
    codec = {"request_serializer": user.SerializeToString, "response_deserializer": user.FromString}
    blocking = grpc.insecure_channel(target)
    blocking_stub = blocking.unary_unary(_PATH, **codec)
    taken: dict[str, list[float]] = {}
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
        ways = {"asyncio stub": bare, "blocking stub": direct, "Exec.run_tool": tool}
        for round_ in range(_ROUNDS + 1):
            for name, one in ways.items():
                figure = await _timed(one, calls)
                if round_:  # the first warms up
                    taken.setdefault(name, []).append(figure)
        begun = time.perf_counter()
        await asyncio.gather(*(tool() for _ in range(1000)))
        many = (time.perf_counter() - begun) / 1000 * 1e6
        begun = time.perf_counter()
        await asyncio.gather(*(bare() for _ in range(1000)))
        many_bare = (time.perf_counter() - begun) / 1000 * 1e6
    blocking.close()
    found = {name: round(statistics.median(figures), 1) for name, figures in taken.items()}
    pairs = zip(taken["Exec.run_tool"], taken["asyncio stub"], strict=True)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    many_found = {"1000 at once, asyncio stub": round(many_bare, 1), "1000 at once, Exec.run_tool": round(many, 1)}
    return {**found, "ratio to the asyncio stub": round(ratio, 3), **many_found}


def main() -> None:
    """Start the server, measure, and print."""
    if sys.argv[1:] == ["serve"]:
        _serve()
        return
    import tempfile
    from pathlib import Path

    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    command = [sys.executable, "-m", "benchmarks.programs.grpc_calls", "serve"]
    with (
        tempfile.TemporaryDirectory() as directory,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
    ):
        file = Path(directory) / "bench.binpb"
        file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[_describe()]).SerializeToString())
        assert server.stdout is not None
        target = f"127.0.0.1:{server.stdout.readline().strip()}"
        print(json.dumps(asyncio.run(_measure(target, calls, str(file))), indent=2))
        assert server.stdin is not None
        server.stdin.close()


if __name__ == "__main__":
    main()
