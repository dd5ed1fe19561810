"""`toolexec keys`: make keys for those who may use a server."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from toolexec.cli.exit_codes import USAGE
from toolexec.cli.options import AsJson
from toolexec.cli.terminal import Screen
from toolexec.errors import ConfigurationError
from toolexec.model.visible import visible

if TYPE_CHECKING:
    from toolexec.model.json_value import JSONDict
    from toolexec.server.auth.settings import ApiKey

keys: typer.Typer = typer.Typer(help="Make API keys for `toolexec serve`.", no_args_is_help=True)


@keys.callback()
def group() -> None:
    """Make API keys for `toolexec serve`."""


@keys.command("new")
def new(
    context: typer.Context,
    caller: Annotated[str, typer.Argument(metavar="ID", help="Who the key is for, as policies name them.")],
    role: Annotated[
        list[str] | None, typer.Option("--role", help="A role that the caller has. May be repeated.")
    ] = None,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="A scope that the caller has. May be repeated.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant of the caller.")] = "",
    expires: Annotated[
        str, typer.Option("--expires", metavar="DATE", help="When the key ends, such as 2099-01-31. Default: never.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a random API key.

    The key is printed once, on stdout, and stored nowhere. What belongs in the configuration is printed on
    stderr, with the key's SHA-256 in place of the key.
    """
    from toolexec.server.auth.credentials import hash_key, new_key
    from toolexec.server.auth.settings import ApiKey

    screen = Screen(sys.stdout, as_json=as_json or (isinstance(context.obj, tuple) and bool(context.obj[1])))
    key = new_key()
    try:
        entry = ApiKey(
            id=caller,
            sha256=hash_key(key),
            roles=tuple(role or ()),
            scopes=tuple(scope or ()),
            tenant=tenant,
            expires=expires,
        )
        _refuse_past(entry)
    except ConfigurationError as error:
        screen.error(error)
        raise typer.Exit(USAGE) from None
    settings = _settings(entry)
    if screen.as_json:
        screen.document({"key": key, "settings": settings})
        return
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items()]
    screen.err.print(Text(visible("\n".join(["[[auth.api_keys]]", *lines]))), soft_wrap=True)
    screen.exact(key)


def _refuse_past(entry: ApiKey) -> None:
    """Raise ConfigurationError for a key that no server would take at any time."""
    now = time.time()
    if entry.expires_at() <= now:
        later = datetime.fromtimestamp(now, UTC).date() + timedelta(days=90)
        raise ConfigurationError(
            f"--expires {entry.expires} has passed already (UTC), so the key would never work; give a later date, such "
            f"as {later}, or leave it out for a key that never ends"
        )


def _settings(entry: ApiKey) -> JSONDict:
    """Return the entry as the configuration has it, without what is not set."""
    values = {
        "id": entry.id,
        "sha256": entry.sha256,
        "roles": [*entry.roles],
        "scopes": [*entry.scopes],
        "tenant": entry.tenant,
        "expires": entry.expires,
    }
    return {name: value for name, value in values.items() if value}
