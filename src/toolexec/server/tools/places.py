"""The tool that lists where tools live and code runs: list_backends."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Final

from toolexec.backend.base import BackendStatus
from toolexec.discovery.index import Index
from toolexec.discovery.preparing import off_loop_if_many
from toolexec.model.json_value import JSONDict
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.schemas import ANY, FLAG, TEXT, closed
from toolexec.server.tools.starting import settle
from toolexec.server.tools.wording import public_reason


async def _list(call: MetaCall) -> MetaReply:
    ex = call.ex
    await settle(ex)
    index, _ = ex.visible()
    seen = await off_loop_if_many(index, partial(_per_backend, index))
    every = await off_loop_if_many(ex.everything, partial(_per_backend, ex.everything))
    # A backend all of whose tools are hidden from the caller is hidden, too.
    shown = [status for status in ex.backend_statuses() if seen[status.name] or not every[status.name]]
    value: JSONDict = {"backends": [_backend(status, seen[status.name]) for status in shown]}
    if ex.options.enable_code_execution:
        value["sandboxes"] = await _sandboxes(call)
    return MetaReply(value=value)


def _per_backend(index: Index) -> Counter[str]:
    return Counter(binding.backend for entry in index.tools() for binding in entry.bindings)


def _backend(status: BackendStatus, tools: int) -> JSONDict:
    data: JSONDict = {
        "name": status.name,
        "kind": status.kind,
        "available": status.available,
        "tools": tools,
    }
    if not status.available:
        data["reason"] = public_reason(status.reason)
    return data


async def _sandboxes(call: MetaCall) -> list[JSONDict]:
    """Return the sandboxes that may run code here by default, the preferred one first."""
    profile = call.ex.options.security_profile.replace("wasm", "standard")
    found: list[JSONDict] = []
    for backend in call.ex.runtime.candidates(profile):
        state = await backend.check()
        data: JSONDict = {
            "kind": backend.kind,
            "isolation": backend.isolation,
            "languages": sorted(backend.languages),
            "ready": state.ok,
        }
        found.append(data if state.ok else {**data, "reason": public_reason(state.reason)})
    return found


_BACKEND: Final = closed(
    {"name": TEXT, "kind": TEXT, "available": FLAG, "tools": ANY, "reason": ANY},
    ["name", "kind", "available"],
)
_SANDBOX: Final = closed(
    {"kind": TEXT, "isolation": TEXT, "ready": FLAG, "languages": ANY, "reason": ANY},
    ["kind"],
)

LIST_BACKENDS: Final = MetaTool(
    name="list_backends",
    description="Backends and sandboxes, and what is down.",
    input_schema=closed({}),
    output_schema=closed(
        {"backends": {"type": "array", "items": _BACKEND}, "sandboxes": {"type": "array", "items": _SANDBOX}},
        ["backends"],
    ),
    handle=_list,
    cause="describe",
)
