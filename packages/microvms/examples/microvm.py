"""Run code in a virtual machine of its own, restored from a snapshot; see ../README.md.

    python packages/microvms/examples/microvm.py

It needs QEMU and an image (toolexec image build --kind vm); without them there is nothing to show. The first run boots
a machine and saves it.

Prints:

    6 * 7 = 42, on Linux 6.1.0-50-cloud-amd64
    ran in qemu (isolation vm), restored: True
    two machines from one snapshot draw other numbers: True
    a program that fills its memory: limit_exceeded
    the next one: fine
"""

import asyncio
import sys

from toolexec import Exec, Limits, SandboxUnavailableError
from toolexec_microvms import MicrovmBackend, MicrovmConfig

PROGRAM = """
import platform
answer = tools.math.multiply(a=6, b=7)
return f"6 * 7 = {answer}, on Linux {platform.release()}"
"""


def multiply(a: int, b: int) -> int:
    return a * b


async def main() -> None:
    backend = MicrovmBackend(MicrovmConfig(vmm="qemu", limits=Limits(memory_bytes=96 << 20)))
    async with Exec(runtime_backends=[backend], security_profile="hardened") as ex:
        ex.add(multiply, "math:multiply")
        try:
            result = await ex.execute_code(PROGRAM, timeout=30)
        except SandboxUnavailableError as error:
            print("microvm: not here")
            if sys.stderr.isatty():
                print(error, file=sys.stderr)
            return
        print(result.raise_for_error().value)
        where = result.backend
        print(f"ran in {where.kind} (isolation {where.isolation}), restored: {where.details['restored']}")
        drawn = [(await ex.execute_code("import random\nreturn random.random()")).value for _ in range(2)]
        print("two machines from one snapshot draw other numbers:", drawn[0] != drawn[1])
        result = await ex.execute_code("x = []\nwhile True: x.append(bytearray(1 << 20))")
        print("a program that fills its memory:", result.error.code)
        print("the next one:", (await ex.execute_code("return 'fine'")).value)


if __name__ == "__main__":
    asyncio.run(main())
