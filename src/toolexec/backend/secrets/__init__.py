"""Secrets of backends: where they are kept, how a configuration refers to them, and how they stay out of replies."""

from toolexec.backend.secrets.providers import SecretProvider
from toolexec.backend.secrets.resolver import FILL_IN, Expanded, SecretResolver, has_reference, references_in
from toolexec.backend.secrets.scrub import Scrubber

__all__ = ["FILL_IN", "Expanded", "Scrubber", "SecretProvider", "SecretResolver", "has_reference", "references_in"]
