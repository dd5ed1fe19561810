"""What the methods of `Exec` that add providers take by keyword; for type checkers."""

from __future__ import annotations

from toolexec.backend.providers.command.config import CommandSettings
from toolexec.backend.providers.http.config import HTTPSettings
from toolexec.backend.providers.kinds import ProviderSettings
from toolexec.backend.providers.openapi.settings import OpenAPISettings
from toolexec.backend.providers.python.source import PythonSettings


class AddedCommands(CommandSettings, ProviderSettings, total=False):
    """What `Exec.add_commands` takes beside the name."""


class AddedHTTP(HTTPSettings, ProviderSettings, total=False):
    """What `Exec.add_http` takes beside the name and the base URL."""


class AddedOpenAPI(OpenAPISettings, ProviderSettings, total=False):
    """What `Exec.add_openapi` takes beside the name and the document."""


class AddedPython(PythonSettings, ProviderSettings, total=False):
    """What `Exec.add_python` takes beside the name and the target."""
