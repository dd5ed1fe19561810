"""Single endpoints of HTTP services as tools, from a small specification."""

from __future__ import annotations

from toolexec.backend.providers.http.config import HTTPProvider, HTTPSettings, HTTPTool, HTTPToolSettings
from toolexec.backend.providers.http.source import HTTPSource, http_source

__all__ = ["HTTPProvider", "HTTPSettings", "HTTPSource", "HTTPTool", "HTTPToolSettings", "http_source"]
