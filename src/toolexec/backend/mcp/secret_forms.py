"""Forms that ask a person for a password or another secret, however they write the word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Final, cast

from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.visible import without_hidden

_MOST_LEVELS: Final = 8
_TYPED: Final = (
    r"pass[\W_]{0,3}word|pass[\W_]{0,3}phrase|pass[\W_]{0,3}code|\bpwd\b|\bpins?\b|\botp\b|one\W?time\W?code|\bcvv\b"
    r"|\bcvc\b|card\W?number|\bssn\b|passwort|kennwort|contrasena|mot\W?de\W?passe|\bsenha\b|wachtwoord|\bhaslo\b"
    r"|парол|密码|密碼|パスワード|비밀번호"
)
_SECRET: Final = re.compile(
    rf"{_TYPED}|secret|credential|api\W?key|private\W?key|access\W?key|\btokens?\b|seed\W?phrase", re.IGNORECASE
)
_DIGITS: Final = re.compile(_TYPED, re.IGNORECASE)
"""What a number may be; one that is called a count of tokens is none of these."""
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|_")
_APART: Final = re.compile(r"(?<=\b\w)[\W_]{1,3}(?=\w\b)")
"""What stands between letters that stand alone, as in `p a s s w o r d`."""
_WARNS: Final = re.compile(
    r"\b(?:do\s+not|don'?t|never)\s+(?:give\s+us|enter|type|include|provide)\b"
    r"(?:(?!\b(?:but|except|only|instead|just|enter|type|write|fill|put|give|send|here)\b)[^.;:!?()\n])*",
    re.IGNORECASE,
)
"""What asks for no secret: `do not give us your pin`, to the end of that and with nothing else in it."""
_LOOKS: Final = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0501\u0261\u0131\u03bf\u03b10135$@", "aeopcyxisdgioaoiessa"
)
"""Letters and digits that look like others, in small letters."""


def asks_for_secret(params: JSONObject) -> str | None:
    """Return the name of the field by which a form asks for a password or another secret; None if it does not.

    A name, a title or a message may write it with other characters between the letters, with letters that look alike,
    or with some that are not seen.
    """
    schema = params.get("requestedSchema")
    fields = [*_fields(schema, _MOST_LEVELS)] if isinstance(schema, dict) else []
    for name, field in fields:
        is_number = field.get("type") in ("integer", "number")
        if _names_secret(_WORDS.sub(" ", name), _SECRET) or any(
            _names_secret(field.get(key), _SECRET) for key in ("title", "format")
        ):
            return name[:100]
        about = field.get("description")
        about = _WARNS.sub("", about) if isinstance(about, str) else about
        if _names_secret(about, _DIGITS if is_number else _SECRET):
            return name[:100]
    words = [params.get("message"), *(schema.get(key) for key in ("title", "description"))] if schema else []
    kinds = {str(field.get("type")) for _, field in fields}
    pattern = _DIGITS if kinds <= {"integer", "number"} else _SECRET
    if fields and any(_names_secret(text, pattern) for text in words):
        return fields[0][0][:100]
    return None


def _fields(schema: JSONObject, levels: int) -> Iterator[tuple[str, JSONObject]]:
    """Yield the fields in which something is typed in, those within others too; what is chosen from a list, or ticked,
    has no secret in it."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or levels == 0:
        return
    for name, given in cast("JSONDict", properties).items():
        field: JSONObject = cast("JSONDict", given) if isinstance(given, dict) else {}
        if isinstance(field.get("properties"), dict):
            yield from _fields(field, levels - 1)
        elif field.get("type") != "boolean" and "enum" not in field:
            yield str(name), field


def _names_secret(text: Any, pattern: re.Pattern[str]) -> bool:
    return isinstance(text, str) and any(pattern.search(reading) is not None for reading in _readings(text))


def _readings(text: str) -> Iterator[str]:
    """Yield a text as it is, and as a person may read it."""
    yield text
    plain = unicodedata.normalize("NFKD", without_hidden(text))
    plain = "".join(each for each in plain if not unicodedata.combining(each)).lower()
    for reading in (plain, plain.translate(_LOOKS)):
        yield reading
        yield _APART.sub("", reading)
