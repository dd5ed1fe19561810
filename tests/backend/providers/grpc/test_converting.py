"""Plain messages from JSON and back: the same as `json_format`, for every value."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from hypothesis import given
from hypothesis import strategies as st

from toolexec.backend.providers.grpc.converting import Converter

KINDS = {
    "a": "INT32",
    "b": "INT64",
    "c": "UINT64",
    "d": "DOUBLE",
    "e": "BOOL",
    "f": "STRING",
    "g": "ENUM",
    "h": "UINT32",
}
POOL = descriptor_pool.DescriptorPool()


def _file() -> Any:
    """Describe messages with every plain kind of field, once, repeated and optional: one has others inside, and one
    itself."""
    file = descriptor_pb2.FileDescriptorProto(name="plain.proto", package="plain", syntax="proto3")
    color = file.enum_type.add(name="Color")
    for number, name in enumerate(("NONE", "RED")):
        color.value.add(name=name, number=number)
    for message, inside in (("Flat", ""), ("Plain", ".plain.Flat"), ("Endless", ".plain.Endless")):
        made = file.message_type.add(name=message)
        for prefix, label in (("one", 1), ("many", 3), ("perhaps", 1)):
            for name, kind in {**KINDS, **({"z": "MESSAGE"} if inside else {})}.items():
                field = made.field.add(name=f"{prefix}_{name}", number=len(made.field) + 1, label=label)
                field.type = getattr(field, f"TYPE_{kind}")
                if kind in ("ENUM", "MESSAGE"):
                    field.type_name = ".plain.Color" if kind == "ENUM" else inside
                field.json_name = f"{prefix}{name.upper()}"
                if prefix == "perhaps":
                    field.proto3_optional = True
                    field.oneof_index = len(made.oneof_decl)
                    made.oneof_decl.add(name=f"_{field.name}")
    return file


POOL.Add(_file())
PLAIN = POOL.FindMessageTypeByName("plain.Plain")
MESSAGE = message_factory.GetMessageClass(PLAIN)
CONVERTER = Converter(POOL)
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(), st.text(max_size=3), st.just([]), st.just({}),
    st.sampled_from(["NONE", "RED", "BLUE", "1", "-1", "1.5", "1e3", "NaN", "Infinity", "true", "\ud800", "0x1", " 1"]),
)  # fmt: skip
RIGHT = {
    "A": st.integers(-(2**31), 2**31 - 1), "B": st.integers(-(2**63), 2**63 - 1).map(str), "C": st.integers(0, 2**64 - 1),
    "D": st.floats(allow_nan=False, allow_infinity=False), "E": st.booleans(), "F": st.text(max_size=5), "G": st.sampled_from(["NONE", "RED"]),
    "H": st.integers(0, 2**32 - 1),
}  # fmt: skip


def _objects(values: Any) -> Any:
    fields: dict[str, Any] = {}
    for name, right in RIGHT.items():
        value = right if values is None else st.one_of(right, values)
        fields |= {f"one{name}": value, f"many{name}": st.lists(value, max_size=2), f"perhaps{name}": value}
    flat = st.fixed_dictionaries({}, optional=fields)
    inner = {"oneZ": flat, "perhapsZ": flat, "manyZ": st.lists(flat, max_size=2)}
    return st.fixed_dictionaries({}, optional={**fields, **inner})


def _outcome(make: Any) -> Any:
    try:
        return make()
    except (json_format.ParseError, ValueError, TypeError, RecursionError):
        return "refused"


@given(_objects(ODD))
def test_any_value_is_read_as_json_format_reads_it(value: Any) -> None:
    """With the same message, or refused by both."""
    expected = _outcome(lambda: json_format.ParseDict(value, MESSAGE(), descriptor_pool=POOL))
    assert _outcome(lambda: CONVERTER.reader(PLAIN)(value)) == expected


@given(_objects(None))
def test_messages_make_the_round_trip(value: Any) -> None:
    """Messages are written as json_format writes them."""
    message = CONVERTER.reader(PLAIN)(value)
    written = CONVERTER.writer(PLAIN)(message)
    assert written == json_format.MessageToDict(
        message, always_print_fields_with_no_presence=True, descriptor_pool=POOL
    )
    assert CONVERTER.reader(PLAIN)(written) == message


@pytest.mark.parametrize("depth", [50, 150, 900, 5000])
def test_deep_values_are_refused_or_can_be_sent(depth: int) -> None:
    """A server takes 100 levels, so more are refused."""
    endless = POOL.FindMessageTypeByName("plain.Endless")
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"oneZ": value}
    try:
        message = CONVERTER.reader(endless)(value)
    except (json_format.ParseError, ValueError, TypeError, RecursionError):
        assert depth > 100
    else:
        assert depth < 100
        assert CONVERTER.writer(endless)(message)["oneZ"]["oneB"] == "0"
