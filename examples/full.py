"""Use all four layers together: define tools, find them, run and chain them, run code that calls them.

    python examples/full.py

Prints:

    Discovery found 1 tool for 'arithmetic'
      math:calculate - Basic arithmetic operations
    10 + 20 = 30
    Chain result: 16 (steps: 2)
    Code execution result: 300
    Tool calls made: 1
    Report: {'warmest': 'Bern', 'mean': 14.67}
    Tool calls made: 6
    It ran in wasm; enforced there: timeout, tool_calls, memory, cpu
"""

import asyncio
import operator
from typing import Any

from toolexec import DocEntry, Exec, LocalBinding, Step, Tool, ToolAnnotations
from toolexec.discovery import Discovery

OPERATIONS = {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "divide": operator.truediv}
TEMPERATURES = {"Bern": 21, "Oslo": 9, "York": 14}

# -- Layer 1: foundation. The tools and their handlers. --

NUMBER = {"type": "number"}
CALCULATE = Tool(
    name="calculate",
    namespace="math",
    description="Performs basic arithmetic",
    input_schema={
        "type": "object",
        "properties": {"operation": {"enum": [*OPERATIONS]}, "a": NUMBER, "b": NUMBER, "previous": NUMBER},
        "required": ["operation", "b"],
    },
    tags=["math", "calculator"],
    annotations=ToolAnnotations(read_only=True),
)
FORECAST = Tool(
    name="forecast",
    namespace="weather",
    description="Tells the temperature of a city",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    annotations=ToolAnnotations(read_only=True),
)


def calculate(args: dict[str, Any]) -> float:
    return OPERATIONS[args["operation"]](args.get("previous", args.get("a")), args["b"])


HANDLERS = {"calc-handler": calculate, "forecast-handler": lambda args: TEMPERATURES[args["city"]]}

# A program as a model could write it: it decides based on the values that it has read.
REPORT = """
import asyncio

cities = ["Bern", "Oslo", "York"]
degrees = await asyncio.gather(*(tools.weather.forecast(city=city) for city in cities))
total = 0
for number in degrees:
    total = await tools.math.calculate(operation="add", a=total, b=number)
return {"warmest": cities[degrees.index(max(degrees))], "mean": round(total / len(cities), 2)}
"""


async def main() -> None:
    # -- Layer 2: discovery. Register the tools, document them, search. --
    discovery = Discovery()
    doc = DocEntry(summary="Basic arithmetic operations", notes="Supports add, subtract, multiply, divide")
    discovery.register(CALCULATE, LocalBinding("calc-handler"), doc)
    discovery.register(FORECAST, LocalBinding("forecast-handler"))

    found = discovery.search("arithmetic", 10)
    print(f"Discovery found {len(found)} tool{'s' * (len(found) != 1)} for 'arithmetic'")
    for summary in found:
        print(f"  {summary.id} - {discovery.describe(summary.id, 'summary').summary}")

    settings = {"security_profile": "standard", "max_tool_calls": 50, "default_timeout": 30}
    async with Exec(index=discovery.index, docs=discovery.docs, local_handlers=HANDLERS, **settings) as ex:
        # -- Layer 3: execution. One call, then a chain. --
        result = await ex.run_tool("math:calculate", {"operation": "add", "a": 10, "b": 20})
        print(f"10 + 20 = {result.value}")
        chain = await ex.run_chain(
            [
                Step(tool_id="math:calculate", args={"operation": "add", "a": 5, "b": 3}),
                Step(tool_id="math:calculate", args={"operation": "multiply", "b": 2}, use_previous=True),
            ]
        )
        print(f"Chain result: {chain.value} (steps: {len(chain.steps)})")

        # -- Layer 4: code with access to the same tools, in a sandbox. --
        code = 'return tools.run("math:calculate", {"operation": "add", "a": 100, "b": 200})'
        ran = await ex.execute_code(code, timeout=10)
        print("Code execution result:", ran.value)
        print("Tool calls made:", len(ran.tool_calls))
        ran = await ex.execute_code(REPORT)
        print("Report:", ran.value)
        print("Tool calls made:", len(ran.tool_calls))
        held = [name for name in ("timeout", "tool_calls", "memory", "cpu") if getattr(ran.limits_enforced, name)]
        print(f"It ran in {ran.backend.kind}; enforced there: {', '.join(held)}")


if __name__ == "__main__":
    asyncio.run(main())
