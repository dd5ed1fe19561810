"""Objects of several kinds, where a property says which."""

from __future__ import annotations

from typing import Any

import pytest
from tests.openapi import operation

from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.request import draft_of

REF = "#/components/schemas/"


def kind(**properties: Any) -> dict[str, Any]:
    """Return a schema of a pet with *properties*."""
    return {"type": "object", "required": ["kind"], "properties": {"kind": {"type": "string"}, **properties}}


def posting(schema: Any, **schemas: Any) -> Operation:
    """Return an operation with this body."""
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return operation({"requestBody": body}, method="post", components={"schemas": schemas})


def accepts(made: Operation, **args: Any) -> bool:
    """Return whether a call has these arguments."""
    return made.tool.input_schema.check().accepts(args)


CAT, DOG = kind(lives={"type": "integer"}), kind(breed={"type": "string"})
EITHER = {"oneOf": [{"$ref": f"{REF}Cat"}, {"$ref": f"{REF}Dog"}]}


@pytest.mark.parametrize(
    ("mapping", "cat", "wrong"),
    [
        (None, "Cat", "cat"),
        ({"c": f"{REF}Cat", "d": "Dog"}, "c", "Cat"),
        ({"c": "Cat"}, "c", "Cat"),
    ],
    ids=["names of the schemas", "a mapping", "a mapping of some"],
)
def test_the_property_decides_between_alternatives(mapping: Any, cat: str, wrong: str) -> None:
    """Objects that fit several schemas are no longer refused, and a name that is not known is."""
    discriminator = {"propertyName": "kind", **({"mapping": mapping} if mapping else {})}
    made = posting({**EITHER, "discriminator": discriminator}, Cat=CAT, Dog=DOG)
    assert accepts(made, body={"kind": cat, "lives": 9})
    assert accepts(made, body={"kind": cat})
    assert not accepts(made, body={"kind": wrong, "lives": 9})
    assert not accepts(made, body={"kind": cat, "lives": "many"})
    assert repr(cat) in made.tool.input_schema.text


@pytest.mark.parametrize("restriction", [{"enum": ["cat"]}, {"const": "cat"}], ids=str)
def test_what_a_schema_says_of_its_own_name_counts(restriction: Any) -> None:
    """An alternative that names its value, also in a base of a base, is not given another one."""
    named = {"allOf": [{"allOf": [{"properties": {"kind": restriction}}]}, CAT]}
    made = posting({**EITHER, "discriminator": {"propertyName": "kind"}}, Cat=named, Dog=DOG)
    assert accepts(made, body={"kind": "cat", "lives": 9})
    assert accepts(made, body={"kind": "Dog"})
    assert not accepts(made, body={"kind": "cow"})


def test_answers_may_spell_names_as_they_like() -> None:
    """An answer that fits several schemas is valid, whatever its name is."""
    schema = {**EITHER, "discriminator": {"propertyName": "kind"}}
    responses = {"200": {"description": "", "content": {"application/json": {"schema": schema}}}}
    made = operation({"responses": responses}, components={"schemas": {"Cat": CAT, "Dog": DOG}})
    assert made.tool.output_schema is not None
    assert made.tool.output_schema.check().accepts({"kind": "cat"})
    assert not made.tool.output_schema.check().accepts({"lives": 9})


@pytest.mark.parametrize("mapping", [None, {"cat": f"{REF}Cat", "dog": "Dog"}], ids=["by names", "by a mapping"])
def test_a_base_takes_what_its_kinds_have(mapping: Any) -> None:
    """The properties of all kinds are arguments; those of the base stay required."""
    discriminator = {"propertyName": "kind", **({"mapping": mapping} if mapping else {})}
    base = {**kind(name={"type": "string"}), "required": ["kind", "name"], "discriminator": discriminator}
    schemas = {
        "Pet": base,
        "Tame": {"allOf": [{"$ref": f"{REF}Pet"}, {"properties": {"home": {"type": "string"}}}]},
        "Cat": {"allOf": [{"$ref": f"{REF}Tame"}, {"required": ["lives"], "properties": {"lives": {"type": "integer"}}}]},
        "Dog": {"allOf": [{"$ref": f"{REF}Pet"}, {"properties": {"breed": {"type": "string"}}}]},
        "Other": {"type": "object", "properties": {"other": {}}},
    }  # fmt: skip
    made = posting({"$ref": f"{REF}Pet"}, **schemas)
    assert accepts(made, kind="cat", name="Tom", lives=9, home="here")
    assert accepts(made, kind="dog", name="Rex", breed="pug")
    assert not accepts(made, kind="dog", breed="pug")
    assert not accepts(made, kind="dog", name="Rex", other=1)
    assert "cat" in made.tool.input_schema.text.lower()
    request = draft_of(made, {"kind": "cat", "name": "Tom", "lives": 9}).request()
    assert request.body == b'{"kind":"cat","name":"Tom","lives":9}'
