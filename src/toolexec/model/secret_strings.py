"""Secrets that can be seen in a text: keys of well-known services, credentials in addresses, `password=...`.

Every pattern takes time in proportion to the text, whatever it is: what is repeated without bound either ends a match,
or begins only where it cannot begin once more.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from typing import Final

from toolexec.model.patterns import lazy_pattern
from toolexec.model.secret_keys import is_telling, is_telling_parameter

_START: Final = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrt])|(?<=%[0-9A-Fa-f][0-9A-Fa-f]))"
"""Where a run of key characters begins, also in text that is escaped as in JSON or in a URL."""

_TOKENS: Final = lazy_pattern(
    _START + r"(?:eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{3,}(?:\.[A-Za-z0-9_-]*)*"  # JWT, JWE
    r"|(?:sk|rk)-(?:(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{16,}|[A-Za-z0-9_]{16,})"  # OpenAI, Anthropic; no hyphenated words
    r"|(?:sk|rk|pk|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}"  # Stripe
    r"|xox[a-z]-[A-Za-z0-9-]{8,}|xapp-[A-Za-z0-9-]{8,}"  # Slack
    r"|npm_[A-Za-z0-9]{20,}|pypi-[A-Za-z0-9_-]{20,}|hf_[A-Za-z0-9]{20,}|dop_v1_[a-f0-9]{20,}|dapi[a-f0-9]{30,}"
    r"|SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}|ya29\.[A-Za-z0-9_-]{10,}|hv[sb]\.[A-Za-z0-9_-]{20,}"
    r"|[0-9]{8,10}:[A-Za-z0-9_-]{35}"  # Telegram
    r")"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|AIza[A-Za-z0-9_-]{30,}"  # Google
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,60}-----|\Z)"
)
_TELEGRAM_HINT: Final = lazy_pattern(r"[0-9]:[A-Za-z0-9_-]{35}")
_SCHEMES: Final = lazy_pattern(
    r"(?i)\b(?P<scheme>bearer|basic|apikey|digest|negotiate)(?P<gap>(?:[ \t]|%20|\+){1,4})"
    r"(?P<value>[A-Za-z0-9._~+/=-]{4,})"
)
_PROSE: Final = frozenset(
    [
        "auth",
        "authentication",
        "authorization",
        "credentials",
        "header",
        "headers",
        "scheme",
        "token",
        "tokens",
        "realm",
    ]
)
_PROSE_STARTS: Final = frozenset(
    (
        *("a", "an", "the", "is", "are", "was", "were", "must", "should", "can", "may", "will", "has", "have", "not"),
        *("none", "null", "nil", "undefined", "unset", "empty", "missing", "required", "optional", "invalid"),
        *("unknown", "true", "false", "yes", "no", "expired", "unchanged", "disabled", "enabled"),
    )
)
"""What a sentence about a secret goes on with, after `password: `; and what says that there is none."""
_LONGEST_WORD: Final = 16
_LONGEST_COUNT: Final = 9
_ADDRESS: Final = lazy_pattern(r"(?<=://)([^\s/?#\"'<>@:]*)(:[^\s/?#\"'<>]*)?@")
_PARAMETER: Final = lazy_pattern(r"(?<=[?&;#])([^=&?;#\s\"'<>]{1,64})=([^&#\s\"'<>]+)")
_USER: Final = lazy_pattern(r"((?<!\S)(?:-u|--user|--proxy-user)[ =]\S[^\s:]{0,100}:)(\S+)")
_WEBHOOK: Final = lazy_pattern(r"(hooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]+")
_KEY: Final = lazy_pattern(
    r"(?:passw(?:or)?d|passphrase|passcode|secret|token|api[ _.-]?key|(?:private|access|account|auth|shared|signing"
    r"|encryption|master|ssh|license|subscription)[ _.-]?key|authorization|credential|cookie|connection[ _-]?string|jwt"
    r"|(?<![a-z])(?:pwd|creds))[\w.\[\]-]{0,24}?"
    r"(?P<gap>(?:\\{0,4}[\"'`])?\]?[ \t]{0,8}(?:\r?\n[ \t]{1,16})?(?::=|=>|==|[:=>])[ \t]{0,8}|[ \t]{1,4})"
)
_BEFORE: Final = lazy_pattern(r"[\w.-]*\Z")
_QUOTED: Final = lazy_pattern(r"(?P<open>\\{0,7}[\"'`])")
_WORD: Final = lazy_pattern(r"[^\s\"'<>]+")
_LINE: Final = lazy_pattern(r"[^\r\n\"'<>\\]+")
_WHOLE_LINE: Final = lazy_pattern(r"(?i)authorization|cookie|connection|passphrase")
_SHORT: Final = 12
"""Below this a text can hold an assignment, and no key of a service."""
_TOKEN_HINTS: Final = (
    *("eyj", "sk-", "rk-", "k_", "whsec", "xox", "xapp-", "npm_", "pypi-", "hf_", "dop_v1_", "dapi", "sg.", "ya29."),
    *("hvs.", "hvb.", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "aiza"),
    *("age-secret", "-----begin"),
)
_SCHEME_HINTS: Final = ("bearer", "basic", "apikey", "digest", "negotiate")
_KEY_HINTS: Final = (
    *("passw", "passp", "passcode", "secret", "token", "key", "authoriz", "credential", "cookie", "connection", "jwt"),
    *("pwd", "creds"),
)


def _one_of(words: Iterable[str]) -> str:
    """Return a pattern for any of the words, as a tree of their letters: several times as quick as one after
    the other.
    """
    tree: dict[str, list[str]] = {}
    for word in words:
        tree.setdefault(word[:1], []).append(word[1:])
    if "" in tree:
        return ""
    branches = [re.escape(letter) + _one_of(rests) for letter, rests in sorted(tree.items())]
    return f"(?:{'|'.join(branches)})"


_HINT: Final = lazy_pattern(
    _one_of([*_TOKEN_HINTS, *_SCHEME_HINTS, *_KEY_HINTS, "://", "=", "-u"]) + r"|" + _TELEGRAM_HINT.pattern.lower()
)


def without_secrets(text: str, put: str) -> str:
    """*text* with everything that looks like a secret replaced by *put*."""
    lowered = _lowered(text)
    if _HINT.search(lowered) is None:
        return text
    has = lowered.__contains__
    if len(text) >= _SHORT:
        if any(map(has, _TOKEN_HINTS)) or _TELEGRAM_HINT.search(text) is not None:
            text = _TOKENS.sub(put, text)
        if any(map(has, _SCHEME_HINTS)):
            text = _SCHEMES.sub(lambda found: _without_scheme(found, put), text)
        if has("://"):
            text = _ADDRESS.sub(lambda found: _without_user(found, put), text)
            text = _WEBHOOK.sub(lambda found: found[1] + put, text)
    if has("="):
        text = _PARAMETER.sub(lambda found: f"{found[1]}={put}" if is_telling_parameter(found[1]) else found[0], text)
    if has("-u"):
        text = _USER.sub(lambda found: found[1] + put, text)
    return _without_assigned(text, put) if any(map(has, _KEY_HINTS)) else text


def _lowered(text: str) -> str:
    """*text* in lower case, every character in its place."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text.replace("\u0130", "i").lower()


