"""The variables by which programs find the proxy, and trust it."""

from __future__ import annotations

from typing import Final

_TRUST: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT")
_NOT_BY_PROXY: Final = "localhost,127.0.0.1,::1"


def environment(port: int, ca_path: str) -> dict[str, str]:
    """Return variables for programs in a sandbox: the proxy is at *port* of 127.0.0.1, its certificate in *ca_path*.

    Names of variables are in upper and in lower case, as programs look for either.
    """
    proxy = f"http://127.0.0.1:{port}"
    found = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "NO_PROXY": _NOT_BY_PROXY}
    lower = {name.lower(): value for name, value in found.items()}
    return {**found, **lower, **dict.fromkeys(_TRUST, ca_path), "NODE_USE_ENV_PROXY": "1"}
