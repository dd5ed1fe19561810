// Drives a server with the official TypeScript clients and prints what came of it as JSON.
// node drive.mjs v1|legacy|modern node_modules-directory answer stdio COMMAND ARGS... | http URL
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [kind, modules, answer, transportKind, ...target] = process.argv.slice(2);
const require = createRequire(path.join(modules, "x.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

async function make() {
  const info = { name: `typescript-${kind}`, version: "1.0.0" };
  const capabilities = answer === "none" ? {} : { elicitation: { form: {} } };
  if (kind === "v1") {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { ElicitRequestSchema } = await load("@modelcontextprotocol/sdk/types.js");
    const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    return { client: new Client(info, { capabilities }), method: ElicitRequestSchema, StdioClientTransport, StreamableHTTPClientTransport };
  }
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
  const mode = kind === "modern" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(info, { capabilities, versionNegotiation: { mode } });
  return { client, method: "elicitation/create", StdioClientTransport, StreamableHTTPClientTransport };
}

const { client, method, StdioClientTransport, StreamableHTTPClientTransport } = await make();
const asked = [];
if (answer !== "none") {
  client.setRequestHandler(method, async (request) => {
    asked.push(request.params);
    if (answer === "decline") return { action: "decline" };
    const content = {};
    for (const [name, schema] of Object.entries(request.params.requestedSchema.properties)) {
      const choices = schema.enum ?? schema.oneOf?.map((one) => one.const);
      content[name] = schema.type === "boolean" ? true : (choices.find((choice) => choice === "once") ?? choices[0]);
    }
    return { action: "accept", content };
  });
}
const transport =
  transportKind === "stdio"
    ? new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: "inherit" })
    : new StreamableHTTPClientTransport(new URL(target[0]));
await client.connect(transport);
const call = (name, args) => client.callTool({ name, arguments: args });
const out = { server: client.getServerVersion?.(), tools: [] };
out.tools = (await client.listTools()).tools.map((tool) => tool.name);
out.search = (await call("search_tools", { query: "add two numbers", as_json: true })).structuredContent;
out.describe = (await call("describe_tool", { tool_id: "math:add", detail_level: "schema", as_json: true })).structuredContent;
out.run = (await call("run_tool", { tool_id: "math:add", args: { a: 5, b: 3 } })).structuredContent;
out.wrong = await call("run_tool", { tool_id: "math:add", args: { a: "x" } });
out.chain = (await call("run_chain", { steps: [{ tool_id: "math:add", args: { a: 1, b: 2 } }, { tool_id: "math:double", use_previous: true }] })).structuredContent;
out.guarded = await call("run_tool", { tool_id: "files:erase", args: { path: "a" } });
out.asked = asked;
process.stdout.write(JSON.stringify(out));
await client.close();
