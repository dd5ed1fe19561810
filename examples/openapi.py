"""Tools from an OpenAPI document: one line makes each operation of an API a tool, checked and called as any other.

The API runs on this machine, so that the example needs no network.

Prints:

    4 operations became tools; left out: none
    shop:create_order: may change things
    shop:delete_order: destructive
    shop:get_order: read-only
    shop:list_orders: read-only
    ordered: {'id': 1, 'item': 'tea', 'count': 2}
    refused before anything was sent: /count: 0 is less than the minimum of 1
    the service said no: 404, no order 7
    all orders: ['tea']
    requests that arrived: 3
"""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from toolexec import Exec
from toolexec.errors import InputValidationError

ID = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
PROPERTIES = {"item": {"type": "string"}, "count": {"type": "integer", "minimum": 1}}
ORDER = {"type": "object", "properties": PROPERTIES, "required": ["item", "count"]}
CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Order"}}}
ANSWERS = {"200": {"description": "Done.", "content": {"application/json": {"schema": {}}}}}


def operation(name: str, summary: str, **more: object) -> dict[str, object]:
    return {"operationId": name, "summary": summary, "responses": ANSWERS, **more}


SPEC = {
    "openapi": "3.1.0",
    "info": {"title": "A shop", "version": "1"},
    "components": {"schemas": {"Order": ORDER}},
    "paths": {
        "/orders": {
            "get": operation("list_orders", "Lists all orders."),
            "post": operation("create_order", "Orders something.", requestBody={"required": True, "content": CONTENT}),
        },
        "/orders/{id}": {
            "get": operation("get_order", "Reads an order.", parameters=[ID]),
            "delete": operation("delete_order", "Cancels an order.", parameters=[ID]),
        },
    },
}


class Shop(BaseHTTPRequestHandler):
    orders: ClassVar[list[dict[str, object]]] = []
    requests: ClassVar[int] = 0

    def do_GET(self) -> None:
        Shop.requests += 1
        number = int(self.path.rpartition("/")[2]) if self.path.count("/") > 1 else 0
        known = number <= len(self.orders)
        self.reply(200 if known else 404, self.orders if known else {"error": f"no order {number}"})

    def do_POST(self) -> None:
        Shop.requests += 1
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.orders.append({"id": len(self.orders) + 1, **order})
        self.reply(200, self.orders[-1])

    def reply(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


async def main(url: str) -> None:
    async with Exec() as ex:
        [status] = await ex.add_openapi("shop", SPEC, base_url=url)
        print(status.tools, "operations became tools; left out:", ", ".join(status.skipped) or "none")
        for found in sorted(await ex.search_tools(""), key=lambda each: each.id):
            hints = found.annotations
            about = "read-only" if hints.read_only else "destructive" if hints.destructive else "may change things"
            print(f"{found.id}: {about}")
        order = {"item": "tea", "count": 2}
        print("ordered:", (await ex.run_tool("shop:create_order", order)).value)
        try:
            await ex.run_tool("shop:create_order", {"item": "tea", "count": 0})
        except InputValidationError as error:
            print("refused before anything was sent:", *(f"{each.path}: {each.message}" for each in error.violations))
        failed = (await ex.run_tool("shop:get_order", {"id": 7})).error
        print(f"the service said no: {failed.details['status']}, {failed.details['body']['error']}")
        print(
            "all orders:", (await ex.execute_code("return [each['item'] for each in tools.shop.list_orders()]")).value
        )


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", 0), Shop) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(main(f"http://127.0.0.1:{server.server_address[1]}"))
        print("requests that arrived:", Shop.requests)
        server.shutdown()
