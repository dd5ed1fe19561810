"""The command `tool` of a bash program: hands its arguments to the broker and shows what comes back."""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, socket  # socket and json take longer to import than all else that a call takes
from typing import Any


def main() -> int:
    """Make the call; gives the exit code."""
    stdin = sys.stdin.read() if "-" in sys.argv[1:] else ""
    quote, read = _codec()
    request = '{"argv":[' + ",".join(map(quote, sys.argv[1:])) + '],"stdin":' + quote(stdin) + "}\n"
    connection = socket(AF_UNIX)
    try:
        connection.connect(short_path(os.environ["TOOLEXEC_SOCKET"]))
        connection.sendall(request.encode())
        answer = b""
        while not answer.endswith(b"\n"):
            part = connection.recv(1 << 20)
            if not part:
                break
            answer += part
    except (KeyError, OSError):
        sys.stderr.write("tool: there is no way to the host from here\n")
        return 2
    finally:
        connection.close()
    if not answer:
        sys.stderr.write("tool: the host is gone\n")
        return 2
    said = read(answer.decode())
    sys.stdout.write(said["stdout"])
    sys.stderr.write(said["stderr"])
    return said["exit"]


def short_path(path: str) -> str:
    """Return a name of the socket at *path* that fits into an address, which holds 107 bytes at most.

    A long one leads through an open descriptor of its directory, which the caller may close after use.
    """
    if len(os.fsencode(path)) <= 100:
        return path
    directory, _, name = path.rpartition("/")
    return f"/proc/self/fd/{os.open(directory, os.O_PATH | os.O_DIRECTORY)}/{name}"


def _codec() -> Any:
    """What makes JSON of a text, and what reads JSON."""
    try:
        from _json import encode_basestring_ascii, make_scanner
    except ImportError:
        import json

        return json.dumps, json.loads
    settings: Any = _Settings()
    scan = make_scanner(settings)
    return encode_basestring_ascii, lambda text: scan(text, 0)[0]


class _Settings:
    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


if __name__ == "__main__":
    sys.exit(main())
