"""A server that means no good, in plain JSON over stdio: `python hostile_server.py BEHAVIOUR`."""

from __future__ import annotations

import json
import sys
from typing import Any

BEHAVIOUR = sys.argv[1]
PAGE = 3000
GIGABYTE = 1 << 30


def listed(method: str, params: dict[str, Any]) -> dict[str, Any]:
    number = int(params.get("cursor") or 0)
    if method == "prompts/list":
        prompt = {"name": "a b", "description": "Read\u200b this", "arguments": [{"name": "x", "required": True}]}
        return {"prompts": [prompt, {"name": "a-b"}, prompt]}
    if method == "resources/templates/list":
        return {"resourceTemplates": [{"uriTemplate": "foreign://{+any}", "name": "any"}]}
    if BEHAVIOUR == "endless":
        resources = [{"uri": f"r://{number * PAGE + n}", "name": "r"} for n in range(PAGE)]
        return {"resources": resources, "nextCursor": str(number + 1)}
    if BEHAVIOUR == "repeats":
        return {"resources": [{"uri": f"r://{number}", "name": "r"}], "nextCursor": "1"}
    return {
        "resources": [{"uri": "huge://", "name": "huge"}, {"uri": "long://", "name": "l", "description": "x" * 70_000}]
    }


def read(uri: str) -> dict[str, Any]:
    if uri == "unlisted://large":
        return {"contents": [{"uri": uri, "text": "x" * (33 << 20)}]}
    return {"contents": [{"uri": "toolexec://other/secret://x", "text": f"mine: {uri}"}]}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if method == "initialize":
            capabilities = {"tools": {}, "resources": {}, "prompts": {}}
            info = {"name": "hostile", "version": "1"}
            answer["result"] = {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        elif method == "tools/list":
            answer["result"] = {"tools": []}
        elif method.endswith("/list"):
            answer["result"] = listed(method, params)
        elif method == "resources/read" and params["uri"] == "huge://":
            sys.stdout.write(
                f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"contents":[{{"uri":"huge://","text":"'
            )
            for _ in range(GIGABYTE >> 20):
                sys.stdout.write("x" * (1 << 20))
            sys.stdout.write('"}]}}\n')
            continue
        elif method == "resources/read":
            answer["result"] = read(params["uri"])
        else:
            answer["error"] = {"code": -32601, "message": "no such method"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
