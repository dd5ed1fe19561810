"""Secrets of backends: where they are kept, how a configuration refers to them, and how they stay out of replies."""

from toolexec.backend.secrets.providers import SecretProvider
from toolexec.backend.secrets.resolver import Expanded, SecretResolver, has_reference
from toolexec.backend.secrets.scrub import Scrubber

__all__ = ["Expanded", "Scrubber", "SecretProvider", "SecretResolver", "has_reference"]
