"""The server's tool `read_result`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from toolexec import Exec
from toolexec.errors import InputValidationError, ResultNotFoundError
from toolexec.model.origin import HERE, Origin
from toolexec.model.schema import Schema
from toolexec.run.results import ResultStore
from toolexec.server.tools.base import MetaCall, MetaReply
from toolexec.server.tools.results import READ_RESULT

TEXT = "".join(f"line {number}\n" for number in range(2000))
ROWS = {"rows": [{"id": number, "body": "x" * 5000 if number == 3 else "y"} for number in range(500)]}


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    async with Exec() as made:
        yield made


async def read(ex: Exec, store: ResultStore, origin: Origin = HERE, **args: Any) -> MetaReply:
    """Call the tool and return its answer; arguments and answer fit its schemas."""
    assert Schema.of(READ_RESULT.input_schema).violations(args) == ()
    reply = await READ_RESULT.handle(MetaCall(ex=ex, args=args, origin=origin, results=store))
    assert Schema.of(READ_RESULT.output_schema).violations(dict(reply.value)) == ()
    return reply


async def test_text_is_read_as_text(ex: Exec) -> None:
    """A model reads the piece itself, and where the next one begins."""
    store = ResultStore(2000)
    handle = store.show(TEXT, HERE).handle
    reply = await read(ex, store, handle=handle)
    assert reply.text.startswith("line 0\nline 1\n")
    assert reply.text.endswith(f"of {len(TEXT):,}; offset {reply.value['next']} reads on]")
    last = await read(ex, store, handle=handle, offset=len(TEXT) - 5)
    assert last.text == f"1999\n\n[toolexec: characters {len(TEXT) - 5:,} to {len(TEXT):,} of {len(TEXT):,}]"


@pytest.mark.parametrize(
    ("args", "kind"),
    [
        ({}, "object"),
        ({"path": "rows", "offset": 2}, "array"),
        ({"path": "rows", "offset": 3, "limit": 1}, "array"),
        ({"path": "rows[3].body"}, "text"),
        ({"path": "rows[0].id"}, "value"),
        ({"path": "rows[*].id | [0:3]"}, "array"),
        ({"grep": "/^49[0-9]$/", "max_bytes": 1000}, "matches"),
        ({"as_json": True, "limit": 10}, "json"),
    ],
)
async def test_every_reply_fits_the_schema_that_clients_are_told(ex: Exec, args: dict[str, Any], kind: str) -> None:
    """Pages of all kinds satisfy the output schema."""
    store = ResultStore(2000)
    reply = await read(ex, store, handle=store.show(ROWS, HERE).handle, **args)
    assert reply.value["kind"] == kind


async def test_others_handles_and_wrong_paths_are_errors_in_words(ex: Exec) -> None:
    """An unreadable handle raises, and the server makes a reply of that."""
    store = ResultStore(2000)
    handle = store.show(ROWS, Origin(session="a")).handle
    with pytest.raises(ResultNotFoundError):
        await read(ex, store, Origin(session="b"), handle=handle)
    with pytest.raises(InputValidationError, match="its keys: rows"):
        await read(ex, store, Origin(session="a"), handle=handle, path="nothing")


async def test_unknown_arguments_are_refused() -> None:
    """The input schema is closed, and wants a handle."""
    schema = Schema.of(READ_RESULT.input_schema)
    assert schema.violations({"handle": "x", "file": "y"})
    assert schema.violations({})
    assert READ_RESULT.read_only
