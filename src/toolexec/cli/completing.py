"""Completion in a shell: what bash does to words with a colon in them, as the IDs of tools have."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, MutableMapping
from contextlib import redirect_stdout
from typing import Final

_WORDS: Final = "COMP_WORDS"
_NUMBER: Final = "COMP_CWORD"
_LEFT: Final = "_TOOLEXEC_LEFT"


def rejoin_words(environment: MutableMapping[str, str] = os.environ) -> None:
    """Put the words of bash's command line together again that it took apart at colons.

    What bash leaves of the last one when it completes it, all up to its last colon, is kept for `complete`. Without a
    command line of bash nothing changes.
    """
    try:
        words, number = environment[_WORDS].split("\n"), int(environment[_NUMBER])
    except (KeyError, ValueError):
        return
    joined: list[str] = []
    for word in [*words, ""][: number + 1]:
        if len(joined) > 1 and word and (word == ":" or joined[-1].endswith(":")):
            joined[-1] += word
        else:
            joined.append(word)
    environment[_WORDS], environment[_NUMBER] = "\n".join(joined), str(len(joined) - 1)
    head, colon, _ = joined[-1].rpartition(":")
    environment[_LEFT] = head + colon


def complete(run: Callable[[], object]) -> None:
    """Have *run* print what could follow, for the words as they were typed; in bash without what it leaves as it is."""
    rejoin_words()
    left, out = os.environ.get(_LEFT, ""), io.StringIO()
    try:
        with redirect_stdout(out):
            run()
    finally:
        sys.stdout.write("".join(line.removeprefix(left) for line in out.getvalue().splitlines(keepends=True)))
