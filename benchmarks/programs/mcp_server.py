"""A small MCP server over stdio with one tool, `echo`. Standard library only, so that it starts at once."""

from __future__ import annotations

import json
import sys
from typing import Any

_SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "loud": {"type": "boolean"}},
    "required": ["text", "count", "loud"],
}


def answer(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    """The result of a request; None for a method that this server does not have."""
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "bench-echo", "version": "1"},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [{"name": "echo", "description": "Gives its arguments back.", "inputSchema": _SCHEMA}]}
        case "tools/call":
            text = json.dumps(params.get("arguments", {}))
            return {"content": [{"type": "text", "text": text}], "isError": False}
    return None


def main() -> None:
    """Serve until stdin ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = answer(message["method"], message.get("params") or {})
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": f"there is no method {message['method']}"}
        else:
            reply["result"] = result
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
