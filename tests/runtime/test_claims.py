"""Claims of limits: each is made by name, and none by leaving it out."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.runtime.base import Availability
from toolexec.runtime.claims import claim_limits, claim_resources
from toolexec.runtime.containers.launcher import Launcher, held_by

EVERY = LimitsEnforced().to_dict()
RESOURCES = ("memory", "cpu", "cpus", "pids", "disk")


@pytest.mark.parametrize(("claim", "names"), [(claim_limits, [*EVERY]), (claim_resources, [*RESOURCES])])
def test_every_limit_is_an_argument_without_a_default(claim: Callable[..., Any], names: list[str]) -> None:
    """A limit that is added later is one that every sandbox must say something about."""
    parameters = inspect.signature(claim).parameters
    assert [*parameters] == names
    assert {each.default for each in parameters.values()} == {inspect.Parameter.empty}
    assert claim(**dict.fromkeys(names, True)).to_dict() == {name: name in names for name in EVERY}


@pytest.mark.parametrize("left_out", ["pids", "disk"])
def test_control_groups_hold_no_disk(left_out: str) -> None:
    """An engine that has control groups says what they do not hold."""
    claims = {"pids": False, "disk": False}
    assert held_by(("memory", "cpu"), **claims) == LimitsEnforced(memory=True, cpus=True)
    del claims[left_out]
    with pytest.raises(TypeError, match=left_out):
        held_by(("memory",), **claims)


async def test_a_launcher_claims_nothing_that_it_did_not_find() -> None:
    """One that says only that it is there has no limit enforced."""

    class Plain(Launcher):
        async def _check(self) -> Availability:
            return Availability(ok=True)

        async def _sweep(self) -> None:
            pass

    launcher = Plain()
    assert (await launcher.check()).ok
    assert not any(launcher.enforces(Limits(disk_bytes=1)).to_dict().values())
