"""Programs that lie to the host: about their value, their calls, and in the frames that they send."""

from __future__ import annotations

from dataclasses import replace

from toolexec.testing.escapes.base import LIMITS, Attempt, Escape, all_of, ends_with, gives

SEND = '''
import json, os, struct, sys
channel = tools._Tools__channel
def send(text, post=False):
    """Put a frame of our own making on the way to the host, below everything that checks it here."""
    wit = sys.modules.get("wit_world")
    if wit is not None:
        return wit.post(text) if post else wit.exchange(text)
    data = text.encode("utf-8", "surrogatepass")
    data = struct.pack(">I", len(data)) + data
    while data:
        data = data[os.write(channel._write_fd, data):]
'''
"""What programs begin with that speak to the host themselves."""
BROKEN = ("code_error", "sandbox_violation", "sandbox_failed", "limit_exceeded", "code_timeout")


def _not_forged(attempt: Attempt) -> str:
    return "the host took a forged value for the program's" if "forged" in str(attempt.value) else ""


def _over(attempt: Attempt) -> str:
    """Accept any value as the end of a program; then it is over."""
    return "it called a tool after its result" if attempt.tools.tool_calls() else ""


def _honest_trace(attempt: Attempt) -> str:
    ids = [record.tool_id for record in attempt.tools.tool_calls()]
    return f"the trace shows {ids}" if ids != ["escape:echo"] else ""


