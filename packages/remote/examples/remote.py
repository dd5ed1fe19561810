"""Code on another machine, its tools here: a remote runtime, and an Exec that uses it.

Both are in one process for once. On a machine of its own the server is `toolexec runtime serve`; callers need nothing
but its address and a key, and it needs no way to reach them.

Prints:

    17 * 5 = 85
    ran in: remote, isolation: wasm
    memory is limited: True
    called here: ['math:multiply']
"""

import asyncio
import tempfile
from pathlib import Path
from secrets import token_urlsafe

from toolexec import Exec
from toolexec.runtime import Runtime
from toolexec.runtime.sandboxes import SandboxSettings
from toolexec.runtime.wasm import WasmBackend
from toolexec_remote import RemoteSettings, SigningKey
from toolexec_remote.server import RuntimeServerSettings, serve_runtime

CODE = """
product = tools.math.multiply(a=17, b=5)
print(f"17 * 5 = {product}")
"""


def multiply(a: int, b: int) -> int:
    return a * b


async def call_from(endpoint: str, key: SigningKey) -> None:
    """Run code there that calls a tool here."""
    remote = RemoteSettings(endpoints=(endpoint,), key_id=key.id, token=key.token, signing_key=key.secret)
    async with Exec(runtime_backends=SandboxSettings(use=("remote",), remote=remote)) as ex:
        ex.add(multiply, "math:multiply")
        result = (await ex.execute_code(CODE)).raise_for_error()
        print(result.stdout, end="")
        if result.backend is not None:
            print(f"ran in: {result.backend.kind}, isolation: {result.backend.isolation}")
        print("memory is limited:", result.limits_enforced.memory)
        print("called here:", [call.tool_id for call in result.tool_calls])


async def main(directory: Path) -> None:
    key = SigningKey(id="demo", token=token_urlsafe(32), secret=token_urlsafe(32))
    stop = asyncio.Event()
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with Runtime([WasmBackend()]) as runtime:
        settings = RuntimeServerSettings(port=0, keys=[key])
        serving = asyncio.create_task(serve_runtime(runtime, settings, directory, ready=address.set_result, stop=stop))
        await call_from(await address, key)
        stop.set()
        await serving


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))
