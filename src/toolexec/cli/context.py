"""`toolexec context`: what the conversations of a running server have cost their models, in tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import typer

from toolexec.cli.exit_codes import OK
from toolexec.cli.options import AsJson, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from toolexec.cli.session import Session
    from toolexec.model.json_value import JSONDict

_MAX_SHOWN_ERROR: Final = 300

URL = Annotated[
    str, typer.Argument(metavar="URL", help="The address of the server, as toolexec serve --transport http prints it.")
]
Number = Annotated[int, typer.Option("--number", "-n", min=1, help="Conversations to show.")]
KeyFile = Annotated[
    Path | None,
    typer.Option("--key-file", metavar="FILE", help="A file with the API key of an operator.", show_default=False),
]
CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file", metavar="FILE", help="Certificates, PEM, to trust beside the system's.", show_default=False
    ),
]


def context(
    context: typer.Context,
    url: URL = "http://127.0.0.1:8080",
    number: Number = 20,
    key_file: KeyFile = None,
    ca_file: CaFile = None,
    as_json: AsJson = False,
) -> None:
    """Show the token cost of conversations with a running server, by cause, the most expensive first.

    The server says it at /context, to callers with one of http.operator_roles. docs/context.md says how tokens are
    counted, and how to limit them.
    """
    from toolexec.exec import Exec

    async def command(session: Session) -> int:
        return await show(session, url, number, key_file, ca_file)

    perform_command(context, command, None, as_json, make=Exec)


async def show(session: Session, url: str, number: int, key_file: Path | None, ca_file: Path | None) -> int:
    """Show what the server at *url* says. Raises ConfigurationError for an address or a file that makes no sense, and
    when the server does not say it; BackendUnavailableError when it cannot be reached; MissingExtraError."""
    from rich.text import Text

    report = await _report(url, key_file, ca_file)
    screen = session.screen
    if screen.as_json:
        screen.document(report)
        return OK
    found = report.get("conversations") or []
    screen.show(_by_cause(report), Text())
    if found:
        screen.show(_table(found[:number]))
        if len(found) > number:
            screen.note(f"{len(found) - number} more conversations; -n shows them")
    else:
        screen.note("no conversations")
    how = "exact, of o200k" if report.get("count") == "exact" else "estimates, by characters"
    screen.show(Text(f"tokens are {how}", style="dim"))
    return OK


async def _report(url: str, key_file: Path | None, ca_file: Path | None) -> JSONDict:
    from toolexec.model.visible import visible_line
    from toolexec.net.http import HTTPClient, HTTPRequest

    headers = [("authorization", f"Bearer {_key_in(key_file)}")] if key_file is not None else []
    parts = urlsplit(url if "://" in url else f"http://{url}")
    address = urlunsplit((parts.scheme, parts.netloc, "/context", "", ""))
    client = HTTPClient(allow_private=True, max_redirects=0, ca_file=ca_file or "")
    try:
        answer = await client.send(HTTPRequest("GET", address, headers))
    finally:
        await client.aclose()
    if answer.status != 200:
        words = visible_line(answer.body.decode("utf-8", "replace"), _MAX_SHOWN_ERROR)
        hint = {
            401: "give the API key of an operator with --key-file",
            403: "the caller needs one of http.operator_roles",
            404: "is it toolexec serve --transport http, and context.count not off?",
        }.get(answer.status, "see its log")
        raise ConfigurationError(f"{address} answers {answer.status}: {words}; {hint}")
    try:
        report: Any = json.loads(answer.body)
    except ValueError:
        report = None
    if not isinstance(report, dict) or not isinstance(report.get("read"), dict):
        raise ConfigurationError(f"{address} is not a server of toolexec: its answer makes no sense")
    return cast("JSONDict", report)


def _key_in(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except OSError as error:
        raise ConfigurationError(f"--key-file: {file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigurationError(f"--key-file: {file} is not text") from None


def _by_cause(report: JSONDict) -> RenderableType:
    from toolexec.cli.tables import plain_table

    read, written = report["read"], report.get("written") or {}
    table = plain_table(("Cause", {}), ("Read", {"justify": "right"}), ("Written", {"justify": "right"}))
    for cause in dict.fromkeys([*read, *written]):
        table.add_row(_text(cause), _number(read.get(cause, 0)), _number(written.get(cause, 0)))
    table.add_row("all", _number(sum(read.values())), _number(sum(written.values())))
    return table


def _table(found: list[JSONDict]) -> RenderableType:
    from toolexec.cli.tables import plain_table

    table = plain_table(
        ("Caller", {"overflow": "fold", "max_width": 24}),
        ("Session", {"overflow": "fold"}),
        ("Client", {"overflow": "fold", "max_width": 24}),
        ("Tokens", {"justify": "right"}),
        ("Calls", {"justify": "right"}),
        ("Most for", {}),
    )
    for one in found:
        read: JSONDict = one.get("read") or {}
        written: JSONDict = one.get("written") or {}
        causes = {cause: read.get(cause, 0) + written.get(cause, 0) for cause in dict.fromkeys([*read, *written])}
        largest = sorted(causes, key=lambda cause: -causes[cause])[:3]
        table.add_row(
            _text(one.get("caller", "")),
            _text(one.get("session", "")),
            _text(one.get("client", "")),
            _number(one.get("tokens", 0)),
            _number(one.get("calls", 0)),
            _text(", ".join(f"{cause} {causes[cause]:,}" for cause in largest)),
        )
    return table


def _text(value: Any) -> Text:
    """Return a word of the server as it is, without what could steer a terminal."""
    from rich.text import Text

    from toolexec.model.visible import visible_line

    return Text(visible_line(str(value), 200))


def _number(value: Any) -> Text:
    return _text(f"{value:,}" if isinstance(value, int) else value)
