"""How many tokens of context a task takes with FastMCP: plain, with its BM25 search, and in its code mode.

The same tasks and the same agent as in `benchmarks/context`, with what these servers offer: search and call, or search,
get_schema and execute. The first search is by the task's text. It does a fifth of the tasks, as FastMCP takes its time.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import typing
from statistics import median
from typing import Any

from fastmcp import Client, FastMCP
from fastmcp.experimental.transforms.code_mode import CodeMode
from fastmcp.server.transforms.search.bm25 import BM25SearchTransform
from fastmcp.tools import Tool

from benchmarks.context.long_tasks import long_tasks
from benchmarks.context.office_tasks import office_tasks
from benchmarks.context.services import calendar, crm, files, inventory, mail, notes, payments, repos, tickets
from benchmarks.context.shop_tasks import shop_tasks
from benchmarks.context.task import Task, filled
from benchmarks.context.tokens import compact, tokens
from benchmarks.meter import Meter, run_program
from benchmarks.ranking.labelled import operations

SERVICES = (calendar, crm, files, inventory, mail, notes, payments, repos, tickets)
FEW = 227
INTENTS = {
    f"{service.__name__.rpartition('.')[2]}_{name}": words
    for service in SERVICES
    for name, words in service.INTENTS.items()
}


def fresh() -> dict[str, Any]:
    """The functions of fresh services, by the names of their tools."""
    return {
        tool_id.replace(":", "_"): function
        for service in SERVICES
        for tool_id, function in service.make().functions.items()
    }


def server(current: dict[str, Any], total: int | None, *transforms: Any) -> FastMCP:
    """A server over the services and as many other operations as there are to be."""
    made = FastMCP("bench", transforms=list(transforms))
    for name, function in current.items():
        made.tool(_through(current, name, function), name=name)
    template = Tool.from_function(lambda: None, name="unneeded")
    for op in operations()[: None if total is None else total - len(current)]:
        data = op.to_dict()
        more = {"description": data["description"], "parameters": data["inputSchema"]}
        made.add_tool(template.model_copy(update={"name": f"{op.namespace}_{op.name}", **more}))
    return made


def _through(current: dict[str, Any], name: str, function: Any) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return current[name](*args, **kwargs)

    del call.__wrapped__
    call.__annotations__ = typing.get_type_hints(function)
    call.__signature__ = inspect.signature(function, eval_str=True)  # type: ignore[attr-defined]
    return call


def right_calls(task: Task) -> list[tuple[str, dict[str, Any]]]:
    """The calls of a task with the values that their arguments refer to."""
    functions, values, calls = fresh(), [], []
    for one in task.calls:
        args, name = filled(one.args, values), one.tool_id.replace(":", "_")
        calls.append((name, args))
        values.append(functions[name](**args))
    return calls


class Talk:
    """Counts as `benchmarks.context.replay` does."""

    def __init__(self, client: Any, fixed: int, task: Task) -> None:
        self.client = client
        self.context = fixed + tokens(task.text)
        self.billed = 0
        self.turns = 0

    async def call(self, name: str, /, **args: Any) -> str:
        """Call a tool; the text that the model reads."""
        self.turn()
        reply = await self.client.call_tool_mcp(name, args)
        text = "\n".join(part.text for part in reply.content if part.type == "text")
        assert not reply.is_error, text
        self.context += tokens(compact({"name": name, "arguments": args})) + tokens(text)
        return text

    def turn(self) -> None:
        """The model reads all that there is."""
        self.turns += 1
        self.billed += self.context


async def find(talk: Talk, search: str, names: list[str], first: str) -> None:
    """Search by the task's text, then for each tool that is missing. One that no search shows, not even by its name,
    is called all the same, which favours the peer."""
    known: set[str] = set()

    async def ask(query: str) -> None:
        text = await talk.call(search, query=query)
        known.update(name for name in names if re.search(rf"\b{name}\b", text))

    await ask(first)
    for words in (INTENTS, {name: name.replace("_", " ") for name in names}):
        for name in names:
            if name not in known:
                await ask(words[name])


async def do(talk: Talk, kind: str, task: Task) -> None:
    """Do a task."""
    calls = right_calls(task)
    names = list(dict.fromkeys(name for name, _ in calls))
    if kind == "code":
        await find(talk, "search", names, task.text)
        await talk.call("get_schema", tools=names)
        lines = [f"r{n} = await call_tool({json.dumps(name)}, {args!r})" for n, (name, args) in enumerate(calls)]
        await talk.call("execute", code="\n".join([*lines, f"return r{len(calls) - 1}"]))
    else:
        if kind == "search":
            await find(talk, "search_tools", names, task.text)
        for name, args in calls:
            await (talk.call("call_tool", name=name, arguments=args) if kind == "search" else talk.call(name, **args))
    talk.turn()


async def main(meter: Meter) -> None:
    """All ways, with few tools and with all."""
    every = [*office_tasks(), *shop_tasks(), *long_tasks()]
    chosen = every[:: 20 if meter.quick else 5]
    for size, total in (("few", FEW), ("all", None)):
        for kind, transforms in (("plain", ()), ("search", (BM25SearchTransform(),)), ("code", (CodeMode(),))):
            current = fresh()
            async with Client(server(current, total, *transforms)) as client:
                tools = await client.list_tools()
                listed = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools]
                keys = ("name", "description", "inputSchema")
                shown = [{key: one[key] for key in keys if key in one} for one in listed]
                fixed = sum(tokens(compact(one)) for one in shown)
                talks: list[Talk] = []
                for task in chosen:
                    current |= fresh()
                    talks.append(Talk(client, fixed, task))
                    await do(talks[-1], kind, task)
            key = f"context_peers.{size}.{kind}"
            meter.record(f"{key}.fixed", fixed)
            meter.record(f"{key}.context", sum(talk.context for talk in talks) / len(talks))
            meter.record(f"{key}.billed", sum(talk.billed for talk in talks) / len(talks))
            meter.record(f"{key}.turns", median(talk.turns for talk in talks))


if __name__ == "__main__":
    run_program(main)
