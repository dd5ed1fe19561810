"""The keys that clients of a remote runtime sign their requests with."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from toolexec.errors import ConfigurationError

SKEW: Final = 300.0
"""By how many seconds the clocks of the two sides may differ."""
MIN_SECRET_CHARS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key of the two sides: `id` names it, `token` is the bearer token, `secret` makes signatures ("": the token
    does, as older clients expect; a secret of its own never travels).

    `tenant` is on whose account runs go ("": the key's own). `expires` is a Unix time after which the key is refused
    (0: never). Raises ConfigurationError for a key without an ID, and a token or secret of less than 16 characters.
    """

    id: str
    token: str = field(repr=False)
    secret: str = field(default="", repr=False)
    tenant: str = ""
    expires: float = 0.0

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", self.id):
            raise ConfigurationError(f"the ID of a key is 1 to 64 letters, digits, '.', '_' or '-', not {self.id!r}")
        for name, value in (("token", self.token), ("secret", self.secret)):
            if (value or name == "token") and (len(value) < MIN_SECRET_CHARS or not value.isascii()):
                raise ConfigurationError(
                    f"the {name} of key {self.id} needs at least {MIN_SECRET_CHARS} characters of ASCII"
                )

    @property
    def signing_secret(self) -> str:
        """What makes its signatures."""
        return self.secret or self.token

    def has_expired(self, now: float) -> bool:
        """Return whether the key is refused at the Unix time *now*."""
        return bool(self.expires) and now > self.expires

    @property
    def account(self) -> str:
        """On whose account its runs go."""
        return self.tenant or self.id
