"""Export one set of tools to several providers' APIs, and answer the calls of their models: the messages are recorded.

    python examples/vendors.py

Prints:

    openai     shop__price(item: string, amount: ['integer', 'null'])  strict
    anthropic  shop__price(item: string, amount: integer)
    gemini     shop__price(item: string, amount: integer)
    what gemini does not hear about shop:order: tool:/annotations dropped

    OpenAI's model asks for three things at once:
      call_1 -> {"item": "tea", "euros": 6}
      call_2 -> tool_not_found: no tool shop__prize; did you mean shop__price or shop__order?
      call_3 -> validation_input: arguments of shop__price are not valid: (root): the arguments are not valid JSON

    Claude looks for a tool, and uses it:
      toolu_1 -> [{'type': 'tool_reference', 'tool_name': 'shop__order'}]
      toolu_2 -> ordered 2 tea

    Gemini's model, too:
      {'output': 'ordered 1 milk'}
"""

import asyncio
import json

from toolexec import Exec, tool

ASKED = [
    ("shop__price", '{"item": "tea", "amount": 2}'),
    ("shop__prize", '{"item": "tea"}'),
    ("shop__price", '{"item": "tea"'),
]
CHAT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(ASKED, start=1)
    ],
}
CLAUDE = {
    "role": "assistant",
    "content": [
        {"type": "text", "text": "I need a tool for orders."},
        {
            "type": "tool_use",
            "id": "toolu_1",
            "name": "search_tools",
            "input": {"query": "order something", "limit": 1},
        },
        {"type": "tool_use", "id": "toolu_2", "name": "shop__order", "input": {"item": "tea", "amount": 2}},
    ],
}
CALL = {"functionCall": {"name": "shop__order", "args": {"item": "milk", "amount": 1}}}
GEMINI = {"candidates": [{"content": {"role": "model", "parts": [CALL]}}]}


@tool(namespace="shop")
async def price(item: str, amount: int = 1) -> dict:
    """Tells what an item costs."""
    return {"item": item, "euros": 3 * amount}


@tool(namespace="shop", destructive=True)
async def order(item: str, amount: int) -> str:
    """Orders something from the shop."""
    return f"ordered {amount} {item}"


def signature(name: str, schema: dict) -> str:
    parts = ", ".join(f"{key}: {part['type']}" for key, part in schema["properties"].items())
    return f"{name}({parts})"


async def main() -> None:
    async with Exec() as ex:
        ex.add(price)
        ex.add(order)

        openai = await ex.export_tools("openai", strict=True)
        function = openai.tools[1]["function"]
        print("openai    ", signature(function["name"], function["parameters"]), " strict" * function["strict"])
        claude = await ex.export_tools("anthropic", search="client")
        print("anthropic ", signature(claude.tools[2]["name"], claude.tools[2]["input_schema"]))
        gemini = await ex.export_tools("gemini")
        declaration = gemini.tools[0]["functionDeclarations"][1]
        print("gemini    ", signature(declaration["name"], declaration["parameters"]))
        lost = [w for w in gemini.warnings if w.tool_id == "shop:order" and w.feature == "annotations"]
        print("what gemini does not hear about shop:order:", *(f"{w.path} {w.action}" for w in lost))

        print("\nOpenAI's model asks for three things at once:")
        for answer in await ex.handle_openai_tool_calls(CHAT, openai):
            value = json.loads(answer["content"])
            error = value.get("error")
            text = f"{error['code']}: {error['message'].split(': Expecting')[0]}" if error else answer["content"]
            print(f"  {answer['tool_call_id']} -> {text}")

        print("\nClaude looks for a tool, and uses it:")
        for block in await ex.handle_anthropic_tool_use(CLAUDE, claude):
            print(f"  {block['tool_use_id']} -> {block['content']}")

        print("\nGemini's model, too:")
        for part in await ex.handle_gemini_function_calls(GEMINI, gemini):
            print(f"  {part['functionResponse']['response']}")


if __name__ == "__main__":
    asyncio.run(main())