def _without_scheme(found: re.Match[str], put: str) -> str:
    value = found["value"]
    if found["scheme"].lower() == "basic":
        try:
            plain = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
        except (binascii.Error, ValueError):
            return found[0]
        secret = b":" in plain
    else:
        secret = value.lower().rstrip(".") not in _PROSE and not _is_word(value)
    return f"{found['scheme']}{found['gap']}{put}" if secret else found[0]


def _is_word(value: str) -> bool:
    """Return whether *value* is written as a word is: `bearer bonds`."""
    bare = value.rstrip(".")
    return len(bare) < _LONGEST_WORD and bare.isalpha() and bare[1:].islower()


def _without_user(found: re.Match[str], put: str) -> str:
    if found[2] is not None:
        return f"{put if not found[1] else found[1]}:{put}@" if found[2] != ":" else found[0]
    return f"{put}@" if len(found[1]) >= 16 else found[0]


def _without_assigned(text: str, put: str) -> str:
    """Replace what stands after a telling name: `name=value`, `"name": "value"`, `--name value`, `<name>value`."""
    lowered = _lowered(text)
    parts: list[str] = []
    done = at = 0
    while (key := _KEY.search(lowered, at)) is not None:
        at = key.end()
        gap = key["gap"]
        before = _BEFORE.search(text, max(done, key.start() - 40), key.start())
        name = (before[0] if before is not None else "") + text[key.start() : key.start("gap")]
        if not is_telling(name.rstrip("]")) or (gap.isspace() and not name.startswith("-")):
            continue
        start, end = _value_at(text, at, name)
        bare = start == at  # and not in quotes, which hold a value
        harmless = bare and _is_harmless(name, gap, text[start:end])
        if start < end and not harmless and not text.startswith(put, start):
            parts += (text[done:start], put)
            done = end
        at = max(at, end)
    return "".join((*parts, text[done:])) if parts else text


def _is_harmless(name: str, gap: str, value: str) -> bool:
    """Return whether a number of tokens stands where a secret might, or a sentence goes on after `name: `."""
    if name.lower() == "tokens":
        return value.isdecimal() and len(value) <= _LONGEST_COUNT
    if not gap.startswith(":") or len(gap) == 1:
        return False
    first, *rest = value.rstrip(".,;:!?)").split() or [""]
    return first in _PROSE_STARTS and all(word.isalpha() and word.islower() for word in rest)


def _value_at(text: str, at: int, name: str) -> tuple[int, int]:
    """Return where the value that begins at *at* is."""
    first = text[at : at + 1]
    quoted = _QUOTED.match(text, at)
    if quoted is not None:
        return quoted.end(), _end_of_quoted(text, quoted.end(), quoted["open"])
    if first in ("{", "["):
        return at, _end_of_nested(text, at)
    if _WHOLE_LINE.search(name):
        line = _LINE.match(text, at)
        return (at, line.end()) if line is not None else (at, at)
    word = _WORD.match(text, at)
    return (at, word.end()) if word is not None else (at, at)


def _end_of_quoted(text: str, at: int, mark: str) -> int:
    """Return where the quote *mark* closes; the end of the text if it does not."""
    if len(mark) > 1:
        end = text.find(mark, at)
        return end if end >= 0 else len(text)
    ends = re.compile(rf"[^{mark}\\]*+(?:\\.[^{mark}\\]*+)*", re.DOTALL).match(text, at)
    return ends.end() if ends is not None else len(text)


_STRUCTURE: Final = lazy_pattern(r"[\[\]{}]|\"[^\"\\]*+(?:\\.[^\"\\]*+)*\"?", re.DOTALL)


def _end_of_nested(text: str, at: int) -> int:
    """Return where the object or list that begins here ends; the end of the text if it does not."""
    depth = 0
    for found in _STRUCTURE.finditer(text, at):
        depth += 1 if found[0] in ("{", "[") else -1 if found[0] in ("}", "]") else 0
        if depth <= 0:
            return found.end()
    return len(text)
