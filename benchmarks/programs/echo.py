"""The tool that every program calls: three properties in, the same three out. Standard library only."""

from __future__ import annotations

from typing import Any

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}, "loud": {"type": "boolean"}},
    "required": ["text", "count", "loud"],
    "additionalProperties": False,
}
ARGS: dict[str, Any] = {"text": "hello", "count": 3, "loud": True}


async def answer(args: dict[str, Any]) -> dict[str, Any]:
    """The handler that takes all arguments as one dict."""
    return {"text": args["text"], "count": args["count"], "loud": args["loud"]}


def answer_sync(args: dict[str, Any]) -> dict[str, Any]:
    """The same without async."""
    return {"text": args["text"], "count": args["count"], "loud": args["loud"]}


async def echo(text: str, count: int, loud: bool) -> dict[str, str | int | bool]:
    """The handler with typed parameters."""
    return {"text": text, "count": count, "loud": loud}


def described(number: int) -> dict[str, Any]:
    """The definition of the *number*-th of many tools, as JSON data; no two have the same schema."""
    service, verb, noun = _SERVICES[number % 10], _VERBS[number // 10 % 10], _NOUNS[number // 100 % 10]
    return {
        "name": f"{verb}_{noun}_{number}",
        "namespace": service,
        "description": f"Use this to {verb} a {noun} of {service}, number {number}, and get back what it is now.",
        "inputSchema": {
            "type": "object",
            "properties": {
                f"{noun}_id": {"type": "string", "description": f"Which {noun}, out of {number + 1}"},
                "limit": {"type": "integer", "minimum": 1, "default": 10},
                "dry_run": {"type": "boolean", "description": "Only say what would happen"},
            },
            "required": [f"{noun}_id"],
        },
        "tags": [service, verb],
    }


_SERVICES = ("billing", "calendar", "chat", "crm", "deploy", "docs", "files", "git", "mail", "tickets")
_VERBS = ("archive", "assign", "create", "delete", "export", "find", "list", "merge", "move", "update")
_NOUNS = ("account", "branch", "comment", "event", "folder", "invoice", "label", "message", "project", "report")
