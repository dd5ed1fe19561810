"""Credentials of a provider that belong to the caller of each call."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from toolexec.backend.secrets.resolver import SecretResolver, has_reference
from toolexec.errors import BackendUnavailableError, ConfigurationError, PolicyError, SecretError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.model.origin import Caller, Origin

MakeCredential: TypeAlias = Callable[[Origin], Any | Awaitable[Any]]
"""Gives the credential for calls of an origin, in the form of the provider's `auth`; None where it has none. It is
called on the event loop, for each call, and may be async."""
_Check: TypeAlias = Callable[[str, Any], None]


def caller_key(caller: Caller) -> str:
    """Return what a caller is called in a table of credentials: its ID, `tenant/ID` for one of a tenant, and `/ID` for
    an ID with a slash without a tenant, which could be taken for that. At an endpoint of a server that is not the main
    one, it is `/ENDPOINT:ID` and `/ENDPOINT:TENANT:ID`, with `%2F` for each slash and `%3A` for each colon in them.
    Empty for an anonymous caller, and for one whose tenant has a slash."""
    if not caller.id or "/" in caller.tenant:
        return ""
    if caller.endpoint:
        parts = (caller.tenant, caller.id) if caller.tenant else (caller.id,)
        return f"/{':'.join((caller.endpoint, *map(_without_marks, parts)))}"
    if caller.tenant:
        return f"{caller.tenant}/{caller.id}"
    return f"/{caller.id}" if "/" in caller.id else caller.id


def _without_marks(text: str) -> str:
    return text.replace("%", "%25").replace("/", "%2F").replace(":", "%3A")


def known_caller(where: str, caller: Caller) -> str:
    """Return what *caller* is called, for the login that *where* is called with; raises PolicyError for one that is not
    known."""
    if key := caller_key(caller):
        return key
    message = f"{where} is called with the login of each caller, and this call has no known caller: give callers API "
    message += "keys or tokens of their own, which auth of the server checks, or in a program use "
    message += "`with acting(Origin(caller=Caller(id=...)))`"
    if caller.id:
        message = f"{where} is called with the login of each caller, and the tenant of this one has a slash in its name"
    raise PolicyError(message, code="no_caller", op="login", details={"caller": caller.id})


def check_callers(where: str, given: object, *, has_auth: bool) -> None:
    """Raise ConfigurationError for `credentials` beside `auth`, and for ones that are not those of any caller."""
    if given is None:
        return
    if has_auth:
        raise ConfigurationError(
            f"{where}: give either auth, which all callers share, or credentials, where each caller has its own"
        )
    if isinstance(given, Mapping) and "" in given:
        raise ConfigurationError(f"{where}: credentials has an empty caller; an anonymous caller cannot have any")


class CallerCredentials:
    """Gives each caller the credential that *given* has for it, and never another's.

    *given* maps callers (see `caller_key`) to credentials, whose references *secrets* fills in at the call; or it is a
    function of the origin, whose answer is taken as it is. *check* raises ConfigurationError for a credential of the
    wrong form, with the label that it is passed first.
    """

    def __init__(
        self,
        provider: str,
        given: Mapping[str, Any] | MakeCredential,
        secrets: SecretResolver | None,
        check: _Check,
    ) -> None:
        self._provider = provider
        self._given = given
        self._secrets = secrets
        self._check = check

    async def of(self, origin: Origin) -> Any:
        """Return the credential for a call of *origin*.

        Raises PolicyError for a caller that has none, and BackendUnavailableError where it cannot be had; nothing was
        sent then.
        """
        if isinstance(self._given, Mapping):
            found = self._given.get(caller_key(origin.caller)) if caller_key(origin.caller) else None
            if found is None:
                raise no_credentials(self._provider, origin.caller)
            return await self._filled(found, caller_key(origin.caller))
        found = await self._made(self._given, origin)
        if found is None:
            raise no_credentials(self._provider, origin.caller)
        try:
            self._check(f"provider {self._provider}: what credentials returned", found)
        except ConfigurationError as error:
            raise BackendUnavailableError(error.message, retryable=False) from None
        return found

    async def _made(self, make: MakeCredential, origin: Origin) -> Any:
        try:
            found = make(origin)
            return await found if inspect.isawaitable(found) else found
        except ToolExecError as error:
            raise self._not_had(error.message) from error
        except Exception as error:  # its message may have what it looked up
            raise self._not_had(f"the function raised {type(error).__name__}") from error

    async def _filled(self, credential: Any, key: str) -> Any:
        """Return a credential with its references filled in."""
        strings = _strings(credential)
        if self._secrets is None or not any(map(has_reference, strings.values())):
            return credential
        where = f"provider {self._provider}: credentials.{key}"
        try:
            found = await asyncio.to_thread(self._secrets.resolve_all, strings, where)
        except SecretError as error:
            raise self._not_had(error.message) from error
        return _with_strings(credential, found)

    def _not_had(self, reason: str) -> BackendUnavailableError:
        return BackendUnavailableError(
            f"the credentials of the caller cannot be had: {reason}", retryable=False, details={"reason": reason}
        )


def no_credentials(provider: str, caller: Caller, lacks: str = "") -> PolicyError:
    """Return the error for a caller that has no credentials of a provider; *lacks* says which, where it has others."""
    if caller.id:
        key = caller_key(caller) or caller.id
        message = f"caller {key[:200]!r} has no credentials {f'for {lacks} ' if lacks else ''}of provider {provider}"
        message += f", and gets no other caller's: an operator can set credentials.{key[:200]} there"
    else:
        message = (
            f"provider {provider} is called with the credentials of each caller, and this call has no known caller"
        )
        message += ": authenticate, or in a program use `with acting(Origin(caller=Caller(id=...)))`"
    return PolicyError(message, code="no_credentials", details={"provider": provider, "caller": caller.id})


def _strings(value: Any, label: str = "") -> dict[str, str]:
    """Return the strings of a credential by their places in it."""
    if isinstance(value, Mapping):
        parts = [_strings(each, f"{label}.{name}" if label else str(name)) for name, each in value.items()]
        return {place: text for part in parts for place, text in part.items()}
    return {label or "it": value} if isinstance(value, str) else {}


def _with_strings(value: Any, found: Mapping[str, str], label: str = "") -> Any:
    """Return a credential with the strings of `_strings` replaced."""
    if isinstance(value, Mapping):
        made: JSONDict = {}
        for name, each in value.items():
            made[name] = _with_strings(each, found, f"{label}.{name}" if label else str(name))
        return made
    return found.get(label or "it", value) if isinstance(value, str) else value
