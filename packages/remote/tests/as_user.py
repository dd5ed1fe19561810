"""A remote runtime that an ordinary user serves: `python -m packages.remote.tests.as_user USER '{"kind": ..., ...}'`.

The process begins as root, which may read this tree: it serves a program to itself, so that all is imported, becomes the
user with the number USER, and then serves as `packages.remote.tests.process` does.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from typing import Any

from packages.remote.tests.process import serve
from packages.remote.tests.processes import KEY
from tests.wall import run_alone

from toolexec.remote import RemoteSettings
from toolexec_remote import RemoteBackend


async def _once(kind: str, given: dict[str, Any]) -> None:
    """Serve one program as root, on the port that is to be the user's."""
    ready, stop = asyncio.Event(), asyncio.Event()
    with tempfile.TemporaryDirectory() as directory:
        serving = asyncio.create_task(serve(kind, {**given, "state_directory": directory}, ready.set, stop))
        await ready.wait()
        own: dict[str, Any] = {"key_id": KEY.id, "token": KEY.token, "signing_key": KEY.secret, "sandbox": kind}
        endpoint = f"http://{given['host']}:{given['port']}/v1/execute"
        assert await run_alone(RemoteBackend(RemoteSettings(endpoints=(endpoint,), **own)), "return 1") == 1
        stop.set()
        await serving


def _become(user: int) -> None:
    place = os.environ["TOOLEXEC_TEST_PLACE"]
    os.environ.update(HOME=place, TMPDIR=place, TOOLEXEC_CACHE=place)
    tempfile.tempdir = place
    sys.executable = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    os.chdir("/")
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


if __name__ == "__main__":
    asked = json.loads(sys.argv[2])
    asyncio.run(_once(asked["kind"], asked["settings"]))
    _become(int(sys.argv[1]))
    asyncio.run(serve(asked["kind"], asked["settings"]))
