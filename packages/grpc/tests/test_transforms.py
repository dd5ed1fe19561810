"""Methods of a gRPC service in another form than their own, on every path."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest
from packages.grpc.tests.service import Shop, serving
from tests.exec.transforms import SHOWN, Kind, check_every_path, check_what_is_shown

from toolexec import Exec

OWN_SHOWN = {
    **SHOWN,
    "arguments": {
        "name": {"name": "item", "description": "Which item."},
        "count": {"name": "n", "default": 3},
        "color": {"value": "GREEN"},
        "note": {"hide": True},
    },
}


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """Run a server."""
    with serving(Shop()) as address:
        yield address


@pytest.fixture
def kind(target: str) -> Kind:
    """Return methods of gRPC services as a kind of tool."""

    @asynccontextmanager
    async def make() -> AsyncGenerator[Exec]:
        async with Exec(transforms={"far:Shop.Echo": OWN_SHOWN}, gate=None) as ex:
            await ex.add_grpc("far", target)
            yield ex

    return Kind(make, lambda item, n: {"name": item, "count": n, "color": "GREEN"}, ("color", "note"))


async def test_every_path(kind: Kind) -> None:
    """A call, a step of a chain, a program and a client all use the form that is shown, and the tool gets its own."""
    await check_every_path(kind)


async def test_what_is_shown(kind: Kind) -> None:
    """Callers see the new names and descriptions, and nothing of what is fixed or hidden; that is refused."""
    await check_what_is_shown(kind)
