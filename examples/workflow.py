"""Run a workflow, see its mistakes before it runs, and make it a tool.

    python examples/workflow.py

Prints:

    three branches at once: {'oslo': -3, 'rome': 14, 'lima': 19}
    3 mistakes:
      3:6: weather:temperature needs city; add city: ..., a string
      3:34: weather:temperature has no town; there are city
      4:7: ciy is not defined; did you mean city?
    plan: weather:temperature {'city': 'rome'}
    skill:coldest -> oslo
"""

import asyncio

from toolexec import Exec, tool
from toolexec.workflow.parser import parse
from toolexec.workflow.plan import plan

DEGREES = {"oslo": -3, "rome": 14, "lima": 19}

AT_ONCE = """
return parallel {
    oslo: run("weather:temperature", {city: "oslo"})
    rome: run("weather:temperature", {city: "rome"})
    lima: run("weather:temperature", {city: "lima"})
}
"""

WRONG = """
city := "oslo"
x := run("weather:temperature", {town: city})
print(ciy, x)
"""

COLDEST = """+++
name = "coldest"
description = "Says which of several cities is the coldest"
+++
input cities: list[string]

rows := parallel for city in cities limit 4 {
    {city, degrees: run("weather:temperature", {city})}
}
return first(sort(rows, "degrees")).city
"""


@tool("weather:temperature", read_only=True)
async def temperature(city: str) -> int:
    """Gives the temperature in a city."""
    return DEGREES[city]


async def main() -> None:
    async with Exec() as ex:
        ex.add(temperature)
        result = await ex.run_workflow(AT_ONCE)
        print("three branches at once:", result.value)

        error = (await ex.run_workflow(WRONG)).error
        assert error is not None
        found = error.details["findings"]
        print(f"{len(found)} mistakes:")
        for each in found:
            print(f"  {each['line']}:{each['column']}: {each['message']}; {each['suggestion']}")

        source = 'input city: string\nrun("weather:temperature", {city: lower(city)})'
        (call,) = plan(parse(source), source, {"city": "ROME"})
        print("plan:", call.tool_id, call.args)

        skill = ex.add_skill(COLDEST)
        print(skill.id, "->", (await ex.run_tool(skill.id, {"cities": ["rome", "oslo"]})).value)


if __name__ == "__main__":
    asyncio.run(main())
