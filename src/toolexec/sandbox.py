"""What a sandbox is written with: its object for toolexec, its members, what it claims, and what does the rest.

`SandboxPlugin` is what a distribution offers under the entry point group `toolexec.sandboxes`. A sandbox that starts
processes needs `run_guest`; one that starts containers of an engine is a `Launcher` with a `ContainerBackend` on top.
`toolexec.testing` has `check_sandbox`, which puts it through the same checks as those of toolexec. See
docs/extending.md, which has an example of each.

>>> from toolexec.sandbox import claim_limits
>>> claim_limits(
...     timeout=True, tool_calls=True, chain_steps=True, memory=False, cpu=False, cpus=False, pids=False, disk=False
... ).timeout
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.cli.options import AsJson, Config
    from toolexec.cli.plugin_commands import with_settings
    from toolexec.cli.terminal import Screen
    from toolexec.code.gateway import Gateway
    from toolexec.code.limits import Limits, LimitsEnforced
    from toolexec.code.types import BackendInfo, CodeResult, ExecuteRequest, Output
    from toolexec.model.settings import checked
    from toolexec.process.child import Child
    from toolexec.process.directory import WorkDirectory
    from toolexec.runtime.base import Availability, SandboxBackend, SandboxSession, SessionBackend, located
    from toolexec.runtime.claims import claim_limits, claim_resources
    from toolexec.runtime.containers.backend import ContainerBackend
    from toolexec.runtime.containers.config import ContainerConfig
    from toolexec.runtime.containers.engine import Container, ContainerEngine, Exit, Image
    from toolexec.runtime.containers.launcher import BaseContainer, ChildContainer, Launcher, held_by
    from toolexec.runtime.containers.run import guest_command, run_guest
    from toolexec.runtime.containers.spec import ContainerSpec
    from toolexec.runtime.outcome import Ending, judge
    from toolexec.runtime.plugin import PLUGIN_API, DoctorAdvice, DoctorPackage, SandboxContext, SandboxPlugin
    from toolexec.runtime.protocol.messages import GREETING, JSONCodec, Message
    from toolexec.runtime.protocol.proxy import ProxyGateway
    from toolexec.runtime.protocol.server import RequestServer
    from toolexec.runtime.runs import OwnRuns, Slots, language_of, result_of
else:
    _HOMES = {
        "toolexec.cli.options": ("AsJson", "Config"),
        "toolexec.cli.plugin_commands": ("with_settings",),
        "toolexec.cli.terminal": ("Screen",),
        "toolexec.code.gateway": ("Gateway",),
        "toolexec.code.limits": ("Limits", "LimitsEnforced"),
        "toolexec.code.types": ("BackendInfo", "CodeResult", "ExecuteRequest", "Output"),
        "toolexec.model.settings": ("checked",),
        "toolexec.process.child": ("Child",),
        "toolexec.process.directory": ("WorkDirectory",),
        "toolexec.runtime.base": ("Availability", "SandboxBackend", "SandboxSession", "SessionBackend", "located"),
        "toolexec.runtime.claims": ("claim_limits", "claim_resources"),
        "toolexec.runtime.containers.backend": ("ContainerBackend",),
        "toolexec.runtime.containers.config": ("ContainerConfig",),
        "toolexec.runtime.containers.engine": ("Container", "ContainerEngine", "Exit", "Image"),
        "toolexec.runtime.containers.launcher": ("BaseContainer", "ChildContainer", "Launcher", "held_by"),
        "toolexec.runtime.containers.run": ("guest_command", "run_guest"),
        "toolexec.runtime.containers.spec": ("ContainerSpec",),
        "toolexec.runtime.outcome": ("Ending", "judge"),
        "toolexec.runtime.plugin": ("PLUGIN_API", "DoctorAdvice", "DoctorPackage", "SandboxContext", "SandboxPlugin"),
        "toolexec.runtime.protocol.messages": ("GREETING", "JSONCodec", "Message"),
        "toolexec.runtime.protocol.proxy": ("ProxyGateway",),
        "toolexec.runtime.protocol.server": ("RequestServer",),
        "toolexec.runtime.runs": ("OwnRuns", "Slots", "language_of", "result_of"),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, unix_for="what sandboxes are written with")

__all__ = [
    "GREETING",
    "PLUGIN_API",
    "AsJson",
    "Availability",
    "BackendInfo",
    "BaseContainer",
    "Child",
    "ChildContainer",
    "CodeResult",
    "Config",
    "Container",
    "ContainerBackend",
    "ContainerConfig",
    "ContainerEngine",
    "ContainerSpec",
    "DoctorAdvice",
    "DoctorPackage",
    "Ending",
    "ExecuteRequest",
    "Exit",
    "Gateway",
    "Image",
    "JSONCodec",
    "Launcher",
    "Limits",
    "LimitsEnforced",
    "Message",
    "Output",
    "OwnRuns",
    "ProxyGateway",
    "RequestServer",
    "SandboxBackend",
    "SandboxContext",
    "SandboxPlugin",
    "SandboxSession",
    "Screen",
    "SessionBackend",
    "Slots",
    "WorkDirectory",
    "checked",
    "claim_limits",
    "claim_resources",
    "guest_command",
    "held_by",
    "judge",
    "language_of",
    "lazy_names",
    "located",
    "result_of",
    "run_guest",
    "with_settings",
]
