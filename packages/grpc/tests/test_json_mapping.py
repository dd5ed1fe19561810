"""Messages from JSON and back: `json_format` decides, and the schema of a message admits what it takes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, json_format, message_factory
from hypothesis import given
from hypothesis import strategies as st

from toolexec.model import Schema
from toolexec_grpc.descriptors import build_services
from toolexec_grpc.json_mapping import read_message, write_message
from toolexec_grpc.schemas import message_schema

URL = "type.googleapis.com/"
SCALARS = ("INT32", "INT64", "UINT32", "UINT64", "DOUBLE", "FLOAT", "BOOL", "STRING", "BYTES", "ENUM", "MESSAGE")
WELL_KNOWN = (
    *("Any", "Duration", "Empty", "FieldMask", "ListValue", "Struct", "Timestamp", "Value"),
    *("BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue"),
    *("UInt32Value", "UInt64Value"),
)


def _file() -> Any:
    """Describe a message with every kind of field, once, repeated, optional and as the values of a map.

    Fields are named `one_int32`, `many_int32`, `perhaps_int32` and `map_int32`; of maps by other keys, `by_bool` and
    `by_int`.
    """
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax="proto3")
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers"):
        file.dependency.append(f"google/protobuf/{name}.proto")
    color = file.enum_type.add(name="Color")
    for number, value in enumerate(("NONE", "RED", "DARK_RED")):
        color.value.add(name=value, number=number)
    message = file.message_type.add(name="Message")
    message.oneof_decl.add(name="choice")
    for kind in ("STRING", "INT64", "MESSAGE"):
        _add(message, f"choice_{kind.lower()}", kind, 1).oneof_index = 0
    for kind in (*SCALARS, *WELL_KNOWN, "NullValue"):
        for prefix in ("one", "many", "perhaps"):
            field = _add(message, f"{prefix}_{kind.lower()}", kind, 3 if prefix == "many" else 1)
            if prefix == "perhaps":
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
        _add_map(message, f"map_{kind.lower()}", "STRING", kind)
    for key in ("BOOL", "INT32", "UINT64"):
        _add_map(message, f"by_{key.lower()}", key, "STRING")
    return file


def _add(message: Any, name: str, kind: str, label: int) -> Any:
    field = message.field.add(name=name, number=len(message.field) + 1, label=label)
    words = name.split("_")
    field.json_name = words[0] + "".join(word.title() for word in words[1:])
    if kind in ("ENUM", "NullValue"):
        field.type, field.type_name = 14, ".all.Color" if kind == "ENUM" else ".google.protobuf.NullValue"
    elif kind in WELL_KNOWN or kind == "MESSAGE":
        field.type, field.type_name = 11, ".all.Message" if kind == "MESSAGE" else f".google.protobuf.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind}")
    return field


def _add_map(message: Any, name: str, key: str, kind: str) -> None:
    entry = message.nested_type.add(name="".join(word.title() for word in name.split("_")) + "Entry")
    entry.options.map_entry = True
    _add(entry, "key", key, 1)
    _add(entry, "value", kind, 1)
    field = message.field.add(name=name, number=len(message.field) + 1, label=3, type=11)
    field.type_name = f".all.Message.{entry.name}"
    words = name.split("_")
    field.json_name = words[0] + "".join(word.title() for word in words[1:])


POOL = build_services([_file()], None).pool
DESCRIPTOR = POOL.FindMessageTypeByName("all.Message")
MESSAGE = message_factory.GetMessageClass(DESCRIPTOR)
INPUT = Schema.of(message_schema(DESCRIPTOR, {}))
OUTPUT = Schema.of(message_schema(DESCRIPTOR, {}, output=True))

_WHOLE = [0, 7, 7.0, 1e3, "7", "007", "7.0", "1e3", "1E+3", "70e-1"]
_SIGNED = [*_WHOLE, -7, "-7", "-0", "+7"]
_NUMBERS = [*_SIGNED, 1.5, "1.5", "-1.5e-3", "NaN", "Infinity", "-Infinity"]
_BYTES = ["", "aGk=", "aGk", "-_8=", "-_8", "+/8=", "+/8"]
LEGAL: dict[str, list[Any]] = {
    "int32": [*_SIGNED, -(2**31), 2**31 - 1, str(2**31 - 1)],
    "int64": [*_SIGNED, -(2**63), 2**63 - 1, str(-(2**63)), str(2**63 - 1)],
    "uint32": [*_WHOLE, 2**32 - 1, str(2**32 - 1)],
    "uint64": [*_WHOLE, 2**64 - 1, str(2**64 - 1)],
    "double": [*_NUMBERS, 1e300, "1e300"],
    "float": [*_NUMBERS, 1e38],
    "bool": [True, False],
    "string": ["", "x", "7", "\U0001f600"],
    "bytes": _BYTES,
    "enum": ["NONE", "DARK_RED", 0, 1, 2.0, "1", 99, -1],
    "message": [{}, {"oneInt32": 1}, {"one_int32": 1}, {"oneMessage": {"manyBool": [True]}}],
    "any": [
        {}, {"@type": URL + "all.Message", "oneInt64": 7}, {"@type": URL + "all.Message", "one_int64": "7"},
        {"@type": URL + "google.protobuf.Duration", "value": "1.5s"}, {"value": "eA", "@type": URL + "google.protobuf.BytesValue"},
        {"@type": URL + "google.protobuf.Struct", "value": {"a": 1}}, {"@type": URL + "google.protobuf.Value", "value": None},
        {"@type": URL + "google.protobuf.Any", "value": {"@type": URL + "all.Message"}}, {"@type": "x.test/google.protobuf.Empty"},
    ],
    "duration": ["0s", "3s", "-3s", "1.5s", "1.000000001s", "-0.5s", "315576000000s"],
    "empty": [{}],
    "fieldmask": ["", "a", "a,bC", "a.bC,d"],
    "listvalue": [[], [1, None, "a", [True], {}]],
    "struct": [{}, {"a": None, "b": [1.5, {"c": "d"}]}],
    "timestamp": [
        "2026-11-23T05:00:00Z", "2026-11-23T05:00:00.5Z", "2026-11-23T05:00:00.123456789Z", "2026-11-23T05:00:00+01:30",
        "2026-11-23T05:00:00.25-08:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z",
    ],
    "value": [None, True, 1, 1.5, "a", [None], {"a": None}],
    "nullvalue": ["NULL_VALUE", 0, "0"],
}  # fmt: skip
LEGAL |= {f"{name}value": LEGAL[name] for name in ("bool", "bytes", "double", "float", "int32", "int64", "string")}
LEGAL |= {"uint32value": LEGAL["uint32"], "uint64value": LEGAL["uint64"]}

ILLEGAL: dict[str, list[Any]] = {
    **{kind: [1.5, "1.5", "", "x", " 7", "0x7", True, [], {}, 2**64, "NaN"] for kind in ("int32", "int64", "uint32", "uint64")},
    **{kind: ["", "x", "0x7", "nan", [], {}] for kind in ("double", "float")},
    "bool": ["true", 0, 1, "", [], {}],
    "string": [1, True, [], {}, "\ud800"],
    "bytes": [1, True, [], {}, "a"],
    "enum": ["red", "BLUE", "", 1.5e300, [], {}],
    "message": [1, "x", {"nope": 1}, {"oneInt32": "x"}, True],
    "any": ["x", [], {"oneInt64": 7}, {"@type": "x"}, {"@type": URL + "no.Such"}, {"@type": 5}, {"@type": URL + "all.Message", "x": 1},
            {"@type": URL + "google.protobuf.Duration"}, {"@type": URL + "google.protobuf.Duration", "value": 1}],
    "duration": [1, "1", "s", "1m", [], {}, "315576000001s"],
    "empty": [1, "x", {"a": 1}],
    "fieldmask": ["a_b", 1, [], {}],
    "listvalue": ["x", {}, 1],
    "struct": ["x", [], 1],
    "timestamp": [1, "x", "2026-11-23", "2026-11-23T05:00:00", "2026-13-23T05:00:00Z", [], {}],
    "nullvalue": ["x", [], {}],
}  # fmt: skip
ILLEGAL |= {"value": [], **{f"{name}value": ILLEGAL[name] for name in ("bool", "bytes", "double", "int64", "string")}}


def _expected(value: Any) -> Any:
    """Return the message that json_format makes of *value*, or None for one that it refuses."""
    try:
        return json_format.ParseDict(value, MESSAGE(), descriptor_pool=POOL)
    except Exception:
        return None


def _made(value: Any) -> Any:
    """Return the message that a call with *value* sends, or None for one that is refused."""
    if not INPUT.conforms(value):
        return None
    try:
        return read_message(value, MESSAGE(), POOL)
    except json_format.ParseError:
        return None


def _in_fields(kind: str, value: Any) -> list[Any]:
    """Return an object for each field that may hold the value, by both of its names."""
    title = kind.title()
    return [
        {f"one{title}": value}, {f"one_{kind}": value}, {f"perhaps{title}": value}, {f"perhaps_{kind}": value},
        {f"many{title}": [value]}, {f"many_{kind}": [value, value]}, {f"map{title}": {"k": value}}, {f"map_{kind}": {"": value}},
    ]  # fmt: skip


@pytest.mark.parametrize("kind", LEGAL)
def test_every_legal_spelling_is_taken(kind: str) -> None:
    """Each value of each kind of field makes the message that json_format makes, by either name of the field."""
    for value in LEGAL[kind]:
        for args in _in_fields(kind, value):
            expected = _expected(args)
            assert expected is not None, args
            assert INPUT.conforms(args), (args, INPUT.violations(args))
            assert _made(args).SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)


@pytest.mark.parametrize("kind", ILLEGAL)
def test_no_other_spelling_is_taken(kind: str) -> None:
    """Values that json_format refuses are refused, by the schema or by the conversion."""
    for value in ILLEGAL[kind]:
        for args in _in_fields(kind, value):
            assert _expected(args) is None, args
            assert _made(args) is None, args


@pytest.mark.parametrize("kind", LEGAL)
def test_null_is_the_default(kind: str) -> None:
    """Null stands for a field that is not given, and not for an item of a list or a map."""
    for prefix in ("one", "many", "perhaps", "map"):
        for name in (f"{prefix}{kind.title()}", f"{prefix}_{kind}"):
            args = {name: None}
            assert _made(args) == _expected(args)
            assert _made(args) is not None or kind in ("value", "nullvalue"), args
    for args in ({f"many{kind.title()}": [None]}, {f"map{kind.title()}": {"k": None}}):
        assert _made(args) == _expected(args)


def test_keys_of_maps_are_strings() -> None:
    """Integers and booleans are keys in their JSON spellings."""
    for args in (
        {"byBool": {"true": "a", "false": "b"}},
        {"by_int32": {"-7": "a", "1e3": "b"}},
        {"byUint64": {"7": ""}},
    ):
        assert _made(args) is not None
        assert _made(args) == _expected(args)
    for args in ({"byBool": {"yes": "a"}}, {"byInt32": {"x": "a"}}, {"byUint64": {"-1": "a"}}):
        assert _made(args) is None
        assert _expected(args) is None


def test_at_most_one_field_of_a_choice_is_given() -> None:
    """Null counts as absent; two values are refused, also by different names."""
    for args in ({"choiceString": "a", "choiceInt64": None}, {"choice_message": {}, "choiceString": None}):
        assert _made(args) == _expected(args) is not None
    for args in ({"choiceString": "a", "choiceInt64": "1"}, {"choice_string": "a", "choiceMessage": {}}):
        assert not INPUT.conforms(args)
        assert _expected(args) is None


def test_null_by_one_name_does_not_undo_a_value_by_the_other() -> None:
    """The order is of no account, since a strict tool makes the model write both."""
    for args in ({"oneInt32": 7, "one_int32": None}, {"one_int32": None, "oneInt32": 7}):
        before = dict(args)
        assert _made({"oneMessage": args}).one_message.one_int32 == 7
        assert args == before


_VALUES = {
    kind: st.one_of(st.sampled_from(LEGAL[kind]), st.sampled_from(ILLEGAL[kind])) for kind in ILLEGAL if ILLEGAL[kind]
}


@given(st.data())
def test_messages_agree_with_json_format(data: st.DataObject) -> None:
    """Objects of any fields with right and wrong values are taken and refused by both alike, and written alike."""
    args: dict[str, Any] = {}
    for kind in data.draw(st.lists(st.sampled_from(list(_VALUES)), max_size=4)):
        value = data.draw(st.one_of(st.none(), _VALUES[kind], st.sampled_from(LEGAL[kind])))
        args |= data.draw(st.sampled_from(_in_fields(kind, value)))
    expected = _expected(args)
    made = _made(args)
    assert (made is None) == (expected is None)
    if made is not None:
        assert made.SerializeToString(deterministic=True) == expected.SerializeToString(deterministic=True)
        written = write_message(made, POOL)
        assert written == json_format.MessageToDict(
            made, always_print_fields_with_no_presence=True, descriptor_pool=POOL
        )
        assert OUTPUT.conforms(written), OUTPUT.violations(written)
        if not any("nullvalue" in name.lower() for name in args):  # json_format does not read its own lists of them
            again = read_message(written, MESSAGE(), POOL)
            assert again.SerializeToString(deterministic=True) == made.SerializeToString(deterministic=True)


@pytest.mark.parametrize("depth", [50, 90, 150, 5000])
def test_deep_values_are_refused_or_can_be_sent(depth: int) -> None:
    """A server takes 100 levels, so more are refused."""
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"oneMessage": value}
    try:
        message = read_message(value, MESSAGE(), POOL)
    except (json_format.ParseError, RecursionError):
        assert depth > 100
    else:
        assert depth < 100
        assert INPUT.conforms(value)
        written: Any = write_message(message, POOL)
        assert OUTPUT.conforms(written)
        assert written["oneMessage"]["oneInt64"] == "0"


# -- what cannot be read ----------------------------------------------------------------------------------------------


def test_an_any_of_an_unknown_type_shows_its_bytes() -> None:
    """Everything else in the answer is as it would be."""
    message = MESSAGE(one_string="kept")
    message.one_any.type_url = URL + "no.Such"
    message.one_any.value = b"\x08\x07\xff"
    message.many_any.add().Pack(duration_pb2.Duration(seconds=3))
    before = message.SerializeToString(deterministic=True)
    written: Any = write_message(message, POOL)
    assert written["oneAny"] == {"@type": URL + "no.Such", "value": "CAf/"}
    assert written["manyAny"] == [{"@type": URL + "google.protobuf.Duration", "value": "3s"}]
    assert written["oneString"] == "kept"
    assert OUTPUT.conforms(written)
    assert message.SerializeToString(deterministic=True) == before


def test_an_any_is_looked_for_wherever_it_may_be() -> None:
    """Lists, maps, messages and another one are searched for it."""
    message = MESSAGE()
    inner = MESSAGE(one_int32=7)
    inner.map_any["k"].type_url = "no.Such"
    inner.map_any["k"].value = b"hi"
    message.many_message.add().one_any.Pack(inner)
    message.map_message["m"].many_any.add(type_url="x/no.Other", value=b"")
    message.map_int32["i"] = 1
    written: Any = write_message(message, POOL)
    packed = written["manyMessage"][0]["oneAny"]
    assert packed["oneInt32"] == 7
    assert packed["mapAny"] == {"k": {"@type": "no.Such", "value": "aGk="}}
    assert written["mapMessage"]["m"]["manyAny"] == [{"@type": "x/no.Other", "value": ""}]
    assert written["mapInt32"] == {"i": 1}


def test_an_any_whose_bytes_are_not_of_its_type_shows_them() -> None:
    """Every other one of that type has the same form then."""
    message = MESSAGE()
    message.many_any.add(type_url=URL + "all.Message", value=b"\xff\xff")
    message.many_any.add().Pack(MESSAGE(one_int32=7))
    message.many_any.add(value=b"hi")
    written: Any = write_message(message, POOL)
    first, second, third = written["manyAny"]
    assert first == {"@type": URL + "all.Message", "value": "//8="}
    assert second["@type"] == URL + "all.Message"
    assert second.keys() == {"@type", "value"}
    assert third == {"@type": "", "value": "aGk="}


def test_a_message_without_a_json_form_is_an_error() -> None:
    """A message that json_format cannot write for another reason is not made up."""
    message = MESSAGE()
    message.one_timestamp.seconds = 10**15
    with pytest.raises((json_format.Error, ValueError)):
        write_message(message, POOL)


# -- messages of proto2 -----------------------------------------------------------------------------------------------


def test_required_fields_and_extensions() -> None:
    """A required field is given by either name; an extension goes by its full name in brackets, both ways."""
    file = descriptor_pb2.FileDescriptorProto(name="old.proto", package="old", syntax="proto2")
    message = file.message_type.add(name="Old")
    for name in ("the_id", "name"):
        _add(message, name, "STRING", 2)
    message.extension_range.add(start=100, end=200)
    extension = file.extension.add(name="more", number=100, label=1, type=9, extendee=".old.Old")
    extension.json_name = "more"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)  # type: ignore[attr-defined]
    descriptor = pool.FindMessageTypeByName("old.Old")
    taken, given_back = (Schema.of(message_schema(descriptor, {}, output=output)) for output in (False, True))
    args = {"the_id": "a", "name": "b", "[old.more]": "c"}
    assert taken.conforms(args)
    assert taken.conforms({"theId": "a", "name": "b"})
    assert not taken.conforms({"name": "b"})
    made = read_message(args, message_factory.GetMessageClass(descriptor)(), pool)
    written: Any = write_message(made, pool)
    assert written == {"theId": "a", "name": "b", "[old.more]": "c"}
    assert given_back.conforms(written)
