"""Secrets of backends: where they are kept, how a configuration refers to them, and how they stay out of replies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.secrets.providers import SecretProvider
    from toolexec.backend.secrets.resolver import FILL_IN, Expanded, SecretResolver, has_reference, references_in
    from toolexec.backend.secrets.scrub import Scrubber
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.backend.secrets.providers": ("SecretProvider",),
            "toolexec.backend.secrets.resolver": (
                "FILL_IN",
                "Expanded",
                "SecretResolver",
                "has_reference",
                "references_in",
            ),
            "toolexec.backend.secrets.scrub": ("Scrubber",),
        },
    )

__all__ = ["FILL_IN", "Expanded", "Scrubber", "SecretProvider", "SecretResolver", "has_reference", "references_in"]
