"""Arguments in paths: the same hostile values through every provider that sends requests, to a server that opens files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from tests.openapi import api

from toolexec import Exec
from toolexec.errors import InputValidationError

HOSTILE = [
    *("..", ".", "../secret.txt", "a/../../secret.txt", "..\\secret.txt", "a\\..", "./a", "a/.", "a/./b"),
    *("%2e%2e", "%2e%2e/secret.txt", "..%2fsecret.txt", "%252e%252e%252fsecret.txt", "%5c..%5cx", ".%2e/x"),
    *("/etc/passwd", "\\x", "%2fetc%2fpasswd", "//host/x", "..;/secret.txt", "..;a=b/x", ".. /x", " .."),
    *("", "\0", "a\0b", "../secret.txt\0.html", "%00"),
]
"""Values that some server takes for another path than that of the endpoint."""
LITERAL = {
    "plain.txt": "plain.txt",
    "group/project": "group%2Fproject",
    "https://example.com/": "https%3A%2F%2Fexample.com%2F",
    "...": "...",
    "a..b": "a..b",
    ".hidden": ".hidden",
    "100%": "100%25",
    "a?b=c#d": "a%3Fb%3Dc%23d",
    "a;b": "a%3Bb",
    "a\r\nX-Admin: 1": "a%0D%0AX-Admin%3A%201",
    "é": "%C3%A9",
}
"""Values that are one segment for every server, as they are sent."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """Serve files as careless servers do: by the path decoded twice. Yield the URL, and the list of targets seen."""
    root = tmp_path_factory.mktemp("served")
    (root / "files").mkdir()
    (root / "files" / "plain.txt").write_text("public")
    (root / "secret.txt").write_text("top secret")
    seen: list[str] = []

    class Careless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            name = unquote(unquote(self.path)).replace("\\", "/").removeprefix("/files/").replace("\0", "")
            path = Path(root, "files", name)
            body = path.read_bytes() if path.is_file() else b"nothing"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def _added(ex: Exec, kind: str, url: str) -> None:
    """Add the tool `files:read` with the argument `name`."""
    if kind == "http":
        await ex.add_http("files", url, tools={"read": {"path": "/files/{name}"}})
        return
    node = {"operationId": "read", "parameters": [{"name": "name", "in": "path", "required": True, "schema": {}}]}
    await ex.add_openapi("files", api({"/files/{name}": {"get": node}}), base_url=url)


@pytest.mark.parametrize("kind", ["http", "openapi"])
async def test_an_argument_stays_in_its_segment(files: tuple[str, list[str]], kind: str) -> None:
    """Paths that lead elsewhere are refused before anything is sent; others arrive as one segment."""
    url, seen = files
    async with Exec() as ex:
        await _added(ex, kind, url)
        seen.clear()
        taken = {value: await _refusal(ex, value) for value in HOSTILE}
        assert {value for value, refused in taken.items() if not refused} == set()
        assert seen == []
        for value, written in LITERAL.items():
            answered = (await ex.run_tool("files:read", {"name": value})).value
            assert answered == ("public" if value == "plain.txt" else "nothing")
            assert seen.pop() == f"/files/{written}"


async def _refusal(ex: Exec, value: str) -> str:
    """Return why the call with *value* was not made; empty for one that was."""
    try:
        (await ex.run_tool("files:read", {"name": value})).raise_for_error()
    except InputValidationError as error:
        return error.message if "/name: " in error.message else ""
    return ""


@pytest.mark.parametrize("kind", ["http", "openapi"])
async def test_arguments_make_no_dots_together(files: tuple[str, list[str]], kind: str) -> None:
    """A segment is judged as a whole, with the text around its placeholders."""
    url, seen = files
    path = "/files/{a}{b}/.{c}"
    async with Exec() as ex:
        if kind == "http":
            await ex.add_http("files", url, tools={"read": {"path": path}})
        else:
            await ex.add_openapi("files", api({path: {"get": {"operationId": "read"}}}), base_url=url)
        seen.clear()
        for args in ({"a": ".", "b": ".", "c": "x"}, {"a": "x", "b": "y", "c": "."}, {"a": "x", "b": "/..", "c": "x"}):
            with pytest.raises(InputValidationError):
                (await ex.run_tool("files:read", args)).raise_for_error()
        assert seen == []
        assert (await ex.run_tool("files:read", {"a": "x.", "b": ".y", "c": "z"})).ok
        assert seen.pop() == "/files/x..y/.z"
