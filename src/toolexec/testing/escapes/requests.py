"""Programs that ask the host for more than they may have."""

from __future__ import annotations

import json
from dataclasses import replace

from toolexec.testing.escapes.base import LIMITS, Attempt, Escape, ends_with
from toolexec.testing.escapes.host import TRY
from toolexec.testing.escapes.protocol import BROKEN, SEND


def _calls_within(attempt: Attempt) -> str:
    made, most = attempt.tools.calls_made, attempt.tools.limits.max_tool_calls
    recorded = len(attempt.tools.tool_calls())
    return (
        f"{made} calls were counted and {recorded} recorded, {most} are allowed" if max(made, recorded) > most else ""
    )


def _small(attempt: Attempt) -> str:
    size = len(json.dumps(attempt.value))
    return f"the value has {size} characters" if size > 64 << 20 else ""


REQUEST_ESCAPES: tuple[Escape, ...] = (
    Escape(
        name="forbidden_tool",
        tries="to call a tool that it may not, or to learn of it",
        programs={
            "python": TRY
            + """
name = "escape:forbidden"
attempt("run", lambda: tools.run(name))
attempt("run_tool", lambda: tools.run_tool(name, {"anything": 1}))
attempt("attribute", lambda: tools.escape.forbidden())
attempt("item", lambda: tools[name]())
attempt("getattr", lambda: getattr(getattr(tools, "escape"), "forbidden")())
attempt("chain", lambda: tools.run_chain([{"tool_id": "escape:echo", "args": {"text": 1}}, {"tool_id": name}]))
attempt("previous", lambda: tools.run_chain([{"tool_id": name, "use_previous": True}]))
for other in (name + ":", name + ":1.0.0", ":forbidden", "forbidden", " escape:forbidden", "escape:forbidden ",
              "Escape:Forbidden", "escape:*", "*", "escape::forbidden", "escape.forbidden", "escape/forbidden",
              "escape:echo:../forbidden", "escape:echo\\x00escape:forbidden", "escape:echo,escape:forbidden",
              "escape:forb\\u0131dden", "\\u200bescape:forbidden"):
    attempt(repr(other), lambda: tools.run(other))
attempt("search", lambda: tools.search("forbidden give away"))
attempt("search all", lambda: tools.search("", 1000))
attempt("describe", lambda: tools.describe(name))
attempt("examples", lambda: tools.examples(name))
attempt("close", lambda: tools.describe("escape:forbiden"))
""",
            "javascript": """
const said = [];
for (const go of [() => tools.run("escape:forbidden"), () => tools.escape.forbidden(), () => tools.run("forbidden"),
    () => tools.runChain([{toolId: "escape:forbidden"}]), () => tools.describe("escape:forbidden"),
    () => tools.search("forbidden give away")]) {
  try { said.push(JSON.stringify(await go())); } catch (e) { said.push(String(e)); }
}
return said;
""",
        },
        limits=replace(LIMITS, max_tool_calls=0),
    ),
    Escape(
        name="forbidden_tool_by_frames",
        tries="to call a tool that it may not with requests of its own making",
        programs={
            "python": SEND
            + """
paths = [
    {"id": "escape:forbidden"}, {"id": "escape:forbidden", "path": True}, {"id": "forbidden", "path": True},
    {"id": "escape:echo", "toolId": "escape:forbidden"}, {"id": "escape:echo", "id ": "escape:forbidden"},
    {"id": ["escape:forbidden"]}, {"id": {"$handle": "h1"}}, {"id": "escape:..:forbidden", "path": True},
]
for number, payload in enumerate(paths, 100):
    print(send(json.dumps([{"type": "run_tool", "id": str(number), "payload": payload}])))
both = '{"type":"run_tool","id":"200","payload":{"id":"escape:echo","id":"escape:forbidden"}}'
print(send("[" + both + "]"))
print(send('[{"type":"run_chain","id":"201","payload":{"steps":[{"toolId":"escape:forbidden"}],"allowed":["*"]}}]'))
print(send('[{"type":"run_tool","type":"run_chain","id":"202","payload":{"steps":[{"id":"escape:forbidden"}]}}]'))
""",
        },
    ),
    Escape(
        name="exhaust_calls",
        tries="to make more calls than it may by not listening to the refusals",
        programs={
            "python": """
import asyncio
made = 0
async def one(number):
    global made
    try:
        await tools.escape.nap(seconds=0)
        made += 1
    except BaseException:
        pass
await asyncio.gather(*[one(number) for number in range(300)])
for number in range(300):
    try:
        tools.run("escape:echo", {"text": number})
        made += 1
    except BaseException:
        pass
    try:
        tools.run_chain([{"tool_id": "escape:echo"}] * 3)
        made += 3
    except BaseException:
        pass
made
""",
            "javascript": """
let made = 0;
for (let i = 0; i < 300; i++) { try { await tools.run("escape:echo", {text: i}); made++; } catch (e) {} }
return made;
""",
            "bash": 'for i in $(seq 60); do tool run escape:echo "{\\"text\\": $i}"; done >/dev/null 2>&1; true',
        },
        check=_calls_within,
    ),
    Escape(
        name="exhaust_calls_by_frames",
        tries="to make more calls than it may with requests of its own making",
        programs={
            "python": SEND
            + """
call = '{"type":"run_tool","id":"%d","payload":{"id":"escape:nap","args":{"seconds":0}}}'
send("[" + ",".join(call % number for number in range(100, 3100)) + "]", post=True)
for number in range(4000, 4100):
    send("[" + call % number + "]")
"done"
""",
        },
        check=_calls_within,
    ),
    Escape(
        name="many_requests_at_once",
        tries="to drown the host in requests that it does not wait for",
        programs={
            "python": SEND
            + """
ask = '{"type":"search_tools","id":"%d","payload":{"query":"echo"}}'
frame = "[" + ",".join(ask % number for number in range(100_000)) + "]"
for _ in range(3):
    send(frame, post=True)
"done"
""",
        },
        timeout=2.0,
    ),
    Escape(
        name="large_requests",
        tries="to have the host hold far more than the program may",
        programs={
            "python": SEND
            + """
call = '[{"type":"run_tool","id":"%d","payload":{"id":"escape:take","args":{"data":[' + "[]," * 5_000_000 + "[]]}}}]"
for number in range(5):
    try:
        send(call % number)
    except Exception as error:
        print(type(error).__name__)
""",
        },
        timeout=6.0,
    ),
    Escape(
        name="large_frame",
        tries="to send a frame over the limit",
        programs={"python": SEND + 'send("[" + "[]," * 12_000_000 + "[]]")\nsend("[]")'},
        check=ends_with("", *BROKEN),
    ),
    Escape(
        name="large_strings",
        tries="to have the host search for megabytes",
        programs={
            "python": TRY
            + """
text = "echo " * 2_000_000
attempt("search", lambda: tools.search(text))
attempt("describe", lambda: tools.describe("escape:" + "x" * 10_000_000))
attempt("run", lambda: tools.run("escape:" + "x" * 10_000_000))
attempt("path", lambda: tools.escape.large(items=2000).read("a" * 5_000_000))
""",
        },
        timeout=20.0,
    ),
    Escape(
        name="forge_handles",
        tries="to get at results that are not its own",
        programs={
            "python": TRY
            + """
mine = tools.escape.large(items=2000)
attempt("other", lambda: tools.escape.echo(text={"$handle": "h-AAAAAAAAAAAAAAAA"}))
attempt("path", lambda: mine.read("__class__"))
attempt("expression", lambda: mine.read("[*].{a: @, b: @, c: @}"))
for number in ("h0", "h-1", "../h1", "1"):
    mine._reader.remote.data = {**mine._reader.remote.data, "id": number}
    attempt(number, lambda: mine.read())
return {"$handle": "h-AAAAAAAAAAAAAAAA"}
""",
        },
    ),
    Escape(
        name="multiply_handles",
        tries="to have the host make a value out of a thousand handles",
        programs={
            "python": """
mine = tools.escape.large(items=5000)
try:
    tools.escape.echo(text=[mine] * 1000)
except Exception as error:
    print(type(error).__name__)
return [{"$handle": mine.id}] * 1000
""",
        },
        check=_small,
    ),
)
