"""What Temporal can search runs by, where the settings say so: who they are for, their skill, tools and waits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from toolexec.errors import ConfigurationError
from toolexec.journal import RunRecord

CALLER: Final = SearchAttributeKey.for_keyword("ToolexecCaller")
SKILL: Final = SearchAttributeKey.for_keyword("ToolexecSkill")
TOOLS: Final = SearchAttributeKey.for_keyword_list("ToolexecTools")
WAITS: Final = SearchAttributeKey.for_keyword_list("ToolexecWaits")
_TYPES: Final = {CALLER.name: "Keyword", SKILL.name: "Keyword", TOOLS.name: "KeywordList", WAITS.name: "KeywordList"}
MAX_CHARS: Final = 255
"""How long a keyword may be that all of Temporal's stores take."""
MAX_WORDS: Final = 50


def first_attributes(record: RunRecord) -> TypedSearchAttributes:
    """Return the attributes that a run begins with."""
    metadata: Any = (record.settings.get("given") or {}).get("metadata") or {}
    skill = metadata.get("skill")
    pairs: list[SearchAttributePair[Any]] = []
    if record.caller:
        pairs.append(SearchAttributePair(CALLER, record.caller[:MAX_CHARS]))
    if skill:
        pairs.append(SearchAttributePair(SKILL, str(skill)[:MAX_CHARS]))
    return TypedSearchAttributes(pairs)


def words(values: Iterable[str]) -> list[str]:
    """Return what a list of keywords takes of *values*."""
    return [value[:MAX_CHARS] for value in values if value][:MAX_WORDS]


async def check_attributes(client: Client) -> None:
    """Raise ConfigurationError, with the commands that make them, for attributes that the namespace does not have, or
    has as another type."""
    from temporalio.api.enums.v1 import IndexedValueType
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest

    found = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    types = {name: IndexedValueType.Name(kind) for name, kind in found.custom_attributes.items()}
    missing = [
        f"temporal operator search-attribute create --namespace {client.namespace} --name {name} --type {kind}"
        for name, kind in _TYPES.items()
        if types.get(name, "").removeprefix("INDEXED_VALUE_TYPE_").replace("_", "").lower() != kind.lower()
    ]
    if missing:
        raise ConfigurationError(
            f"the namespace {client.namespace} lacks search attributes; make them, or leave search_attributes off: "
            f"{'; '.join(missing)}",
            details={"setting": "search_attributes"},
        )
