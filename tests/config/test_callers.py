"""The callers of a server by its settings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.server.office import key

from toolexec.config.build import build
from toolexec.config.callers import present_by
from toolexec.config.load import load_settings
from toolexec.config.reload import Reload
from toolexec.model.origin import Caller
from toolexec.run.live_gate import LiveGate
from toolexec.server.auth import LiveKeys
from toolexec.server.auth.credentials import API_KEY, JWT


def test_callers_have_the_rights_of_their_endpoint(tmp_path: Path) -> None:
    """A caller has what its key gives it at its endpoint; one without a key there, at an endpoint that there is not, or
    with a token where none is taken, has no rights; one who has proven nothing is as it was."""
    file = tmp_path / "toolexec.toml"
    file.write_text(key("ann", roles=["staff"]) + key("eve", "team"))
    present = present_by(load_settings([file]))
    ann, local = Caller(id="ann", method=API_KEY), Caller()
    assert present(ann) == Caller(id="ann", method=API_KEY, roles=("staff",))
    assert present(local) is local
    eve = Caller(id="eve", method=API_KEY, endpoint="team")
    assert present(eve) == eve
    gone = [Caller(id="eve", method=API_KEY), Caller(id="ann", method=API_KEY, endpoint="team")]
    gone += [Caller(id="eve", method=API_KEY, endpoint="away"), Caller(endpoint="away"), Caller(id="ann", method=JWT)]
    assert [present(each) for each in gone] == [None] * 5


@pytest.mark.parametrize("served", [False, True], ids=["in a pipe", "over HTTP"])
def test_a_server_that_reloads_gives_callers_the_same_rights(served: bool, tmp_path: Path) -> None:
    """An endpoint that there is not gives no caller any rights, also where the others are only in the settings."""
    file = tmp_path / "toolexec.toml"
    file.write_text(key("ann", roles=["staff"]) + key("eve", "team"))
    loaded = load_settings([file])
    built = build(loaded, serving=True, state=tmp_path / "state")
    live: dict[str, Any] = (
        {"keys": LiveKeys(built.serve.auth), "endpoints": built.endpoints(built.serve)} if served else {}
    )
    Reload(built, lambda: loaded, **live)
    gate = built.ex.options.gate
    assert isinstance(gate, LiveGate)
    callers = [Caller(), Caller(endpoint="away"), Caller(endpoint="team"), Caller(id="ann", method=JWT)]
    callers += [Caller(id=name, method=API_KEY, endpoint=at) for name in ("ann", "eve") for at in ("", "team", "away")]
    expected = present_by(loaded)
    assert [gate.present(each) for each in callers] == [expected(each) for each in callers]
    asyncio.run(built.ex.aclose())


def test_all_that_is_built_knows_them(tmp_path: Path) -> None:
    """An Exec that is built from settings goes by their callers: for a server and for a command, with a gate and without."""
    for number, text in enumerate((key("ann"), key("ann") + "[policy]\n")):
        file = tmp_path / f"{number}.toml"
        file.write_text(text)
        for serving in (False, True):
            built = build(load_settings([file]), serving=serving, state=tmp_path / "state")
            gate = built.ex.options.gate
            assert gate is not None
            present = gate.present
            assert present is not None
            assert [present(Caller(id=name, method=API_KEY)) is None for name in ("ann", "bob")] == [False, True]
            asyncio.run(built.ex.aclose())
            built.close()
