"""Every name that a user can misspell: the refusal names the nearest one that there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolexec import Exec, Limits, MCPServer, Options, Policy, Rule, Runtime, Step, Toolset, tool
from toolexec.adapter.registry import default_adapters
from toolexec.backend.registry import BackendRegistry
from toolexec.backend.secrets.resolver import SecretResolver
from toolexec.code.engine import Engines
from toolexec.code.types import ExecuteRequest
from toolexec.discovery.summary import Filters
from toolexec.errors import ToolExecError
from toolexec.model.binding import ProviderBinding, binding_from_dict
from toolexec.run.gate import Gate
from toolexec.run.layers.rate_limit import RateLimit
from toolexec.run.policy_conditions import Condition
from toolexec.runtime.containers.bubblewrap import BubblewrapConfig
from toolexec.runtime.containers.daemon import DaemonConfig
from toolexec.runtime.sandboxes import SandboxSettings
from toolexec.runtime.unsafe_host.backend import UnsafeConfig
from toolexec.runtime.wasm import WasmConfig
from toolexec.server.settings import ServeSettings


@tool("shop:price")
def price(item: str) -> float:
    """Tells a price."""
    return len(item) * 1.0


async def _with_exec(do: Callable[[Exec], Awaitable[Any]]) -> None:
    async with Exec() as ex:
        ex.add(price)
        await do(ex)


AT_ONCE: list[tuple[str, Callable[[], Any], str]] = [
    ("option", lambda: Exec(default_timout=3), "default_timeout"),  # type: ignore[call-arg]
    ("option of Options", lambda: Options(tol_resolver=None), "tool_resolver"),  # type: ignore[call-arg]
    ("profile", lambda: Exec(security_profile="harden"), "hardened"),  # type: ignore[arg-type]
    ("check", lambda: Exec(validate_output="strickt"), "strict"),  # type: ignore[arg-type]
    ("session", lambda: Exec().session(langauge="python"), "language"),  # type: ignore[call-arg]
    ("parameter of code", lambda: ExecuteRequest(code="1", timout=3), "timeout"),  # type: ignore[call-arg]
    ("limit", lambda: Limits(memory_byte=3), "memory_bytes"),  # type: ignore[call-arg]
    ("limit as data", lambda: Limits.from_dict({"memory_byte": 3}), "memory_bytes"),
    ("step", lambda: Step("a:b", use_previos=True), "use_previous"),  # type: ignore[call-arg]
    ("step as data", lambda: Step.from_dict({"tol": "a:b"}), "tool"),
    ("gate part", lambda: Gate(polcy=None), "policy"),  # type: ignore[call-arg]
    ("rate limit", lambda: RateLimit(per_toll="3/s"), "per_tool"),  # type: ignore[call-arg]
    ("rule", lambda: Rule("deny", tool="x"), "tools"),  # type: ignore[call-arg]
    ("rule as data", lambda: Rule.from_dict({"effect": "deny", "reasn": "x"}), "reason"),
    ("effect", lambda: Rule("denny"), "deny"),  # type: ignore[arg-type]
    ("default of a policy", lambda: Policy(default="alow"), "allow"),  # type: ignore[arg-type]
    ("policy as data", lambda: Policy.from_dict({"rule": []}), "rules"),
    ("operator", lambda: Condition("a", {"path_undr": "/"}), "path_under"),
    ("toolset", lambda: Toolset("x", namespace=["a"]), "namespaces"),  # type: ignore[call-arg]
    ("toolset as data", lambda: Toolset.from_dict({"nme": "x"}), "name"),
    ("filter", lambda: Filters(name_space="x"), "namespace"),  # type: ignore[call-arg]
    ("setting of a server", lambda: MCPServer(name="x", comand="y"), "command"),  # type: ignore[call-arg]
    ("added server", lambda: Exec().add_mcp("x", command="y", environ={}), "env"),  # type: ignore[call-arg]
    ("kind of backend", lambda: BackendRegistry().create("mpc", "x"), "mcp"),
    ("server as data", lambda: BackendRegistry().create("mcp", "x", {"comand": "y"}), "command"),
    ("kind of binding", lambda: binding_from_dict({"kind": "provder"}), "provider"),
    ("declaration", lambda: tool("a:b", destuctive=True), "destructive"),  # type: ignore[call-overload]
    ("part of a tool", lambda: price.tool.replace(descripton="x"), "description"),
    ("form", lambda: default_adapters().get("antropic"), "anthropic"),
    ("sandbox", lambda: SandboxSettings(use=("bublewrap",)), "bubblewrap"),
    ("setting of sandboxes", lambda: SandboxSettings(docker_hst="x"), "docker_host"),  # type: ignore[call-arg]
    ("profile of a runtime", lambda: Runtime(default_profile="standrd"), "standard"),
    ("wasm", lambda: WasmConfig(pool_sise=3), "pool_size"),  # type: ignore[call-arg]
    ("bubblewrap", lambda: BubblewrapConfig(max_runing=3), "max_running"),  # type: ignore[call-arg]
    ("pull policy", lambda: DaemonConfig(pull="allways"), "always"),  # type: ignore[arg-type]
    ("mode", lambda: UnsafeConfig(mode="subproces"), "subprocess"),  # type: ignore[arg-type]
    ("transport", lambda: ServeSettings(transport="htp"), "http"),  # type: ignore[arg-type]
    ("what is exposed", lambda: ServeSettings(expose="mta"), "meta"),  # type: ignore[arg-type]
    ("provider of secrets", lambda: SecretResolver().expand({"a": "secretref:enw:X"}, "here"), "env"),
    (
        "type in a schema",
        lambda: Exec().add(price.tool.replace(input_schema={"type": "objekt"}), handler=print),
        "object",
    ),
]


@pytest.mark.parametrize(("make", "meant"), [row[1:] for row in AT_ONCE], ids=[row[0] for row in AT_ONCE])
def test_at_once(make: Callable[[], Any], meant: str) -> None:
    """Refuses a misspelt name where the object is made."""
    with pytest.raises(ToolExecError, match=rf"did you mean '?{meant}'?\?"):
        make()


CALLS: list[tuple[str, Callable[[Exec], Awaitable[Any]], str]] = [
    ("tool", lambda ex: ex.run_tool("shop:prise"), "shop:price"),
    ("namespace", lambda ex: ex.run_tool("shp:price"), "shop:price"),
    ("argument", lambda ex: ex.run_tool("shop:price", {"itm": "x"}), "item"),
    ("level", lambda ex: ex.get_tool_doc("shop:price", "sumary"), "summary"),  # type: ignore[arg-type]
    ("setting of code", lambda ex: ex.execute_code("1", allowed_tool=[]), "allowed_tools"),  # type: ignore[call-arg]
    ("form", lambda ex: ex.export_tools("opnai"), "openai"),  # type: ignore[arg-type]
    ("setting of a form", lambda ex: ex.export_tools("openai", stric=True), "strict"),  # type: ignore[call-arg]
    ("filter of a search", lambda ex: ex.search_tools("x", filter=None), "filters"),  # type: ignore[call-arg]
    (
        "name of a step",
        lambda ex: ex.run_chain(
            [Step("shop:price", {"item": "x"}, name="first"), Step("shop:price", {"item": {"$ref": "frist"}})]
        ),
        "first",
    ),
]


@pytest.mark.parametrize(("do", "meant"), [row[1:] for row in CALLS], ids=[row[0] for row in CALLS])
async def test_calls(do: Callable[[Exec], Awaitable[Any]], meant: str) -> None:
    """Refuses a misspelt name of a call before anything runs."""
    with pytest.raises(ToolExecError, match=rf"did you mean '?{meant}'?\?"):
        await _with_exec(do)


async def test_a_backend() -> None:
    """A binding to a backend that is not there names the nearest one."""
    registry = BackendRegistry()
    registry.create("mcp", "github", {"command": "x"})
    from toolexec.model import MCPBinding

    with pytest.raises(ToolExecError, match=r"did you mean github\?"):
        registry.resolve(MCPBinding("githb", "x"))
    with pytest.raises(ToolExecError, match="there are none of this kind"):
        registry.resolve(ProviderBinding("githb", "x"))


async def test_a_language() -> None:
    """An engine says which of its languages was probably meant."""

    class Fake:
        languages = frozenset({"python", "javascript"})

    with pytest.raises(ToolExecError, match=r"did you mean python\?"):
        await Engines([Fake()]).execute(ExecuteRequest(code="1", language="pyton"), None)  # type: ignore[list-item, arg-type]
    async with Exec() as ex:
        with pytest.raises(ToolExecError, match=r"did you mean javascript\?"):
            await ex.execute_code("1", language="javascrpt")
        with pytest.raises(ToolExecError, match=r"did you mean standard\?"):
            await ex.execute_code("1", profile="standrd")
