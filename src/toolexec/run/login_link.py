"""Where the caller of a call logs in, in the error that asks for it."""

from __future__ import annotations

from toolexec.errors import LoginRequiredError
from toolexec.model.origin import Origin

__all__ = ["with_login_link"]


def with_login_link(error: LoginRequiredError, origin: Origin) -> LoginRequiredError:
    """Return *error* with the link at which its caller logs in, where *origin* has one and each caller has a login;
    else itself."""
    details = error.details
    if origin.login_link is None or not details.get("caller") or details.get("flow") != "code":
        return error
    scopes = details.get("scopes") or ()
    link = origin.login_link(error.backend or "", tuple(str(each) for each in scopes))
    return error.at(link) if link else error
