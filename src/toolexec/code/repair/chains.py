"""Steps of chains that are not as `run_chain` takes them, as what to write in their place."""

from __future__ import annotations

import re
from typing import Final

from toolexec.code.repair.failure import Failure
from toolexec.code.repair.shapes import WRAPPERS
from toolexec.code.repair.source import instead

_SETTING: Final = re.compile(r"InvalidChainError: step \d+: a step has no setting '(\w+)'; did you mean (\w+)\?")
_AROUND: Final = re.compile(
    rf"InvalidChainError: step \d+: '((?:steps[.\[]\d+\]?|\w+))\.({'|'.join(sorted(WRAPPERS))})(\.[^']*)?' "
    r"cannot be looked up: there is no '\2'"
)
_FORM: Final = 'a step is {"tool": ..., "args": {...}, "name": ...}, and takes of an earlier one {"$ref": "name.key"}'


def about_chains(failure: Failure) -> str:
    """Return what to write instead; "" where nothing certain can be said."""
    if found := _SETTING.match(failure.message):
        for old, new in (
            (f'"{found[1]}"', f'"{found[2]}"'),
            (f"'{found[1]}'", f"'{found[2]}'"),
            (f"{found[1]}:", f"{found[2]}:"),
        ):
            if old in failure.code:
                return f"{instead(old, new)}; {_FORM}"
    if found := _AROUND.match(failure.message):
        step, rest = found[1], found[3] or ""
        return f"a step is its value already: {instead(f'{step}.{found[2]}{rest}', step + rest)}"
    if failure.message.startswith("InvalidChainError:"):
        return _FORM
    return ""
