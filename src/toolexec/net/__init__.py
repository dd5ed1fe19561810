"""The network: which hosts and addresses may be reached, and requests over HTTP that keep to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.net.http import HTTPClient, HTTPRequest, HTTPResponse
else:
    __getattr__, __dir__ = lazy_names(__name__, {"toolexec.net.http": ("HTTPClient", "HTTPRequest", "HTTPResponse")})

__all__ = ["HTTPClient", "HTTPRequest", "HTTPResponse"]
