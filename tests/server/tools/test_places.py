"""list_backends."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from toolexec import Tool
from toolexec.model.origin import Caller
from toolexec.run.gate import Gate
from toolexec.server.tools.places import LIST_BACKENDS

from .conftest import Counter
from .test_finding import Hidden

ANY = {"type": "object"}


async def test_backends_and_sandboxes(counter: Counter) -> None:
    """Each place has its state and its number of tools; sandboxes say what surrounds the code."""
    value = await counter.value(LIST_BACKENDS)
    assert value["backends"] == [{"name": "local", "kind": "local", "available": True, "tools": 11}]
    sandbox = value["sandboxes"][0]
    assert (sandbox["kind"], sandbox["isolation"], sandbox["ready"]) == ("wasm", "wasm", True)
    assert "python" in sandbox["languages"]


async def test_without_code() -> None:
    """There are no sandboxes."""
    counter = Counter(enable_code_execution=False)
    assert "sandboxes" not in await counter.value(LIST_BACKENDS)
    await counter.ex.aclose()


async def test_nothing_secret_is_told() -> None:
    """Of what is down there is a reason: without command lines, environment, paths, URLs and what a process printed."""
    counter = Counter(start_timeout=30.0)
    program = [sys.executable, "-c", "import sys; print('Q-STDERR', file=sys.stderr); sys.exit(3)", "Q-ARGUMENT"]
    counter.ex.add_mcp("dies", command=program, env={"KEY": "Q-ENVIRONMENT"})
    counter.ex.add_mcp("missing", command="/opt/Q-PATH/server")
    counter.ex.add_mcp("away", url="http://user:Q-PASSWORD@127.0.0.1:9/Q-ROUTE?key=Q-QUERY", headers={"X": "Q-HEADER"})
    await counter.ex.start()  # the tool waits for 2 seconds only
    value = await counter.value(LIST_BACKENDS)
    down = {one["name"]: one for one in value["backends"] if not one["available"]}
    assert down.keys() == {"dies", "missing", "away"}
    assert all(one["reason"] and one["tools"] == 0 for one in down.values())
    assert "exit" in down["dies"]["reason"]
    assert "not found" in down["missing"]["reason"]
    assert "nothing answers" in down["away"]["reason"]
    assert "Q-" not in json.dumps(value)
    await counter.ex.aclose()


async def test_a_backend_whose_tools_are_hidden() -> None:
    """Such a backend is hidden too, and only visible tools are counted."""
    counter = Counter(gate=Gate(policy=Hidden()))
    for namespace in ("of-ann", "all"):
        counter.ex.add(Tool(name="a", namespace=namespace, input_schema=ANY), handler=lambda args: args)
    assert (await counter.value(LIST_BACKENDS))["backends"][0]["tools"] == 1
    counter.ex.index.unregister("all:a")
    assert (await counter.value(LIST_BACKENDS))["backends"] == []
    counter.origin = replace(counter.origin, caller=Caller(id="ann"))
    assert (await counter.value(LIST_BACKENDS))["backends"][0]["tools"] == 1
    await counter.ex.aclose()
