"""Ask a server on this machine whether it lives: `python probe.py http://127.0.0.1:8080/healthz`; exits with 0 or 1.

Any answer below 500 counts. Among them is 421, of a server that does not know the address by which it is asked here.
"""

from __future__ import annotations

import http.client
import ssl
import sys
from urllib.parse import urlsplit

_SECONDS = 5.0


def lives(url: str) -> bool:
    """Return whether the server answers; by HTTPS where it does not answer otherwise, with any certificate."""
    parts = urlsplit(url)
    anything = ssl.create_default_context()
    anything.check_hostname, anything.verify_mode = False, ssl.CERT_NONE
    address = (parts.hostname or "127.0.0.1", parts.port or 80)
    for connection in (
        http.client.HTTPConnection(*address, timeout=_SECONDS / 2),
        http.client.HTTPSConnection(*address, timeout=_SECONDS / 2, context=anything),
    ):
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status < 500
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
    return False


if __name__ == "__main__":
    sys.exit(not lives(sys.argv[1]))
