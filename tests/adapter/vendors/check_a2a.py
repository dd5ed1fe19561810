"""Run in the environment of `environment.py`: a2a-sdk takes what is written, and what it gives is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from a2a import types
from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as old_types
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf import json_format

sys.path.insert(0, str(Path(__file__).parent))
from tools import OLD_CARDS, PROVIDERS, TOOLS  # pyright: ignore[reportMissingImports]

from toolexec.adapter import A2AAdapter, ProviderCard, card_to_provider, provider_to_card
from toolexec.model import Tool


def _valid(written: dict[str, Any], kind: Any) -> Any:
    """The message of the package for what was written; it knows every field, and has all that are required."""
    message = json_format.ParseDict(written, kind())
    validate_proto_required_fields(message)
    return message


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_skills(tool: Tool) -> None:
    """Every tool is a skill that has all that is required."""
    message = _valid(A2AAdapter().from_tool(tool).form, types.AgentSkill)
    assert A2AAdapter().to_tool(message).id == tool.id


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_cards(provider: ProviderCard) -> None:
    """Every provider is a card, and reads the same from the package's message."""
    written, _ = provider_to_card(provider)
    assert card_to_provider(_valid(written, types.AgentCard)) == card_to_provider(written)


@pytest.mark.parametrize("name", OLD_CARDS)
def test_older_cards(name: str) -> None:
    """A card of 0.3 becomes the card of 1.0 that the package itself makes of it."""
    old = OLD_CARDS[name]
    expected = conversions.to_core_agent_card(old_types.AgentCard.model_validate(old))
    validate_proto_required_fields(expected)
    written, _ = provider_to_card(card_to_provider(old))
    message = _valid(written, types.AgentCard)
    del expected.signatures[:]  # they are those of the older card
    assert json_format.MessageToDict(message) == json_format.MessageToDict(expected)
