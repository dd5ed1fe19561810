"""A container as containerd's API wants it: a record, a snapshot that is its root file system, and a task."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from google.protobuf.any_pb2 import Any as Packed

from toolexec.containers import JSONObject
from toolexec_containers.containerd.api import containers_pb2, mount_pb2, options_pb2, snapshots_pb2, tasks_pb2
from toolexec_containers.containerd.pipes import Pipes
from toolexec_containers.containerd.runtimes import Runtime

_SPEC_TYPE: Final = "types.containerd.io/opencontainers/runtime-spec/1/Spec"
"""What containerd calls the content of config.json."""
_RUNC_OPTIONS: Final = "containerd.runc.v1.Options"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a container is made from.

    `spec` is config.json, `parent` the snapshot of its image, `user` the numbers of user and group that own its pipes,
    `directory` where its own pipes are put, and `cgroup` its path.
    """

    id: str
    image: str
    parent: str
    snapshotter: str
    runtime: Runtime
    spec: JSONObject
    directory: Path
    cgroup: str
    user: tuple[int, int] = (0, 0)
    labels: Mapping[str, str] = field(default_factory=dict[str, str])

    def record(self) -> containers_pb2.CreateContainerRequest:
        """Return the request for its record."""
        record = record_of(self.id, self.labels, self.runtime.name, self.spec, self._options())
        record.image, record.snapshotter, record.snapshot_key = self.image, self.snapshotter, self.id
        return containers_pb2.CreateContainerRequest(container=record)

    def snapshot(self) -> snapshots_pb2.PrepareSnapshotRequest:
        """Return the request for its root file system."""
        return snapshots_pb2.PrepareSnapshotRequest(
            snapshotter=self.snapshotter, key=self.id, parent=self.parent, labels=dict(self.labels)
        )

    def task(self, mounts: Iterable[mount_pb2.Mount], pipes: Pipes) -> tasks_pb2.CreateTaskRequest:
        """Return the request for its first process, which has *pipes* as its stdio."""
        return tasks_pb2.CreateTaskRequest(
            container_id=self.id,
            rootfs=mounts,
            stdin=pipes.path("stdin"),
            stdout=pipes.path("stdout"),
            stderr=pipes.path("stderr"),
            options=self._options(),
        )

    def _options(self) -> Packed | None:
        """Return what the shim of runc understands; others have options of their own kinds."""
        if not self.runtime.takes_runc_options:
            return None
        uid, gid = self.user
        options = options_pb2.Options(binary_name=self.runtime.binary, io_uid=uid, io_gid=gid)
        return Packed(type_url=_RUNC_OPTIONS, value=options.SerializeToString())


def record_of(
    id: str, labels: Mapping[str, str], runtime: str, spec: JSONObject, options: Packed | None = None
) -> containers_pb2.Container:
    """Return the record of a container without an image: containerd needs one for each task."""
    return containers_pb2.Container(
        id=id,
        labels=dict(labels),
        runtime=containers_pb2.Container.Runtime(name=runtime, options=options),
        spec=Packed(type_url=_SPEC_TYPE, value=json.dumps(spec, separators=(",", ":")).encode()),
    )
