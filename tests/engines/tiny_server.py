"""An MCP server that needs nothing but Python: for sandboxes whose image has no more. `TINY` is its source."""

from __future__ import annotations

from typing import Final

TINY: Final = """
import concurrent.futures, http.client, json, os, socket, sys, time, urllib.parse

def reply(request, result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)

def look(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError as error:
        return type(error).__name__

def connect(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 3).close()
        return "connected"
    except OSError as error:
        return type(error).__name__

def fetch(url, method="GET", body=None):
    proxy = urllib.parse.urlsplit(os.environ["HTTP_PROXY"])
    connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=60)
    try:
        connection.request(method, url, body)
        answer = connection.getresponse()
        return f"{answer.status} {answer.read().decode()}"
    finally:
        connection.close()

def post(of):
    # A body of so many MiB to a URL, from eight threads at once.
    size, _, url = of.partition(" ")
    body = bytes(int(size) << 20)
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        return " ".join(threads.map(lambda _: fetch(url, "POST", body), range(8)))

def write(of):
    path, _, text = of.partition("=")
    try:
        with open(path, "w") as file:
            file.write(text)
        return "written"
    except OSError as error:
        return type(error).__name__ + str(error)

def grow(_):
    kept = []
    while True:
        kept.append(bytes(1 << 20))

def multiply(_):
    started = 0
    try:
        while started < 1000:
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
                os._exit(0)
            started += 1
    except OSError:
        pass
    return str(started)

def end(code):
    print("giving up", file=sys.stderr, flush=True)
    os._exit(int(code))

def variables(_):
    return json.dumps(dict(os.environ))

def user(_):
    return str(os.getuid())

def keep(text):
    with open("/work/kept", "a") as file:
        file.write(text)
    return look("/work/kept")

TOOLS = {each.__name__: each for each in (look, connect, fetch, post, write, grow, multiply, end, variables, user, keep)}
ONE = {"type": "object", "properties": {"of": {"type": "string"}}, "required": ["of"]}
NO_METHOD = {"code": -32601, "message": "unknown method"}

for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        capabilities = {"tools": {}}
        info = {"name": "tiny", "version": "1"}
        reply(message, {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info})
    elif method == "tools/list":
        reply(message, {"tools": [{"name": name, "inputSchema": ONE} for name in TOOLS]})
    elif method == "tools/call":
        text = TOOLS[message["params"]["name"]](message["params"]["arguments"]["of"])
        reply(message, {"content": [{"type": "text", "text": text}]})
    elif "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": NO_METHOD}), flush=True)
"""
"""Its tools take one string, `of`, and give one."""
