"""Run code in a pod of a Kubernetes cluster, with a tool of this process; see the README of toolexec-kubernetes.

    python packages/kubernetes/examples/kubernetes.py NAMESPACE IMAGE

The cluster is the one that `kubectl` uses; without one there is nothing to show.

Prints:

    6 * 7 = 42
    ran in kubernetes (isolation container)
    memory is held: True, CPU time is held: False
    a limit that is not held: limit_not_enforceable
"""

import asyncio
import sys

from toolexec import Exec, Limits, SandboxUnavailableError
from toolexec.errors import LimitNotEnforceableError
from toolexec_kubernetes import KubernetesBackend, KubernetesConfig

PROGRAM = """
answer = tools.math.multiply(a=6, b=7)
print("this is a pod")
return f"6 * 7 = {answer}"
"""


def multiply(a: int, b: int) -> int:
    return a * b


async def main(namespace: str, image: str) -> None:
    backend = KubernetesBackend(KubernetesConfig(namespace=namespace, image=image))
    async with Exec(runtime_backends=[backend]) as ex:
        ex.add(multiply, "math:multiply")
        try:
            result = await ex.execute_code(PROGRAM, timeout=120)
        except SandboxUnavailableError as error:
            print("kubernetes: not here")
            if sys.stderr.isatty():
                print(error, file=sys.stderr)
            return
        print(result.raise_for_error().value)
        print(f"ran in {result.backend.kind} (isolation {result.backend.isolation})")
        held = result.limits_enforced
        print(f"memory is held: {held.memory}, CPU time is held: {held.cpu}")
        try:
            await ex.execute_code("return 1", limits=Limits(cpu_ms=100))
        except LimitNotEnforceableError as error:
            print("a limit that is not held:", error.code)


if __name__ == "__main__":
    asyncio.run(main(*(sys.argv[1:] or ("default", "toolexec-sandbox"))))
