"""Record the calls of an agent once, and run it again without its tools; see what a changed agent asks in vain.

    python examples/cassette.py

Prints:

    recorded: 3 units of tea, worth 13.5, with 2 calls
    replayed: 3 units of tea, worth 13.5, with 0 calls
    changed:  no call of shop:stock with the arguments {'item': 'coffee'} is recorded
    nearest:  call 1, item is 'coffee', and was 'tea'
"""

import tempfile
from pathlib import Path

from toolexec import Exec, tool
from toolexec.errors import CassetteMissError

calls: list[str] = []


@tool("shop:stock", read_only=True)
def stock(item: str) -> int:
    """Counts what is in stock."""
    calls.append("stock")
    return {"tea": 3, "coffee": 5}[item]


@tool("shop:price", read_only=True)
def price(item: str) -> float:
    """Looks up a price."""
    calls.append("price")
    return {"tea": 4.5, "coffee": 6.0}[item]


def agent(ex: Exec, item: str) -> str:
    """Ask two tools, and put the answers together."""
    with ex.sync as session:
        units = session.run_tool("shop:stock", {"item": item}).value
        worth = units * session.run_tool("shop:price", {"item": item}).value
    return f"{units} units of {item}, worth {worth}"


def main() -> None:
    """Record, replay, and replay another agent."""
    with tempfile.TemporaryDirectory() as directory:
        cassette = Path(directory) / "stock.yaml"
        live = Exec(cassette=cassette, cassette_mode="record")
        live.add(stock)
        live.add(price)
        print(f"recorded: {agent(live, 'tea')}, with {len(calls)} calls")
        calls.clear()
        print(f"replayed: {agent(Exec(cassette=cassette), 'tea')}, with {len(calls)} calls")
        try:
            agent(Exec(cassette=cassette), "coffee")
        except CassetteMissError as error:
            print(f"changed:  {str(error).partition(' in ')[0]}")
            nearest = error.nearest[0]
            print(f"nearest:  call {nearest['number']}, {nearest['differs'][0]}")


if __name__ == "__main__":
    main()
