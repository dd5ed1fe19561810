"""Messages that are read and written by a plan, beside the same by `google.protobuf.json_format`."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from toolexec_grpc.json_mapping import read_message, write_message
from toolexec_grpc.plain_messages import PlainMessage

BOOL, INT32, INT64, UINT64, STRING, BYTES, DOUBLE = 8, 5, 3, 4, 9, 12, 1
PLAIN = {"is_on": BOOL, "count": INT32, "long_one": INT64, "size": UINT64, "some_text": STRING}


def message_of(fields: dict[str, int], *, optional: bool = False) -> Any:
    """The class of a message with these fields, and a list of each."""
    file = descriptor_pb2.FileDescriptorProto(name="it.proto", package="it", syntax="proto3")
    made = file.message_type.add(name="It")
    for number, (name, kind) in enumerate(fields.items(), start=1):
        made.field.add(name=name, number=number, type=kind, label=1)
        made.field.add(name=f"{name}_list", number=number + 50, type=kind, label=3)
    if optional:
        made.field.add(name="maybe", number=40, type=STRING, label=1, proto3_optional=True, oneof_index=0)
        made.oneof_decl.add(name="_maybe")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[attr-defined]
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("it.It"))


def plan_of(kind: Any) -> PlainMessage:
    plan = PlainMessage.of(kind.DESCRIPTOR)
    assert plan is not None
    return plan


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"isOn": True, "count": -3, "longOne": 1 << 40, "size": 7, "someText": "é"},
        {"is_on": False, "count": 0, "some_text": "", "someTextList": [], "count_list": [1, 2], "size_list": [1 << 60]},
    ],
)
def test_both_read_and_write_the_same(value: dict[str, Any]) -> None:
    """A value of plain fields is the same message, and the message the same JSON, either way."""
    kind = message_of(PLAIN)
    plan, ours = plan_of(kind), kind()
    assert plan.fill(value, ours)
    assert ours == read_message(value, kind(), None)
    assert plan.read(ours) == write_message(ours, None)


@pytest.mark.parametrize(
    "value",
    [
        {"count": 1.0},
        {"count": "1"},
        {"count": True},
        {"count": 1 << 31},
        {"size": -1},
        {"isOn": 1},
        {"someText": None},
        {"someText": "\ud800"},
        {"someText": "a", "some_text": "b"},
        {"countList": [1, None]},
        {"countList": (1,)},
        {"other": 1},
        [],
    ],
)
def test_what_needs_a_closer_look(value: Any) -> None:
    """The plan leaves such a value and the message alone: some of these are right, and each error is the other's."""
    kind = message_of(PLAIN)
    ours = kind()
    assert not plan_of(kind).fill({"someText": "before", **value} if isinstance(value, dict) else value, ours)
    assert ours == kind()


def test_types_without_a_plan() -> None:
    """Numbers with a fraction, bytes, fields of which one is set and types that have a JSON form of their own."""
    for kind in (message_of({"x": DOUBLE}), message_of({"x": BYTES}), message_of(PLAIN, optional=True)):
        assert PlainMessage.of(kind.DESCRIPTOR) is None
    assert PlainMessage.of(descriptor_pb2.FileDescriptorProto.DESCRIPTOR) is None
