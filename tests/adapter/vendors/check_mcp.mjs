// Reads results of tools/list as JSON on stdin and prints, for each, what the two official TypeScript SDKs refuse in it.
// node check_mcp.mjs node_modules-directory
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(path.join(process.argv[2], "x.js"));
const load = (name) => import(pathToFileURL(require.resolve(name)).href);
const { ListToolsResultSchema } = await load("@modelcontextprotocol/sdk/types.js");
const { specTypeSchemas } = await load("@modelcontextprotocol/client");

const problems = [];
for (const result of JSON.parse(readFileSync(0, "utf8"))) {
  const v1 = ListToolsResultSchema.safeParse(result);
  const v2 = await specTypeSchemas.ListToolsResult["~standard"].validate(result);
  problems.push([...(v1.success ? [] : v1.error.issues), ...(v2.issues ?? [])]);
}
console.log(JSON.stringify(problems));
