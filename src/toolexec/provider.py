"""What a kind of provider is written with: what it gives, how it makes calls, and how its settings are checked.

A kind is a function that makes a `Source` (a `MakeSource`), which a distribution offers under the entry point group
`toolexec.backends`. `SourceBackend` does the rest. `toolexec.testing` has `check_backend` and `check_outcomes`, which
put it through the same checks as those of toolexec. See docs/extending.md, which has an example.

>>> from toolexec.provider import clean_segment, did_you_mean
>>> clean_segment("Get user/by id"), did_you_mean("taget", ["target", "timeout"])
('Get-user-by-id', 'did you mean target?')
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.failures import is_cancelled
    from toolexec.backend.providers.backend import SourceBackend
    from toolexec.backend.providers.kinds import MakeSource, ProviderSettings, provider_backend, source_of
    from toolexec.backend.providers.source import Definition, MakeCall, MakeStream, ProvidedTool, Source, key_of
    from toolexec.backend.secrets import Scrubber, SecretResolver
    from toolexec.errors.hints import did_you_mean
    from toolexec.model.call import ToolCall
    from toolexec.model.ids import check_segment, clean_segment
    from toolexec.model.json_value import JSONDict, JSONObject, JSONValue
    from toolexec.model.settings import check_settings, checked
else:
    _HOMES = {
        "toolexec.backend.failures": ("is_cancelled",),
        "toolexec.backend.providers.backend": ("SourceBackend",),
        "toolexec.backend.providers.kinds": ("MakeSource", "ProviderSettings", "provider_backend", "source_of"),
        "toolexec.backend.providers.source": (
            "Definition",
            "MakeCall",
            "MakeStream",
            "ProvidedTool",
            "Source",
            "key_of",
        ),
        "toolexec.backend.secrets": ("Scrubber", "SecretResolver"),
        "toolexec.errors.hints": ("did_you_mean",),
        "toolexec.model.call": ("ToolCall",),
        "toolexec.model.ids": ("check_segment", "clean_segment"),
        "toolexec.model.json_value": ("JSONDict", "JSONObject", "JSONValue"),
        "toolexec.model.settings": ("check_settings", "checked"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "Definition",
    "JSONDict",
    "JSONObject",
    "JSONValue",
    "MakeCall",
    "MakeSource",
    "MakeStream",
    "ProvidedTool",
    "ProviderSettings",
    "Scrubber",
    "SecretResolver",
    "Source",
    "SourceBackend",
    "ToolCall",
    "check_segment",
    "check_settings",
    "checked",
    "clean_segment",
    "did_you_mean",
    "is_cancelled",
    "key_of",
    "provider_backend",
    "source_of",
]
