"""What each provider's dialect of JSON Schema can hold, as data.

Where it comes from (read in November 2026, together with the types of the vendors' own Python packages):

| dialect | source |
| --- | --- |
| openai | developers.openai.com/api/docs/guides/function-calling; openai 3.54. Where `strict` is off, any JSON Schema \
is taken, but the root is an object without combinators, and every array has `items` (both are errors of the API). |
| openai-strict | developers.openai.com/api/docs/guides/structured-outputs, "Supported schemas" |
| anthropic | platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools; anthropic 2.12. JSON Schema 2020-12, \
but no combinators at the root, and names of properties keep to a pattern (both are errors of the API). |
| anthropic-strict | platform.claude.com/docs/en/build-with-claude/structured-outputs, "JSON Schema limitations" |
| gemini | ai.google.dev/api/caching, `Schema`; google-genai 3.4: a subset of OpenAPI 3.0, with a closed set of fields |
| gemini-json | ai.google.dev/api/generate-content, `responseJsonSchema`, for `parametersJsonSchema` |
| mcp | modelcontextprotocol.io/specification/2025-11-25/server/tools: JSON Schema 2020-12 |
| a2a | a2a-protocol.org/v1.0.0/specification: a skill has no schemas |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolexec.adapter.features import SchemaFeature
from toolexec.model.json_value import JSONDict


@dataclass(frozen=True, slots=True, kw_only=True)
class StrictRules:
    """What a schema must be so that the vendor can hold a model to it.

    `all_required`: every property is required, one that may be absent takes null in its place. `recursion`: references
    may form loops. The rest are the most properties, levels of objects, values of enums, and characters of names and
    values; 0 means unlimited.
    """

    all_required: bool
    recursion: bool
    max_properties: int = 0
    max_levels: int = 0
    max_values: int = 0
    max_characters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """A provider's dialect of JSON Schema.

    `features` are the keywords that it has. `formats` are the values that `format` may have for each type (None: any).
    `enum_types` are the types of values that an `enum` may have (None: any). `max_min_items` is the largest `minItems`.
    The flags: whether a type may be a list, a schema a boolean, a reference stand beside other keywords, unknown
    keywords stay, the root have combinators; whether every array needs items, every schema a type, every name in
    `required` a property, and the root its properties. `names` is what names of properties must match.
    """

    name: str
    features: frozenset[SchemaFeature]
    formats: Mapping[str, frozenset[str]] | None = None
    enum_types: frozenset[str] | None = None
    max_min_items: int | None = None
    names: re.Pattern[str] | None = None
    type_lists: bool = True
    boolean_schemas: bool = True
    ref_siblings: bool = True
    unknown_keywords: bool = True
    root_combinators: bool = True
    needs_items: bool = False
    needs_type: bool = False
    needs_declared: bool = False
    needs_root_properties: bool = False
    strict: StrictRules | None = None


F = SchemaFeature
_ALL: Final = frozenset(SchemaFeature)
_STRING_FORMATS: Final = {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}
_LENGTHS: Final = {F.MIN_LENGTH, F.MAX_LENGTH, F.MIN_ITEMS, F.MAX_ITEMS, F.MIN_PROPERTIES, F.MAX_PROPERTIES}
_STRICT: Final[JSONDict] = {
    "boolean_schemas": False,
    "ref_siblings": False,
    "unknown_keywords": False,
    "root_combinators": False,
    "needs_items": True,
    "needs_declared": True,
    "needs_root_properties": True,
}

_OPENAI: Final = Dialect(
    name="openai", features=_ALL, root_combinators=False, needs_items=True, needs_root_properties=True
)
_OPENAI_STRICT: Final = Dialect(
    name="openai-strict",
    features=frozenset(
        {F.REF, F.DEFS, F.ANY_OF, F.PATTERN, F.FORMAT, F.ADDITIONAL_PROPERTIES, F.MINIMUM, F.MAXIMUM, F.MULTIPLE_OF}
        | {F.EXCLUSIVE_MINIMUM, F.EXCLUSIVE_MAXIMUM, F.ENUM, F.CONST, F.TITLE, F.MIN_ITEMS, F.MAX_ITEMS}
    ),
    formats={"string": frozenset(_STRING_FORMATS)},
    strict=StrictRules(
        all_required=True,
        recursion=True,
        max_properties=5_000,
        max_levels=10,
        max_values=1_000,
        max_characters=120_000,
    ),
    **_STRICT,
)
_ANTHROPIC: Final = Dialect(
    name="anthropic",
    features=_ALL,
    names=re.compile(r"[a-zA-Z0-9_.-]{1,64}", re.ASCII),
    root_combinators=False,
)
_ANTHROPIC_STRICT: Final = Dialect(
    name="anthropic-strict",
    features=frozenset(
        {F.REF, F.DEFS, F.ANY_OF, F.PATTERN, F.FORMAT, F.ADDITIONAL_PROPERTIES, F.ENUM, F.CONST, F.DEFAULT, F.TITLE}
        | {F.MIN_ITEMS}
    ),
    formats={"string": frozenset({*_STRING_FORMATS, "uri"})},
    enum_types=frozenset({"string", "integer", "number", "boolean", "null"}),
    max_min_items=1,
    names=_ANTHROPIC.names,
    strict=StrictRules(all_required=False, recursion=False),
    **_STRICT,
)
_GEMINI: Final = Dialect(
    name="gemini",
    features=frozenset(
        {F.ANY_OF, F.PATTERN, F.FORMAT, F.MINIMUM, F.MAXIMUM, F.ENUM, F.DEFAULT, F.TITLE, F.NULLABLE, *_LENGTHS}
    ),
    formats={
        "string": frozenset({"date-time", "enum"}),
        "integer": frozenset({"int32", "int64", "enum"}),
        "number": frozenset({"float", "double"}),
    },
    enum_types=frozenset({"string"}),
    names=re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}", re.ASCII),
    type_lists=False,
    boolean_schemas=False,
    ref_siblings=False,
    unknown_keywords=False,
    root_combinators=False,
    needs_items=True,
    needs_type=True,
    needs_declared=True,
)
_GEMINI_JSON: Final = Dialect(
    name="gemini-json",
    features=frozenset(
        {F.ID, F.DEFS, F.REF, F.ANCHOR, F.FORMAT, F.TITLE, F.ENUM, F.PREFIX_ITEMS, F.MIN_ITEMS, F.MAX_ITEMS}
        | {F.MINIMUM, F.MAXIMUM, F.ANY_OF, F.ONE_OF, F.ADDITIONAL_PROPERTIES}
    ),
    enum_types=frozenset({"string", "integer", "number"}),
    boolean_schemas=False,
    ref_siblings=False,
    unknown_keywords=False,
    root_combinators=False,
    needs_declared=True,
)

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        _OPENAI,
        _OPENAI_STRICT,
        _ANTHROPIC,
        _ANTHROPIC_STRICT,
        _GEMINI,
        _GEMINI_JSON,
        Dialect(name="mcp", features=_ALL),
        Dialect(name="a2a", features=frozenset()),
    )
}
"""Every dialect by its name."""
