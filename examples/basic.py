"""Run one tool: the result of a call that succeeds, of one that fails, and of an invalid one.

    python examples/basic.py

Prints:

    Result: Hello, World!
    Failed: math:divide raised ZeroDivisionError: division by zero
    Refused: 'nmae' is not a known name; did you mean 'name'?
    Refused: "name" is a required property
    Unknown: no tool demo:great; did you mean demo:greet?
"""

import asyncio

from toolexec import Exec, InputValidationError, ToolNotFoundError, tool


@tool(namespace="demo")
async def greet(name: str) -> str:
    """Greets a person by name."""
    return f"Hello, {name}!"


@tool(namespace="math")
async def divide(a: float, b: float) -> float:
    """Divides a by b."""
    return a / b


async def main() -> None:
    async with Exec() as ex:
        ex.add(greet)
        ex.add(divide)

        result = await ex.run_tool("demo:greet", {"name": "World"})
        print("Result:", result.value)

        # A tool that was called and failed is a result with an error.
        result = await ex.run_tool("math:divide", {"a": 1, "b": 0})
        print("Failed:", result.error)

        # A call that cannot be made raises. Nothing has run, and every violation is listed.
        try:
            await ex.run_tool("demo:greet", {"nmae": "World"})
        except InputValidationError as error:
            for violation in error.violations:
                print("Refused:", violation.message)

        try:
            await ex.run_tool("demo:great", {"name": "World"})
        except ToolNotFoundError as error:
            print("Unknown:", error)


if __name__ == "__main__":
    asyncio.run(main())
