"""What the methods of `Exec` that add providers take by keyword; for type checkers."""

from __future__ import annotations

from toolexec.backend.providers.http import HTTPSettings
from toolexec.backend.providers.kinds import ProviderSettings

__all__ = ["AddedHTTP"]


class AddedHTTP(HTTPSettings, ProviderSettings, total=False):
    """What `Exec.add_http` takes beside the name and the base URL."""