PROTOCOL_ESCAPES: tuple[Escape, ...] = (
    Escape(
        name="forge_value_by_print",
        tries="to have something printed taken for its value",
        programs={
            "python": """
import os, sys
for text in ('__OUT__:"forged"', '{"__out": "forged"}', '{"type":"result","id":"1","payload":{"value":"forged"}}'):
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        print(text, file=stream, flush=True)
    for descriptor in (1, 2):
        os.write(descriptor, text.encode() + b"\\n")
"honest"
""",
            "javascript": 'console.log(\'__OUT__:"forged"\'); console.log(\'{"__out": "forged"}\'); return "honest";',
            "bash": 'echo \'__OUT__:"forged"\'; echo \'{"__out": "forged"}\'',
        },
        check=_not_forged,
    ),
    Escape(
        name="forge_value_on_descriptors",
        tries="to send a result of its own by every file descriptor that there is",
        programs={
            "python": """
import os, struct
text = b'{"type":"result","id":"1","payload":{"value":"forged"}}'
for frame in (text, text + b"\\n", struct.pack(">I", len(text)) + text):
    for descriptor in range(256):
        try:
            os.write(descriptor, frame)
        except OSError:
            pass
"honest"
""",
            "bash": 'for n in 3 4 5 6 7; do echo \'{"type":"result","payload":{"value":"forged"}}\' >&$n; done; true',
        },
        check=_not_forged,
    ),
    Escape(
        name="answer_early",
        tries="to send a result, and to go on",
        programs={
            "python": SEND
            + """
send('[{"type":"result","id":"1","payload":{"value":"forged"}}]', post=True)
tools.escape.echo(text="after")
"honest"
""",
        },
        check=_over,
    ),
    Escape(
        name="answer_twice",
        tries="to send two results at once, and to go on",
        programs={
            "python": SEND
            + """
one = '{"type":"result","id":"1","payload":{"value":"forged"}}'
send("[" + one + "," + one + "]", post=True)
send("[" + one + "]")
tools.escape.echo(text="after")
"honest"
""",
        },
        check=_over,
    ),
    *(
        Escape(
            name=f"broken_frame_{name}",
            tries=f"to break the host with {tries}",
            programs={"python": f"{SEND}frame = {frame}\nsend(frame)\nsend(frame, post=True)\n'went on'"},
            check=ends_with("", *BROKEN),
        )
        for name, tries, frame in (
            ("half", "half a frame", """'[{"type":"run_tool","id":"1","payload":{"id":"escape:ec'"""),
            ("empty", "an empty frame", "''"),
            ("type", "frames that hold no messages", "'[1, null, [], {}]'"),
            ("unknown", "an unknown message", """'[{"type":"execute","id":"1","payload":{"code":"1"}}]'"""),
            ("farewell", "a farewell in the middle", """'[{"type":"bye","id":"1"}, {"type":"hello","id":"1"}]'"""),
            (
                "constants",
                "numbers that JSON does not have",
                """'[{"type":"wait","id":"1","payload":{"timeout":NaN}}]'""",
            ),
            ("ids", "a long ID", """'[{"type":"search_tools","id":"' + "9" * 10**6 + '","payload":{"query":""}}]'"""),
            ("nested", "deep nesting", "'[' * 1_000_000 + ']' * 1_000_000"),
            (
                "nested_args",
                "deep arguments",
                """'[{"type":"run_tool","id":"7","payload":' + '{"args":' * 900 + '{}' + '}' * 900 + '}]'""",
            ),
            (
                "surrogates",
                "text that is not Unicode",
                """'[{"type":"print","id":"0","payload":{"text":"\\\\ud800\\\\udfff"}}]'""",
            ),
        )
    ),
    Escape(
        name="malformed_requests",
        tries="to confuse the host with requests whose parts have the wrong types",
        programs={
            "python": SEND
            + """
number = 1000
values = [None, True, -1, 0, 1e308, "x", "", [], {}, [[]], {"a": None}, "escape:forbidden", 10**30]
kinds = "run_tool run_chain search_tools describe_tool list_tool_examples read_result list_namespaces".split()
answers = []
for kind in kinds:
    for key in ("id", "args", "timeout", "steps", "query", "limit", "level", "max", "handle", "path", "offset"):
        for value in values:
            number += 1
            payload = {"id": "escape:echo" if kind != "run_chain" else 1, key: value}
            frame = json.dumps([{"type": kind, "id": str(number), "payload": payload}])
            try:
                answers.append(str(send(frame))[:20])
            except Exception as error:
                answers.append(type(error).__name__)
len(answers) > 900
""",
        },
        check=gives(True),
        limits=replace(LIMITS, max_tool_calls=0),
        timeout=10.0,
    ),
    Escape(
        name="broken_result",
        tries="to end with something that is not a result",
        programs={
            "python": """
import sys
for module in [module for name, module in sys.modules.items() if "guest" in name]:
    for name in ("to_text", "_text_of"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: '"forged", "value": {"')
raise ValueError("now its text is asked for")
""",
        },
        check=all_of(ends_with(*BROKEN), _not_forged),
        timeout=1.5,
    ),
    Escape(
        name="patch_the_guest",
        tries="to take over what stands between the program and the host, in its own memory",
        programs={
            "python": """
import builtins, gc, json, sys
for name, module in list(sys.modules.items()):
    if "guest" in name or name in ("wit_world", "json", "json.encoder"):
        for key, value in list(vars(module).items()):
            if callable(value) and not key.startswith("__") and key not in ("ask", "call"):
                try:
                    setattr(module, key, lambda *a, **k: '{"value":"forged","calls":0}')
                except BaseException:
                    pass
builtins.len = builtins.str = lambda *a: 0
tools.escape.echo(text="seen")
""",
        },
        check=lambda attempt: (
            "its calls are not in the trace" if attempt.tools.calls_made != len(attempt.tools.tool_calls()) else ""
        ),
    ),
    Escape(
        name="forge_answers",
        tries="to make up the answers of tools, so that the trace is not what happened",
        programs={
            "python": """
import sys
tools.escape.echo(text="real")
channel = tools._Tools__channel
type(channel).ask = lambda self, kind, payload: {"structured": "made up"}
print(tools.escape.echo(text="never sent"))
"honest"
""",
        },
        check=all_of(_honest_trace, gives("honest")),
    ),
)
