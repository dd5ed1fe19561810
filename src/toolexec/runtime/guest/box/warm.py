"""What takes time the first time, done ahead of a program."""

from __future__ import annotations

from typing import Any

from ..python.channel import Channel
from ..python.main import Guest
from ..python.stream import new_loop, run_program

_USUAL = """
    asyncio base64 collections concurrent.futures contextlib copy csv dataclasses datetime decimal enum fractions
    functools hashlib html itertools json linecache math operator os pathlib random re shutil statistics string
    subprocess tempfile textwrap threading time traceback typing unicodedata urllib.parse uuid
"""
_PROGRAMS = (
    "x = [tools.a.b(c=1), f'{1}']\nprint(x)\nlen(x)",
    "import asyncio\nx = await tools.a.b(c=1)\nreturn await asyncio.gather(tools.a.b(c=1), tools.a.b(c=2))",
    "1 / 0",
)


def warm_up() -> None:
    """Import what programs usually need, and run some that leave no trace."""
    for name in _USUAL.split():
        try:
            __import__(name)
        except ImportError:  # an image may have less
            continue
    for code in _PROGRAMS:
        run_program(Guest(_Nobody(), new_loop), {"code": code})


class _Nobody(Channel):
    """A host that answers everything at once, and with the same."""

    def ask(self, kind: str, payload: Any) -> Any:
        """Implement `Channel.ask`."""
        return {"structured": 1}

    def submit(self, kind: str, payload: Any, listener: Any) -> str:
        """Implement `Channel.submit`."""
        import asyncio

        answer = {"type": "response", "payload": {"structured": 1}}
        asyncio.get_running_loop().call_soon(listener, answer)
        return "0"

    def settle(self, request_id: str) -> None:
        """Implement `Channel.settle`."""

    def post(self, kind: str, payload: Any) -> None:
        """Implement `Channel.post`."""
