"""What can be wrong with settings that are fine one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from toolexec.config import parts
from toolexec.config.blocks import KEYS
from toolexec.config.mistakes import Mistakes
from toolexec.config.sandboxes import egress_secret
from toolexec.errors import ConfigurationError, ToolExecError

if TYPE_CHECKING:
    from toolexec.config.load import Loaded

__all__ = ["check_parts"]


def check_parts(loaded: Loaded, mistakes: Mistakes, *, serving: bool = False) -> None:
    """Add to *mistakes* what the parts that the settings describe say of them; with *serving*, also what would make the
    server open to others than it should. Parts that nobody has set anything of are left alone."""
    before = len(mistakes)
    _check_each(loaded, "policy.rules", parts.rule, mistakes)
    _check_each(loaded, "auth.api_keys", parts.api_key, mistakes)
    _check_each(loaded, "sandboxes.egress_secrets", egress_secret, mistakes)
    if len(mistakes) > before:
        return  # the whole cannot be better than its pieces
    wholes: tuple[tuple[tuple[str, ...], Callable[[Loaded], Any]], ...] = (
        (("policy",), parts.policy),
        (("limits", "code", "sandboxes"), _options),
        (("auth", "auth.jwt"), parts.auth_settings),
        (("http", "server"), parts.http_settings),
    )
    sound = True
    for blocks, make in wholes:
        if not serving and not any(loaded.has(block) for block in blocks):
            continue
        try:
            make(loaded)
        except ToolExecError as error:
            sound = False
            mistakes.add(_place(loaded, *blocks), error.message)
    if serving and sound:
        _check_serving(loaded, mistakes)


def _check_each(loaded: Loaded, path: str, make: Callable[[Any], Any], mistakes: Mistakes) -> None:
    value = loaded.values[path]
    for number, each in enumerate(value.value):
        try:
            make(each)
        except ConfigurationError as error:
            mistakes.add(value.where((number,)), f"{path}[{number}]: {error.message}")


def _options(loaded: Loaded) -> Any:
    from toolexec.exec.options import Options

    return parts.exec_options(loaded, Options())


def _check_serving(loaded: Loaded, mistakes: Mistakes) -> None:
    from toolexec.server.http.settings import check_exposure

    try:
        settings = parts.serve_settings(loaded)
        if settings.transport != "stdio":
            check_exposure(settings.http, settings.auth)
    except ConfigurationError as error:
        mistakes.add("", error.message)


def _place(loaded: Loaded, *blocks: str) -> str:
    """Where the first setting of these blocks that somebody has made stands, and which blocks they are."""
    given = (loaded.values[path] for path, key in KEYS.items() if key.block in blocks)
    where = next((value.where(()) or value.origin for value in given if value.layer != "default"), "")
    names = " and ".join(f"[{block}]" for block in blocks)
    return f"{where}: {names}" if where else names
