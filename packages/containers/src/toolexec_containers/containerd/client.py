"""Calls of containerd's API: each a message there and a message back, over its socket.

Calls are made with gRPC's own threads and answered on the event loop of the caller. Its asyncio flavour would do the
same no faster and belongs to one event loop permanently, while a client here can be made and closed on any.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, cast

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from toolexec.containers import uncut
from toolexec.errors import SandboxUnavailableError
from toolexec_containers.containerd.api import (
    containers_pb2,
    content_pb2,
    diff_pb2,
    images_pb2,
    leases_pb2,
    snapshots_pb2,
    tasks_pb2,
    version_pb2,
)

_Asked = TypeVar("_Asked", bound=Message)
_Answer = TypeVar("_Answer", bound=Message)
_Result = TypeVar("_Result")

_SECONDS: Final = 30.0
_LARGEST: Final = 32 << 20
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _LARGEST),
    ("grpc.max_send_message_length", _LARGEST),
    ("grpc.enable_http_proxy", 0),
    ("grpc.default_authority", "localhost"),
    ("grpc.use_local_subchannel_pool", 1),  # a client that was closed holds nothing
    ("grpc.initial_reconnect_backoff_ms", 100),  # a daemon that was restarted is back at once
    ("grpc.min_reconnect_backoff_ms", 5000),  # which is the time that a connection may take
    ("grpc.max_reconnect_backoff_ms", 250),  # it is a socket of this machine, and programs are ended for want of it
)


@dataclass(frozen=True, slots=True)
class Call(Generic[_Asked, _Answer]):
    """One method of the API: its path, and what it takes and gives."""

    service: str
    name: str
    asked: type[_Asked]
    answer: type[_Answer]

    @property
    def path(self) -> str:
        """What gRPC calls it."""
        package = self.service.lower()
        return f"/containerd.services.{package}.v1.{self.service}/{self.name}"


class Calls:
    """The methods that are used."""

    version: Final = Call("Version", "Version", Empty, version_pb2.VersionResponse)

    create_container: Final = Call(
        "Containers", "Create", containers_pb2.CreateContainerRequest, containers_pb2.CreateContainerResponse
    )
    list_containers: Final = Call(
        "Containers", "List", containers_pb2.ListContainersRequest, containers_pb2.ListContainersResponse
    )
    delete_container: Final = Call("Containers", "Delete", containers_pb2.DeleteContainerRequest, Empty)

    create_task: Final = Call("Tasks", "Create", tasks_pb2.CreateTaskRequest, tasks_pb2.CreateTaskResponse)
    start_task: Final = Call("Tasks", "Start", tasks_pb2.StartRequest, tasks_pb2.StartResponse)
    get_task: Final = Call("Tasks", "Get", tasks_pb2.GetRequest, tasks_pb2.GetResponse)
    wait_task: Final = Call("Tasks", "Wait", tasks_pb2.WaitRequest, tasks_pb2.WaitResponse)
    kill_task: Final = Call("Tasks", "Kill", tasks_pb2.KillRequest, Empty)
    delete_task: Final = Call("Tasks", "Delete", tasks_pb2.DeleteTaskRequest, tasks_pb2.DeleteResponse)
    close_stdin: Final = Call("Tasks", "CloseIO", tasks_pb2.CloseIORequest, Empty)
    list_tasks: Final = Call("Tasks", "List", tasks_pb2.ListTasksRequest, tasks_pb2.ListTasksResponse)

    prepare_snapshot: Final = Call(
        "Snapshots", "Prepare", snapshots_pb2.PrepareSnapshotRequest, snapshots_pb2.PrepareSnapshotResponse
    )
    commit_snapshot: Final = Call("Snapshots", "Commit", snapshots_pb2.CommitSnapshotRequest, Empty)
    stat_snapshot: Final = Call(
        "Snapshots", "Stat", snapshots_pb2.StatSnapshotRequest, snapshots_pb2.StatSnapshotResponse
    )
    remove_snapshot: Final = Call("Snapshots", "Remove", snapshots_pb2.RemoveSnapshotRequest, Empty)
    list_snapshots: Final = Call(
        "Snapshots", "List", snapshots_pb2.ListSnapshotsRequest, snapshots_pb2.ListSnapshotsResponse
    )

    get_image: Final = Call("Images", "Get", images_pb2.GetImageRequest, images_pb2.GetImageResponse)
    create_image: Final = Call("Images", "Create", images_pb2.CreateImageRequest, images_pb2.CreateImageResponse)
    update_image: Final = Call("Images", "Update", images_pb2.UpdateImageRequest, images_pb2.UpdateImageResponse)

    update_blob: Final = Call("Content", "Update", content_pb2.UpdateRequest, content_pb2.UpdateResponse)
    read_blob: Final = Call("Content", "Read", content_pb2.ReadContentRequest, content_pb2.ReadContentResponse)
    write_blob: Final = Call("Content", "Write", content_pb2.WriteContentRequest, content_pb2.WriteContentResponse)
    apply_layer: Final = Call("Diff", "Apply", diff_pb2.ApplyRequest, diff_pb2.ApplyResponse)

    create_lease: Final = Call("Leases", "Create", leases_pb2.CreateRequest, leases_pb2.CreateResponse)
    delete_lease: Final = Call("Leases", "Delete", leases_pb2.DeleteRequest, Empty)
    list_leases: Final = Call("Leases", "List", leases_pb2.ListRequest, leases_pb2.ListResponse)


class Client:
    """A connection to the containerd that listens at *address*, for things in *namespace*. `close` ends all calls."""

    def __init__(self, address: str, namespace: str) -> None:
        self.address = address
        self.namespace = namespace
        self._channel: Any = grpc.insecure_channel(f"unix:{address}", options=_OPTIONS)
        self._methods: dict[tuple[str, str], Any] = {}

    async def call(
        self, call: Call[_Asked, _Answer], asked: _Asked, *, seconds: float | None = _SECONDS, lease: str = ""
    ) -> _Answer:
        """Return the answer to one call; what it makes is kept from collection by the *lease*, if one is given.

        Raises SandboxUnavailableError, whose `details["status"]` is the code that gRPC gave ("NOT_FOUND").
        """
        loop = asyncio.get_running_loop()
        answered = loop.create_future()

        def settle() -> None:
            if not answered.done():
                answered.set_result(None)

        def wake(_: object) -> None:  # in a thread of gRPC's
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(settle)

        pending = self._begin(call, "unary_unary", lambda method: method.future, asked, seconds, lease)
        pending.add_done_callback(wake)
        try:
            await answered
        finally:
            pending.cancel()
        try:
            return cast("_Answer", pending.result())
        except grpc.RpcError as error:
            raise self._failed(call, error) from None

    async def uncut(self, call: Call[_Asked, _Answer], asked: _Asked, *, lease: str = "") -> _Answer:
        """Make a call as `call` does; a cancellation waits for the answer, as what is made must be removed."""
        return await uncut(self.call(call, asked, lease=lease))

    async def in_thread(self, work: Callable[[threading.Event], _Result]) -> _Result:
        """Return what *work* gives, which blocks and is run in a thread; a cancellation sets its event, and waits for
        it.
        """
        stop = threading.Event()
        return await uncut(asyncio.to_thread(work, stop), stop=stop.set)

    def stream(
        self, call: Call[_Asked, _Answer], asked: _Asked, *, seconds: float | None = None, lease: str = ""
    ) -> Iterator[_Answer]:
        """Yield the answers to a call that has many; blocks. Raises as `call` does."""
        yield from self._answers(call, self._begin(call, "unary_stream", lambda method: method, asked, seconds, lease))

    def exchange(
        self, call: Call[_Asked, _Answer], asked: Iterator[_Asked], *, seconds: float | None = None, lease: str = ""
    ) -> Iterator[_Answer]:
        """Yield the answers to many messages; blocks. Raises as `call` does."""
        yield from self._answers(call, self._begin(call, "stream_stream", lambda method: method, asked, seconds, lease))

    def close(self) -> None:
        """End the connection, and with it all calls that wait."""
        self._channel.close()

    def _begin(
        self,
        call: Call[Any, Any],
        shape: str,
        how: Callable[[Any], Any],
        asked: object,
        seconds: float | None,
        lease: str,
    ) -> Any:
        key = (call.path, shape)
        method = self._methods.get(key)
        if method is None:
            method = self._methods[key] = getattr(self._channel, shape)(
                call.path,
                request_serializer=call.asked.SerializeToString,
                response_deserializer=call.answer.FromString,
            )
        metadata = [("containerd-namespace", self.namespace), *([("containerd-lease", lease)] if lease else [])]
        try:
            return how(method)(asked, timeout=seconds, metadata=metadata)
        except ValueError as error:  # what gRPC says of a channel that is closed
            raise SandboxUnavailableError(
                "the connection to containerd is closed; make a new backend", details={"status": "CANCELLED"}
            ) from error

    def _answers(self, call: Call[Any, _Answer], answers: Any) -> Iterator[_Answer]:
        try:
            yield from answers
        except grpc.RpcError as error:
            raise self._failed(call, error) from None
        finally:
            answers.cancel()

    def _failed(self, call: Call[Any, Any], error: Any) -> SandboxUnavailableError:
        status = str(error.code().name)
        said = " ".join(str(error.details() or "").split())[:2000]
        what = f"containerd could not do {call.service}.{call.name}"
        if status == "UNAVAILABLE":
            what = f"containerd at {self.address} cannot be reached"
        elif status == "DEADLINE_EXCEEDED":
            what = f"containerd did not answer {call.service}.{call.name} in time"
        return SandboxUnavailableError(f"{what}: {said or status.lower()}", details={"status": status, "said": said})


def status_of(error: SandboxUnavailableError) -> str:
    """Return the code that gRPC gave for a failed call: "NOT_FOUND", "ALREADY_EXISTS", …; "" for another error."""
    return str(error.details.get("status", ""))


def is_lost(error: SandboxUnavailableError) -> bool:
    """Return whether a call failed as containerd itself is gone, or the connection to it."""
    return status_of(error) in ("UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED")
