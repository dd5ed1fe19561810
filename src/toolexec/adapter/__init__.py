"""Tools in the forms of vendors and protocols: OpenAI, Anthropic, Gemini, MCP, A2A, to and from each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.adapter.a2a import A2AAdapter, card_to_provider, provider_to_card
    from toolexec.adapter.anthropic import AnthropicAdapter
    from toolexec.adapter.base import META_KEY, Adapter, Converted, FormOptions
    from toolexec.adapter.dialects import DIALECTS, Dialect, StrictRules
    from toolexec.adapter.features import SchemaFeature, used_features
    from toolexec.adapter.fit import Fitted, fit_schema
    from toolexec.adapter.gemini import GeminiAdapter
    from toolexec.adapter.losses import LossAction, Losses, LossWarning
    from toolexec.adapter.mcp import MCPAdapter
    from toolexec.adapter.names import NameMap, vendor_name
    from toolexec.adapter.openai import OpenAIAdapter
    from toolexec.adapter.provider_card import ProviderCard, ProviderInterface
    from toolexec.adapter.registry import AdapterRegistry, default_adapters
    from toolexec.adapter.strict import fit_strict, without_nulls
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.adapter.a2a": ("A2AAdapter", "card_to_provider", "provider_to_card"),
            "toolexec.adapter.anthropic": ("AnthropicAdapter",),
            "toolexec.adapter.base": ("META_KEY", "Adapter", "Converted", "FormOptions"),
            "toolexec.adapter.dialects": ("DIALECTS", "Dialect", "StrictRules"),
            "toolexec.adapter.features": ("SchemaFeature", "used_features"),
            "toolexec.adapter.fit": ("Fitted", "fit_schema"),
            "toolexec.adapter.gemini": ("GeminiAdapter",),
            "toolexec.adapter.losses": ("LossAction", "Losses", "LossWarning"),
            "toolexec.adapter.mcp": ("MCPAdapter",),
            "toolexec.adapter.names": ("NameMap", "vendor_name"),
            "toolexec.adapter.openai": ("OpenAIAdapter",),
            "toolexec.adapter.provider_card": ("ProviderCard", "ProviderInterface"),
            "toolexec.adapter.registry": ("AdapterRegistry", "default_adapters"),
            "toolexec.adapter.strict": ("fit_strict", "without_nulls"),
        },
    )

__all__ = [
    "DIALECTS",
    "META_KEY",
    "A2AAdapter",
    "Adapter",
    "AdapterRegistry",
    "AnthropicAdapter",
    "Converted",
    "Dialect",
    "Fitted",
    "FormOptions",
    "GeminiAdapter",
    "LossAction",
    "LossWarning",
    "Losses",
    "MCPAdapter",
    "NameMap",
    "OpenAIAdapter",
    "ProviderCard",
    "ProviderInterface",
    "SchemaFeature",
    "StrictRules",
    "card_to_provider",
    "default_adapters",
    "fit_schema",
    "fit_strict",
    "provider_to_card",
    "used_features",
    "vendor_name",
    "without_nulls",
]
