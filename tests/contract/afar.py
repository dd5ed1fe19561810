"""The hostile programs that containers at the other end of a connection meet, in parts of half a minute."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.testing.escapes import ESCAPES
from toolexec.testing.escapes.processes import PROCESS_ESCAPES
from toolexec.testing.escapes.protocol import PROTOCOL_ESCAPES
from toolexec.testing.escapes.requests import REQUEST_ESCAPES

_PARTS = 6


def parts_from_afar() -> list[Any]:
    """Return parametric cases that are all programs in Python together; most of them are of the soak tier.

    The full tier has those that a connection could let through: what is asked of the host, what is said to it, and
    processes that outlive their run. All programs meet the same containers without a connection in `tests/contract/`,
    and the same connection with the embedded sandbox at its end.
    """
    of_the_connection = {each.name for each in (*PROTOCOL_ESCAPES, *REQUEST_ESCAPES, *PROCESS_ESCAPES)}
    python = [each for each in ESCAPES if "python" in each.programs]
    near = [each for each in python if each.name in of_the_connection]
    others = [each for each in python if each.name not in of_the_connection]
    return [
        *(pytest.param(near[part::2], id=f"connection-{part}") for part in range(2)),
        *(pytest.param(others[part::_PARTS], id=f"others-{part}", marks=pytest.mark.soak) for part in range(_PARTS)),
    ]
