"""The request that changes a code, or another grant, for a token."""

from __future__ import annotations

from collections.abc import Mapping

from toolexec.errors import LoginError
from toolexec.net.oauth.reach import Reach
from toolexec.net.oauth.tokens import TokenClient, TokenReply, read_token, refusal_of


async def request_token(
    reach: Reach, endpoint: str, client: TokenClient, fields: Mapping[str, str], issuer: str
) -> TokenReply:
    """Return the token that *fields* are changed for; raises LoginError with the error of the server."""
    what = f"the token endpoint of {issuer}"
    first, *others = client.ways()
    sent, headers = first.prove(fields, issuer)
    response = await reach.post(endpoint, sent, what, headers)
    for way in others if response.status in (400, 401) else ():
        sent, headers = way.prove(fields, issuer)
        response = await reach.post(endpoint, sent, what, headers)
    reply = read_token(response.status, response.body)
    if reply is None:
        why = refusal_of(response.body)
        raise LoginError(
            f"{what} gave no token: {why or f'HTTP {response.status}'}",
            retryable=response.status >= 500,
            details={"error": why, "status": response.status},
        )
    return reply
