"""The program that looks into a Python program in its guest, made for one place to stop at."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from toolexec.model.json_value import JSONObject


def probe_program(wanted: JSONObject) -> str:
    """Return the source of a program that stops the next one in its guest where *wanted* says, and reports what it
    finds there; `python_probe.py` has the keys."""
    return f"{_source()}\ninstall(json.loads({json.dumps(wanted)!r}))\n"


def install_frame(source: str) -> str:
    """Return the message that has a guest run *source*, out of sight of the program that comes next: as one line, and
    in hexadecimal digits, so that nothing in it is taken for what a model wrote."""
    code = f"exec(compile(bytes.fromhex('{source.encode().hex()}').decode(), '<probe>', 'exec'), {{}})"
    return json.dumps({"type": "execute", "id": "1", "payload": {"code": code}})


@cache
def _source() -> str:
    return Path(__file__).with_name("python_probe.py").read_text("utf-8")
