"""Which names say that what they name is a secret: `password`, `X-Api-Key`, `clientSecret`."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import Final

_ENDINGS: Final = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "pincode",
    "secret",
    "apikey",
    "secretkey",
    "privatekey",
    "accesskey",
    "accountkey",
    "authkey",
    "sharedkey",
    "signingkey",
    "encryptionkey",
    "decryptionkey",
    "masterkey",
    "rootkey",
    "sshkey",
    "licensekey",
    "servicekey",
    "subscriptionkey",
    "webhookkey",
    "sessionkey",
    "secretaccesskey",
    "authorization",
    "credential",
    "connectionstring",
    "cookie",
    "token",
    "jwt",
)
_WHOLE: Final = frozenset(
    (
        *(
            "pwd",
            "pass",
            "pw",
            "auth",
            "basicauth",
            "proxyauth",
            "httpauth",
            "bearer",
            "creds",
            "connstr",
            "connstring",
        ),
        *("otp", "totp", "cvv", "cvc", "mfacode", "privkey", "dbpwd", "dbpass", "userpwd", "userpass", "seedphrase"),
    )
)
_PARAMETERS: Final = frozenset(
    [
        "key",
        "sig",
        "signature",
        "xamzsignature",
        "xgoogsignature",
        "code",
        "sid",
        "jsessionid",
        "phpsessid",
        "assertion",
    ]
)
_TRAILING: Final = (
    *("plaintext", "confirmation", "confirm", "encoded", "encrypted", "header", "string", "value", "plain", "text"),
    *("again", "repeat", "bytes", "b64", "base64", "hash", "env", "raw", "new", "old", "data", "s"),
)
"""What may follow without changing what is named: `passwordHash`, `secret_value`, `apiKeys`."""
_PLACES: Final = (
    *("page", "next", "previous", "prev", "continuation", "continue", "progress", "sync", "cursor", "pagination"),
    *(
        "stop",
        "eos",
        "bos",
        "pad",
        "unk",
        "mask",
        "sep",
        "cls",
        "start",
        "end",
        "first",
        "last",
        "cancel",
        "cancellation",
    ),
    *(
        "max",
        "min",
        "num",
        "total",
        "input",
        "output",
        "prompt",
        "completion",
        "cached",
        "reasoning",
        "thinking",
        "used",
    ),
)
"""What a token is of when it is not a secret: a position in a list, a word of a text."""
_CACHED_LENGTH: Final = 64


def is_telling(key: str) -> bool:
    """Return whether what goes by this name is a secret, however it is spelt: `api_key`, `API-KEY`, `apiKey`,
    `db.apikey`.

    Names of things about a secret (`token_count`, `password_policy`) and of tokens that are not secret
    (`next_page_token`) do not count.
    """
    return _judge_cached(key) if len(key) <= _CACHED_LENGTH else _judge(key)


def is_telling_parameter(key: str) -> bool:
    """Return the same for a parameter in a URL, where `key`, `sig` and `code` are secrets, too."""
    return is_telling(key) or _letters(key) in _PARAMETERS


def _letters(key: str) -> str:
    text = key if key.isascii() else unicodedata.normalize("NFKC", key)
    return "".join(filter(str.isalnum, text)).lower()


def _judge(key: str) -> bool:
    letters = _letters(key).rstrip("0123456789")
    for _ in range(3):
        if letters in _WHOLE:
            return True
        for ending in _ENDINGS:
            if letters.endswith(ending):
                return ending != "token" or not letters.removesuffix("token").endswith(_PLACES)
        shorter = next((letters.removesuffix(word) for word in _TRAILING if letters.endswith(word)), "")
        if not shorter:
            return False
        letters = shorter.rstrip("0123456789")
    return False


_judge_cached = lru_cache(maxsize=4096)(_judge)
