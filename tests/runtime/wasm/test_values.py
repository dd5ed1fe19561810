"""Component values: what goes to wasmtime and comes back is the same."""

from __future__ import annotations

from typing import Any

import pytest
from wasmtime import Engine
from wasmtime.component import Component, ComponentInstanceType, FuncType, ValType

from toolexec.runtime.wasm import ffi
from toolexec.runtime.wasm.refused import RefusedError
from toolexec.runtime.wasm.values import lifter, lowerer

TYPES = {
    "bool": "bool",
    "u8": "u8",
    "u16": "u16",
    "u32": "u32",
    "u64": "u64",
    "string": "string",
    "bytes": "(list u8)",
    "numbers": "(list u32)",
    "pair": "(tuple string u64)",
    "option": "(option (tuple string (list u8)))",
    "record": '(record (field "seconds" u64) (field "name" string))',
    "choice": '(variant (case "none") (case "text" string) (case "both" (tuple u8 u8)))',
    "mode": '(enum "read" "write")',
    "flags": '(flags "create" "truncate" "exclusive")',
    "result": '(result u64 (error (enum "no-entry" "exist")))',
    "bare-result": "(result)",
    "s8": "s8",
    "stringent": "char",
}


@pytest.fixture(scope="module")
def types() -> dict[str, ValType]:
    """The types above, as a component declares them."""
    named = {"record", "choice", "mode", "flags", "result"}
    lines: list[str] = []
    for name, text in TYPES.items():
        if name == "result":  # the enum inside needs a name of its own
            lines.append('(type $codes (enum "no-entry" "exist")) (export "codes" (type $c (eq $codes)))')
            text = "(result u64 (error $c))"
        if name in named - {"result"}:
            lines.append(f'(type ${name}0 {text}) (export "{name}-type" (type ${name}1 (eq ${name}0)))')
            text = f"${name}1"
        lines.append(f'(export "{name}" (func (param "value" {text})))')
    source = f'(component (import "host" (instance {" ".join(lines)})))'
    engine = Engine()
    host = Component(engine, source).type.imports(engine)["host"].ty
    assert isinstance(host, ComponentInstanceType)
    functions = {name: extern.ty for name, extern in host.exports(engine).items()}
    return {name: kind.params[0][1] for name, kind in functions.items() if isinstance(kind, FuncType)}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bool", True),
        ("bool", False),
        ("u8", 255),
        ("u16", 65535),
        ("u32", 2**32 - 1),
        ("u64", 2**64 - 1),
        ("string", ""),
        ("string", "naïve \0 \N{SNOWMAN}"),
        ("bytes", b""),
        ("bytes", bytes(range(256)) * 300),
        ("numbers", []),
        ("numbers", [1, 2, 3]),
        ("pair", ("a", 1)),
        ("option", None),
        ("option", ("a", b"b")),
        ("record", (7, "seven")),
        ("choice", ("none", None)),
        ("choice", ("text", "t")),
        ("choice", ("both", (1, 2))),
        ("mode", "write"),
        ("flags", frozenset[str]()),
        ("flags", frozenset({"create", "exclusive"})),
    ],
)
def test_a_value_survives_the_way_there_and_back(types: dict[str, ValType], name: str, value: Any) -> None:
    """The image that wasmtime would get reads as the value that was put in."""
    image = lowerer(types[name])(0, value)
    assert len(image) == ffi.VALUE_BYTES
    assert lifter(types[name])(0, image, 0) == value
    ffi.delete_value(image)


@pytest.mark.parametrize(
    ("name", "value", "succeeded"),
    [("result", 5, True), ("result", RefusedError("exist"), False), ("bare-result", None, True)],
)
def test_a_result_is_a_value_or_a_refusal(types: dict[str, ValType], name: str, value: Any, succeeded: bool) -> None:
    """Read back, it tells whether it was a success."""
    image = lowerer(types[name])(0, value)
    assert lifter(types[name])(0, image, 0) is succeeded
    ffi.delete_value(image)


@pytest.mark.parametrize("name", ["s8", "stringent"])
def test_a_type_that_wasi_does_not_use_is_refused(types: dict[str, ValType], name: str) -> None:
    """Nothing is guessed about it."""
    with pytest.raises(TypeError, match="no conversion from"):
        lifter(types[name])
    with pytest.raises(TypeError, match="no conversion to"):
        lowerer(types[name])
