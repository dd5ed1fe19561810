"""The few messages of gRPC itself that are needed: server reflection, and the details of a status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory

from toolexec.provider import JSONDict

_REPEATED: Final = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_SCALARS: Final = {
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}
_PACKAGE: Final = "toolexec.wire"
_MESSAGES: Final[Mapping[str, str]] = {
    "ReflectionRequest": "3 string file_by_filename, 4 string file_containing_symbol, 7 string list_services",
    "Files": "1 *bytes file_descriptor_proto",
    "Service": "1 string name",
    "Services": "1 *.toolexec.wire.Service service",
    "Failure": "1 int32 error_code, 2 string error_message",
    "ReflectionReply": (
        "4 .toolexec.wire.Files files, 6 .toolexec.wire.Services services, 7 .toolexec.wire.Failure failure"
    ),
    "Status": "1 int32 code, 2 string message, 3 *.google.protobuf.Any details",
    "RetryInfo": "1 .google.protobuf.Duration retry_delay",
}
"""Name → fields: the number, the type (`*` is repeated) and the name of each. Only numbers and types are sent."""


def _make() -> JSONDict:
    file = descriptor_pb2.FileDescriptorProto(name="toolexec/wire.proto", package=_PACKAGE, syntax="proto3")
    pool = descriptor_pool.DescriptorPool()
    for known in (any_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR):
        pool.AddSerializedFile(known.serialized_pb)
        file.dependency.append(known.name)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields.split(", "):
            number, kind, field = text.split()
            added = message.field.add(name=field, number=int(number))
            if kind.startswith("*"):
                added.label = _REPEATED
            kind = kind.removeprefix("*")
            if kind in _SCALARS:
                added.type = _SCALARS[kind]
            else:
                added.type, added.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, kind
    pool.Add(file)  # type: ignore[attr-defined]
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_classes: Final = _make()
ReflectionRequest: Any = _classes["ReflectionRequest"]
ReflectionReply: Any = _classes["ReflectionReply"]
Status: Any = _classes["Status"]
"""google.rpc.Status."""
RetryInfo: Any = _classes["RetryInfo"]
"""google.rpc.RetryInfo."""
