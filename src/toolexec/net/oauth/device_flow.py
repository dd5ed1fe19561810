"""A login on another device: a code to type in there, and the question here whether that is done (RFC 8628)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from toolexec.errors import LoginError
from toolexec.net.oauth.metadata import AuthorizationServer
from toolexec.net.oauth.reach import Reach, json_object
from toolexec.net.oauth.tokens import TokenClient, TokenReply, read_token, refusal_of

_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_SLOWER: Final = 5.0
_LONGEST: Final = 1800.0


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What a person opens (`link`) and types in (`user_code`); it is asked for every `interval` seconds, and ends after
    `seconds`."""

    link: str
    user_code: str
    device_code: str = field(repr=False)
    interval: float
    seconds: float


async def ask_device_code(
    reach: Reach, server: AuthorizationServer, client: TokenClient, *, scope: str, more: Mapping[str, str]
) -> DeviceCode:
    """Begin a login for *scope*, with *more* that is asked for (what is empty is left out); raises LoginError where the
    server has no such flow, or refuses."""
    if not server.device_endpoint or not server.token_endpoint:
        raise LoginError(f"{server.issuer} has no login on another device; leave out --device")
    fields = {"scope": scope, **more}
    sent, headers = client.prove({name: value for name, value in fields.items() if value}, server.issuer)
    response = await reach.post(server.device_endpoint, sent, f"the device endpoint of {server.issuer}", headers)
    data = json_object(response) if response.status == 200 else None
    if data is None:
        raise LoginError(f"{server.issuer} refused the login: {refusal_of(response.body) or f'HTTP {response.status}'}")
    link = data.get("verification_uri_complete") or data.get("verification_uri")
    user_code, device_code = data.get("user_code"), data.get("device_code")
    if not (isinstance(link, str) and isinstance(user_code, str) and isinstance(device_code, str)):
        raise LoginError(f"{server.issuer} gave no code to type in")
    reach.check(link, f"the place where {server.issuer} has codes typed in")
    shown = "".join(each for each in user_code[:40] if each.isprintable())
    return DeviceCode(
        link, shown, device_code, _number(data.get("interval"), 5.0), _number(data.get("expires_in"), 600.0)
    )


async def await_device(
    reach: Reach,
    server: AuthorizationServer,
    client: TokenClient,
    code: DeviceCode,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> TokenReply:
    """Return the token once the person has typed the code in; raises LoginError where that is refused, or too late."""
    interval, waited = code.interval, 0.0
    while waited < min(code.seconds, _LONGEST):
        await sleep(interval)
        waited += interval
        fields, headers = client.prove({"grant_type": _GRANT, "device_code": code.device_code}, server.issuer)
        response = await reach.post(server.token_endpoint, fields, f"the token endpoint of {server.issuer}", headers)
        reply = read_token(response.status, response.body)
        if reply is not None:
            return reply
        why = refusal_of(response.body)
        if why == "slow_down":
            interval += _SLOWER
        elif why != "authorization_pending":
            raise LoginError(f"{server.issuer} refused the login: {why or f'HTTP {response.status}'}")
    raise LoginError(f"the code was not typed in within {waited:g} seconds")


def _number(value: object, default: float) -> float:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return min(max(float(value), 1.0), _LONGEST) if is_one and isinstance(value, int | float) else default
