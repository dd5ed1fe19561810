"""What sandboxes of other machines are written with, beside `toolexec.sandbox`: settings, frames, runs, and lending.

A client sends programs to a server and answers the calls of their tools; the server lends what a `Runtime` has.
toolexec-remote is written with these names and those of `toolexec.sandbox`, and with no others of toolexec's inside.
See docs/extending.md.

>>> from toolexec.remote import SigningKey
>>> SigningKey(id="agents-2026", token="a-token-for-this-page").account
'agents-2026'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.failures import cancel_begun
    from toolexec.backend.secrets import SecretResolver
    from toolexec.cli.lending import Lending, Reload, check_lending, lend
    from toolexec.code.limits import CountedGateway, trace_of
    from toolexec.code.types import Stream, ToolCallRecord
    from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, NotJSONError, to_json, to_json_lossy
    from toolexec.net.address import look_up, refusal
    from toolexec.net.hosts import HostRule, is_address, plain_host, read_rule
    from toolexec.net.outcomes import outcome_of_status, retry_after
    from toolexec.process.database import move_log, open_database, open_for_reading, use_wal
    from toolexec.process.directory import check_names
    from toolexec.process.lock import try_lock
    from toolexec.process.owner import is_orphan, this_owner
    from toolexec.process.poll import pauses
    from toolexec.process.settling import to_the_end, uncut
    from toolexec.run.ceilings import refuse_above
    from toolexec.run.large import is_small, json_pieces, walked
    from toolexec.runtime.base import LANGUAGES, judged_kind
    from toolexec.runtime.claims import claims_interrupt
    from toolexec.runtime.contract import ISOLATIONS
    from toolexec.runtime.guest.python.protocol import MAX_FRAME_BYTES
    from toolexec.runtime.json_text import AS_JSON, JSONText
    from toolexec.runtime.priority import CORES, GIVES_WAY, part_of_cores, ranked
    from toolexec.runtime.protocol.connections import Connection, StreamConnection
    from toolexec.runtime.protocol.messages import REQUESTS, decode_frame, encode_message
    from toolexec.runtime.protocol.serving import serve_gateway
    from toolexec.runtime.protocol.wire import error_payload, read_error, read_steps
    from toolexec.runtime.remote.keys import SKEW, SigningKey
    from toolexec.runtime.remote.proxmox_settings import ProxmoxSettings
    from toolexec.runtime.remote.server_settings import MAX_HEAD_BYTES, RuntimeServerSettings, TenantQuota
    from toolexec.runtime.remote.settings import RemoteSettings
    from toolexec.runtime.router import Runtime, effective_profile
    from toolexec.runtime.sandboxes import SandboxSettings, make_runtime
    from toolexec.runtime.sessions import GuestSession, Stop
    from toolexec.server.http.turns import Turns
    from toolexec.server.short_steps import short_steps
else:
    _HOMES = {
        "toolexec.backend.failures": ("cancel_begun",),
        "toolexec.backend.secrets": ("SecretResolver",),
        "toolexec.cli.lending": ("Lending", "Reload", "check_lending", "lend"),
        "toolexec.code.limits": ("CountedGateway", "trace_of"),
        "toolexec.code.types": ("Stream", "ToolCallRecord"),
        "toolexec.model.json_value": (
            "JSONDict",
            "JSONObject",
            "JSONValue",
            "NotJSONError",
            "to_json",
            "to_json_lossy",
        ),
        "toolexec.net.address": ("look_up", "refusal"),
        "toolexec.net.hosts": ("HostRule", "is_address", "plain_host", "read_rule"),
        "toolexec.net.outcomes": ("outcome_of_status", "retry_after"),
        "toolexec.process.database": ("move_log", "open_database", "open_for_reading", "use_wal"),
        "toolexec.process.directory": ("check_names",),
        "toolexec.process.lock": ("try_lock",),
        "toolexec.process.owner": ("is_orphan", "this_owner"),
        "toolexec.process.poll": ("pauses",),
        "toolexec.process.settling": ("to_the_end", "uncut"),
        "toolexec.run.ceilings": ("refuse_above",),
        "toolexec.run.large": ("is_small", "json_pieces", "walked"),
        "toolexec.runtime.base": ("LANGUAGES", "judged_kind"),
        "toolexec.runtime.claims": ("claims_interrupt",),
        "toolexec.runtime.contract": ("ISOLATIONS",),
        "toolexec.runtime.guest.python.protocol": ("MAX_FRAME_BYTES",),
        "toolexec.runtime.json_text": ("AS_JSON", "JSONText"),
        "toolexec.runtime.priority": ("CORES", "GIVES_WAY", "part_of_cores", "ranked"),
        "toolexec.runtime.protocol.connections": ("Connection", "StreamConnection"),
        "toolexec.runtime.protocol.messages": ("REQUESTS", "decode_frame", "encode_message"),
        "toolexec.runtime.protocol.serving": ("serve_gateway",),
        "toolexec.runtime.protocol.wire": ("error_payload", "read_error", "read_steps"),
        "toolexec.runtime.remote.keys": ("SKEW", "SigningKey"),
        "toolexec.runtime.remote.proxmox_settings": ("ProxmoxSettings",),
        "toolexec.runtime.remote.server_settings": ("MAX_HEAD_BYTES", "RuntimeServerSettings", "TenantQuota"),
        "toolexec.runtime.remote.settings": ("RemoteSettings",),
        "toolexec.runtime.router": ("Runtime", "effective_profile"),
        "toolexec.runtime.sandboxes": ("SandboxSettings", "make_runtime"),
        "toolexec.runtime.sessions": ("GuestSession", "Stop"),
        "toolexec.server.short_steps": ("short_steps",),
        "toolexec.server.http.turns": ("Turns",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "AS_JSON",
    "CORES",
    "GIVES_WAY",
    "ISOLATIONS",
    "LANGUAGES",
    "MAX_FRAME_BYTES",
    "MAX_HEAD_BYTES",
    "REQUESTS",
    "SKEW",
    "Connection",
    "CountedGateway",
    "GuestSession",
    "HostRule",
    "JSONDict",
    "JSONObject",
    "JSONText",
    "JSONValue",
    "Lending",
    "NotJSONError",
    "ProxmoxSettings",
    "Reload",
    "RemoteSettings",
    "Runtime",
    "RuntimeServerSettings",
    "SandboxSettings",
    "SecretResolver",
    "SigningKey",
    "Stop",
    "Stream",
    "StreamConnection",
    "TenantQuota",
    "ToolCallRecord",
    "Turns",
    "cancel_begun",
    "check_lending",
    "check_names",
    "claims_interrupt",
    "decode_frame",
    "effective_profile",
    "encode_message",
    "error_payload",
    "is_address",
    "is_orphan",
    "is_small",
    "json_pieces",
    "judged_kind",
    "lend",
    "look_up",
    "make_runtime",
    "move_log",
    "open_database",
    "open_for_reading",
    "outcome_of_status",
    "part_of_cores",
    "pauses",
    "plain_host",
    "ranked",
    "read_error",
    "read_rule",
    "read_steps",
    "refusal",
    "refuse_above",
    "retry_after",
    "serve_gateway",
    "short_steps",
    "this_owner",
    "to_json",
    "to_json_lossy",
    "to_the_end",
    "trace_of",
    "try_lock",
    "uncut",
    "use_wal",
    "walked",
]
