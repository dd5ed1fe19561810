"""The secrets of a session: what is known to be one, and what the session itself shows to be one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from toolexec.model.json_value import JSONObject, JSONValue
from toolexec.model.redaction import REDACTED, Redactor
from toolexec.model.secret_forms import SHORTEST, base64_forms, written_forms

_MOST: Final = 250
_LONGEST_WORD: Final = 12


class SessionRedactor(Redactor):
    """Replaces what *general* does, and what `learn` has seen under a mark or a telling name, wherever it comes again.

    A tool may well repeat an argument that is a secret, in its result or its error, under no name that says so. The
    last 250 such values of 6 characters or more count, as they are and encoded; words of up to 11 letters do not, as
    `string` or `default` comes everywhere.
    """

    def __init__(self, general: Redactor) -> None:
        super().__init__()
        self.general = general
        self._learned: dict[str, tuple[str, ...]] = {}

    @property
    def knows_any(self) -> bool:
        """Whether there are known secrets, or learned ones."""
        return bool(self._learned) or self.general.knows_any

    @property
    def has_learned(self) -> bool:
        """Whether it has seen a secret."""
        return bool(self._learned)

    def knows(self, value: str) -> bool:
        """Return whether *value* is one of them."""
        return value in self._learned or self.general.knows(value)

    def text(self, text: str) -> str:
        """*text* without secrets."""
        text = self.general.text(text)
        for forms in tuple(self._learned.values()):
            for form in forms:
                if form in text:
                    text = text.replace(form, REDACTED)
        return text

    def learn(self, value: object, schema: JSONObject | None = None) -> JSONValue:
        """Return what `value` does, and know from now on what was secret in it."""
        copy = self.value(value, schema)
        if copy == value:
            return copy
        hidden = [each for each in self._hidden(value, copy) if each not in self._learned]
        if not hidden:
            return copy
        for each in hidden:
            forms = {form for form in written_forms(each) | base64_forms(each) if len(form) >= SHORTEST}
            self._learned[each] = tuple(sorted(forms, key=len, reverse=True))
        for oldest in tuple(self._learned)[:-_MOST]:
            self._learned.pop(oldest, None)
        return self.value(value, schema)

    def _hidden(self, value: object, copy: object) -> Iterator[str]:
        """Yield the values that became `[REDACTED]` as a whole, for what they are called or how they are marked."""
        if isinstance(value, Mapping):
            found = copy if isinstance(copy, Mapping) else self.value(value)  # then its own names say what is secret
            if isinstance(found, Mapping) and len(found) == len(value):
                for one, other in zip(value.values(), found.values(), strict=True):
                    yield from self._hidden(one, other)
        elif isinstance(value, list):
            items: list[JSONValue] = value
            copies: list[JSONValue] = copy if isinstance(copy, list) else [copy] * len(items)
            for one, other in zip(items, copies, strict=True):
                yield from self._hidden(one, other)
        elif copy == REDACTED and isinstance(value, str | int | float) and not _is_word(str(value)):
            yield str(value)


def _is_word(text: str) -> bool:
    """Return whether a value says too little to be looked for elsewhere."""
    return len(text) < SHORTEST or text == REDACTED or (text.isalpha() and len(text) < _LONGEST_WORD)
