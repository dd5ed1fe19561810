"""`toolexec login` and `toolexec logout`: a person's login to a remote server."""

from __future__ import annotations

import asyncio
import webbrowser
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from toolexec.cli.exit_codes import OK
from toolexec.cli.options import AsJson, Config, perform_command
from toolexec.errors import ConfigurationError

if TYPE_CHECKING:
    from toolexec.backend.base import LoginBackend
    from toolexec.cli.session import Session
    from toolexec.cli.terminal import Screen
    from toolexec.net.oauth.session import LoginStatus

Caller = Annotated[
    str,
    typer.Option(
        "--caller",
        metavar="ID",
        help='Caller that logs in, where the settings have `per = "caller"`; TENANT/ID within a tenant.',
        show_default=False,
    ),
]

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The server or provider, as the settings name it.", show_default=False)
]


def login(
    context: typer.Context,
    name: Name,
    device: Annotated[bool, typer.Option("--device", help="Log in on another device, with a code.")] = False,
    browser: Annotated[bool, typer.Option("--browser", help="Open the link in a browser, too.")] = False,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="Ask for this scope, too; repeat for several.")
    ] = None,
    caller: Caller = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Log in to a remote server.

    Prints a link to open in a browser on this machine, and waits up to five minutes. The login is kept in the
    system's keyring (extra keyring), else in a file that only you can read. That of one caller is kept in an encrypted
    file; its key is in the keyring, or in TOOLEXEC_LOGIN_KEY.
    """
    perform_command(
        context,
        lambda session: _log_in(session, name, scope or [], device=device, browser=browser, caller=caller),
        config,
        as_json,
    )


def logout(
    context: typer.Context, name: Name, caller: Caller = "", config: Config = None, as_json: AsJson = False
) -> None:
    """Log out of a remote server, and revoke the login if the server supports it."""
    perform_command(context, lambda session: _log_out(session, name, caller), config, as_json)


async def _log_in(session: Session, name: str, scopes: list[str], *, device: bool, browser: bool, caller: str) -> int:
    screen = session.screen
    show = partial(_show, screen, browser=browser)
    status = await _backend(session, name).log_in(show, device=device, scopes=scopes, caller=caller)
    whose: dict[str, object] = {"caller": caller} if caller else {}
    if screen.as_json:
        screen.document({"login": {"server": name, **whose, **_data(status)}})
        return OK
    words = ", ".join(status.scopes) or "none named"
    until = _moment(status.until) if status.until is not None else "an unknown time"
    renewed = ", renewed by itself" if status.renews else ""
    screen.note(f"logged in to {name}{_for(caller)} until {until}{renewed}; scopes: {words}")
    return OK


async def _show(screen: Screen, link: str, code: str, *, browser: bool) -> None:
    """Print where to log in on stderr, so that it is seen beside JSON, too."""
    from toolexec.model.visible import visible_line

    opened = browser and await asyncio.to_thread(webbrowser.open, link)
    words = "a browser has been opened at" if opened else "open this link to log in:"
    screen.err.print(words, style="bold")
    screen.err.print(visible_line(link, len(link)), soft_wrap=True, markup=False, highlight=False)
    if code:
        screen.err.print(f"and type in this code: {visible_line(code)}", markup=False, highlight=False)


def _for(caller: str) -> str:
    from toolexec.model.visible import visible_line

    return f" for caller {visible_line(caller)}" if caller else ""


async def _log_out(session: Session, name: str, caller: str) -> int:
    found = await _backend(session, name).log_out(caller=caller)
    if session.screen.as_json:
        session.screen.document({"logged_out": found})
    else:
        whose = f"{name}{_for(caller)}"
        session.screen.note(f"logged out of {whose}" if found else f"there was no login to {whose}")
    return OK


def _backend(session: Session, name: str) -> LoginBackend:
    """Return the backend of this name; raises ConfigurationError for another, and for one that takes no login."""
    from toolexec.backend.base import LoginBackend
    from toolexec.errors.hints import did_you_mean

    known = [each for each in session.ex.backends.list() if isinstance(each, LoginBackend)]
    found = next((each for each in known if each.name == name), None)
    if found is None:
        names = [each.name for each in known]
        hint = did_you_mean(name, names) if names else "no server of the settings can be logged in to"
        raise ConfigurationError(f"there is no server {name} to log in to; {hint}")
    return found


def _data(status: LoginStatus) -> dict[str, object]:
    until = _moment(status.until) if status.until is not None else None
    return {"issuer": status.issuer, "scopes": list(status.scopes), "until": until, "renews": status.renews}


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
