"""Settings of gRPC services that do not fit are refused where they are given, by their names."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from toolexec import Exec
from toolexec.errors import ToolExecError
from toolexec_grpc import AddedGRPC, GRPCProvider

WRONG: Mapping[str, tuple[object, ...]] = {
    "int": ("3", [], -1, math.nan, 1.5),
    "float": ("3", [], -1, math.nan, -math.inf),
    "bool": ("no", 5, []),
    "str": (5, [], b"x"),
}
"""For each kind of setting values of others, and of no sense."""
CASES = [
    (setting.name, value)
    for setting in inspect.signature(GRPCProvider).parameters.values()
    for value in WRONG.get(str(setting.annotation), ())
]
NUMBERS = [name for name, kind in get_type_hints(AddedGRPC).items() if kind in (int, float)]


def test_how_many_are_tried() -> None:
    """Both have numbers, and one has words, too."""
    assert len(CASES) > 25
    assert {"timeout", "connect_timeout", "max_message_bytes", "refresh", "load_timeout"} <= {*NUMBERS}


@pytest.mark.parametrize(("name", "value"), CASES)
def test_what_does_not_fit_is_refused(name: str, value: object) -> None:
    """The error names the setting."""
    given: dict[str, Any] = {"name": "far", "target": "far.test:1", name: value}
    with pytest.raises(ToolExecError) as caught:
        GRPCProvider(**given)
    assert re.search(rf"\b{name}\b", caught.value.message), caught.value.message


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", ["3", [], math.nan, -1])
async def test_settings_by_name_are_refused_by_their_names(name: str, value: Any) -> None:
    """Each number that `add_grpc` takes is refused below 0, and as a string, before anything is done."""
    async with Exec() as ex:
        with pytest.raises(ToolExecError, match=rf"\b{name}\b"):
            ex.add_grpc("far", "far.test:1", **{name: value})
