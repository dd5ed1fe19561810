"""Tools of an HTTP API that an OpenAPI document describes."""

from __future__ import annotations

from toolexec.backend.providers.openapi.settings import OpenAPIProvider, OpenAPISettings
from toolexec.backend.providers.openapi.source import OpenAPISource, openapi_source

__all__ = ["OpenAPIProvider", "OpenAPISettings", "OpenAPISource", "openapi_source"]
