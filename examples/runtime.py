"""Choose where code runs: security profiles, sandboxes of your own, raw WebAssembly modules.

    python examples/runtime.py

Prints:

    standard: 2 (in wasm, isolation wasm)
    the host's files: FileNotFoundError: [Errno 44] No such file or directory: '/etc/passwd'
    dev without the opt-in: sandbox_denied
    log: UNSAFE: python code of 12 characters runs on the host (mode subprocess)
    dev: ok (in unsafe_host, isolation none)
    a module from wasm_module: 42 (in wasm, isolation wasm)
    a module from wasm_module_b64: 42 (in wasm, isolation wasm)
    our own sandbox: small (in wasm, isolation wasm)
    hardened, which nothing serves: sandbox_unavailable
    log: UNSAFE: python code of 26 characters runs on the host (mode subprocess)
    the runtime by itself: hello, after 1 tool call
"""

import asyncio
import base64
import logging
import sys
from contextlib import aclosing

from wasmtime import wat2wasm

from toolexec import Exec, ToolExecError
from toolexec.code import CodeResult, Limits, Tools
from toolexec.runtime import ExecuteRequest, Runtime
from toolexec.runtime.unsafe_host import UnsafeHostBackend
from toolexec.runtime.wasm import WasmBackend

# A module is usually a file produced by a compiler. This one returns 42.
MODULE = bytes(wat2wasm('(module (func (export "_start") (result i32) i32.const 42))'))


def show(title: str, result: CodeResult) -> None:
    print(f"{title}: {result.value} (in {result.backend.kind}, isolation {result.backend.isolation})")


async def profiles() -> None:
    async with Exec() as ex:
        # The default is the profile `standard`, served by the embedded sandbox.
        limits = Limits(max_tool_calls=100, memory_bytes=64 << 20, cpu_ms=60_000)
        show("standard", await ex.execute_code("__out = 1 + 1", limits=limits))
        result = await ex.execute_code('open("/etc/passwd").read()')
        print("the host's files:", str(result.error).partition(";")[0])  # and what to do instead

        # `dev` is this machine, without isolation. It needs an opt-in, and is logged as unsafe.
        try:
            await ex.execute_code('__out = "ok"', profile="dev")
        except ToolExecError as error:
            print("dev without the opt-in:", error.code)
        show("dev", await ex.execute_code('__out = "ok"', profile="dev", unsafe_opt_in=True))

        # Pass a raw WebAssembly module as bytes or as base64.
        for key, module in {"wasm_module": MODULE, "wasm_module_b64": base64.b64encode(MODULE).decode()}.items():
            show(f"a module from {key}", await ex.execute_code("", language="wasm", metadata={key: module}))


async def own_sandboxes() -> None:
    # Only the sandboxes of the mapping serve a profile. A run never moves to another profile.
    async with Exec(runtime_backends={"standard": WasmBackend(memory_bytes=64 << 20, max_guests=8)}) as ex:
        show("our own sandbox", await ex.execute_code('__out = "small"'))
        try:
            await ex.execute_code("1", profile="hardened")
        except ToolExecError as error:
            print("hardened, which nothing serves:", error.code)


async def by_hand() -> None:
    # The parts that an Exec assembles: a gateway to the tools, and a runtime that chooses the sandbox.
    ex = Exec()
    ex.add(lambda: "hello", "demo:hello")
    gateway = Tools(ex.index, ex.docs, ex.runner, limits=Limits(max_tool_calls=100))
    request = ExecuteRequest(
        language="python",
        code="__out = tools.demo.hello()",
        profile="dev",
        gateway=gateway,
        metadata={"unsafeOptIn": True},
    )
    async with aclosing(ex), aclosing(Runtime({"dev": UnsafeHostBackend()}, default_profile="dev")) as runtime:
        result = await runtime.execute(request)
    print(f"the runtime by itself: {result.value}, after {len(result.tool_calls)} tool call")


async def main() -> None:
    await profiles()
    await own_sandboxes()
    await by_hand()


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, format="log: %(message)s")
    asyncio.run(main())
