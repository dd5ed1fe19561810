// The guest for JavaScript in Node.js: says hello on a socket, runs one program, reports what came of it.
//
// Started as `node --expose-internals guest.cjs FD`; the socket is file descriptor FD. Node's own parser, which that
// option opens, finds the last expression of a program; without it only `return` and `__out` give a value. With a
// second argument `warm` it says hello later, and is quicker then.
"use strict";

const fs = require("node:fs");
const net = require("node:net");
const vm = require("node:vm");
const { createRequire } = require("node:module");
const values = require("./values.cjs");
require("./large.cjs");

const { FILE, ToolError, describeError, toText } = values;
const makeLarge = globalThis.__toolexecLarge;
delete globalThis.__toolexecLarge;

const FD = Number(process.argv[2]);
const SLEEPER = new Int32Array(new SharedArrayBuffer(4));
const MAX_FRAME = 16 << 20;
const VALUE_KEYS = new Set([Symbol.toPrimitive, Symbol.iterator, Symbol.asyncIterator]);
const realExit = process.reallyExit.bind(process);

// -- the line to the host ---------------------------------------------------------------------------------------------

class Line {
  constructor(onMessage) {
    this._onMessage = onMessage;
    this._pending = new Map();
    this._outbox = [];
    this._chunks = [];
    this._size = 0;
    this._lastId = 0;
    this._released = [];
    this._socket = new net.Socket({ fd: FD, readable: true, writable: true });
    this._socket.on("data", (chunk) => this._hear(chunk));
    this._socket.on("error", () => endGroup());
    this._socket.on("end", () => endGroup());
  }

  ask(type, payload) {
    const id = String(++this._lastId);
    const text = toText(payload, "an argument");
    if (text.length * 3 > MAX_FRAME && Buffer.byteLength(text) > MAX_FRAME - 1024) {
      throw new ToolError({ error: "a request of more than 16 MiB does not fit", code: "protocol" });
    }
    const site = new Error(); // an answer comes when the caller's frames are gone; to make their text now takes long
    this._socket.ref();
    return new Promise((resolve, reject) => {
      this._pending.set(id, { resolve, reject, site, payload }); // a large result in it must not be forgotten before
      this._sendReleased();
      this.send(`{"type":"${type}","id":"${id}","payload":${text}}`);
    });
  }

  // The answer to a request, with the program standing still: what it reads of a large result is there at once.
  askNow(type, payload) {
    if (this._socket.writableLength > 0) {
      throw new ToolError({ error: "a large call is being sent; await it before you read this result", code: "protocol" });
    }
    const id = String(++this._lastId);
    let answer;
    const settle = (kind) => (value) => (answer = [kind, value]);
    this._pending.set(id, { resolve: settle("value"), reject: settle("error"), site: new Error() });
    this._sendReleased();
    this.sendNow(`{"type":"${type}","id":"${id}","payload":${JSON.stringify(payload)}}`);
    const piece = Buffer.alloc(1 << 16);
    while (answer === undefined) {
      let size;
      try {
        size = fs.readSync(FD, piece, 0, piece.length, null);
      } catch (error) {
        if (error.code !== "EAGAIN") throw error;
        Atomics.wait(SLEEPER, 0, 0, 1);
        continue;
      }
      if (size === 0) endGroup();
      this._hear(Buffer.from(piece.subarray(0, size)));
    }
    if (answer[0] === "error") throw answer[1];
    return answer[1];
  }

  // Have the host forget results that the program holds no longer.
  release(id) {
    this._released.push(id);
  }

  _sendReleased() {
    if (this._released.length === 0) return;
    const handles = JSON.stringify(this._released.splice(0));
    this.send(`{"type":"release","id":"0","payload":{"handles":${handles}}}`);
  }

  // What is sent in one turn of the program travels together.
  send(message) {
    if (this._outbox.push(message) === 1) queueMicrotask(() => this._socket.write(this._take()));
  }

  sendNow(message) {
    this._outbox.push(message);
    let data = this._take();
    while (data.length) {
      try {
        data = data.subarray(fs.writeSync(FD, data));
      } catch (error) {
        if (error.code !== "EAGAIN") return;
      }
    }
  }

  get busy() {
    return this._pending.size > 0;
  }

  ref(wanted) {
    wanted ? this._socket.ref() : this._socket.unref();
  }

  _take() {
    const frames = [];
    let batch = [];
    let size = 0;
    const close = () => {
      const body = Buffer.from(`[${batch.join(",")}]`);
      const head = Buffer.alloc(4);
      head.writeUInt32BE(body.length);
      frames.push(head, body);
    };
    for (const message of this._outbox.splice(0)) {
      const bytes = Buffer.byteLength(message) + 1;
      if (batch.length && size + bytes > MAX_FRAME - 1024) {
        close();
        batch = [];
        size = 0;
      }
      batch.push(message);
      size += bytes;
    }
    if (batch.length) close();
    return Buffer.concat(frames);
  }

  _hear(chunk) {
    this._chunks.push(chunk);
    this._size += chunk.length;
    while (this._size >= 4) {
      if (this._chunks[0].length < 4) this._chunks = [Buffer.concat(this._chunks)];
      const size = this._chunks[0].readUInt32BE(0);
      if (this._size < 4 + size) return;
      const all = Buffer.concat(this._chunks);
      const rest = all.subarray(4 + size);
      this._chunks = rest.length ? [rest] : [];
      this._size = rest.length;
      const frame = JSON.parse(all.toString("utf8", 4, 4 + size));
      for (const message of Array.isArray(frame) ? frame : [frame]) this._deliver(message);
    }
  }

  _deliver(message) {
    if (message.type !== "response" && message.type !== "error") return this._onMessage(message);
    const entry = this._pending.get(message.id);
    if (!entry) return undefined;
    this._pending.delete(message.id);
    if (!this.busy) this._socket.unref();
    if (message.type === "error") {
      const failure = new ToolError(message.payload);
      failure.stack = `ToolError: ${failure.message}\n${entry.site.stack.split("\n").slice(1).join("\n")}`;
      const { result } = message.payload ?? {};
      if (result?.handle) readLater(failure, () => structured(this, result));
      entry.reject(failure);
    } else entry.resolve(message.payload ?? {});
    return undefined;
  }
}

// -- the object `tools` -----------------------------------------------------------------------------------------------

let large;

function structured(line, payload) {
  if (!payload.handle) return payload.structured ?? null;
  if (large === undefined) {
    const made = makeLarge({
      askNow: (wanted) => line.askNow("read_result", wanted),
      ask: async (wanted) => structured(line, await line.ask("read_result", wanted)),
      release: (id) => line.release(id),
    });
    large = made.large;
    values.reference = made.reference;
  }
  return large(payload.handle);
}

// A large value of an error is read when somebody looks at it.
function readLater(error, read) {
  const set = (value) =>
    Object.defineProperty(error, "value", { value, writable: true, enumerable: true, configurable: true });
  const get = () => set(read()).value;
  Object.defineProperty(error, "value", { get, set, enumerable: true, configurable: true });
}

// A promise that tells when it is used like the value that it will have.
function watched(promise, name) {
  const misused = () => {
    throw new TypeError(`the result of ${name}() is a promise still: write \`await ${name}(...)\``);
  };
  return new Proxy(promise, {
    get(target, key) {
      const value = target[key];
      if (key === "then" || key === "catch" || key === "finally") return value.bind(target);
      if (key === "constructor" || (typeof key === "symbol" && !VALUE_KEYS.has(key))) return value;
      return misused();
    },
    has: misused,
    ownKeys: misused,
  });
}

// What models call `tools.run`; a tool of such a name takes no text.
const CALLS = new Set(["call", "callTool", "call_tool", "execute", "invoke", "executeTool", "invokeTool"]);

// `tools["my-space"]["list-issues"]` is an ID.
const NAMES = /^[\p{ID_Start}$_][\p{ID_Continue}$]*(?::[\p{ID_Start}$_][\p{ID_Continue}$]*)*$/u;
const byNames = (path) => (NAMES.test(path) ? { path: true } : {});

// A limit: as it is, or as the only option.
const most = (limit) => (typeof limit === "object" ? limit?.limit : limit) ?? 10;

function makeTools(line) {
  const call = (payload, name = "tools.run") =>
    watched((async () => structured(line, await line.ask("run_tool", payload)))(), name);
  const own = {
    run: (id, args = null, options = {}) =>
      call(options.timeout === undefined ? { id, args } : { id, args, timeout: options.timeout }),
    runChain: async (steps) => {
      return structured(line, await line.ask("run_chain", { steps: Array.from(steps) }));
    },
    search: async (query, limit) => (await line.ask("search_tools", { query, limit: most(limit) })).results ?? [],
    describe: (id, level = "full") => line.ask("describe_tool", { id, level }),
    listNamespaces: async () => (await line.ask("list_namespaces", {})).namespaces ?? [],
    examples: async (id, limit) => (await line.ask("list_tool_examples", { id, max: most(limit) })).examples ?? [],
    println: (...values) => console.log(...values),
  };
  for (const name of ["runChain", "search", "describe", "listNamespaces", "examples"]) {
    const method = own[name];
    own[name] = (...given) => watched(method(...given), `tools.${name}`);
  }
  Object.assign(own, {
    runTool: own.run,
    searchTools: own.search,
    describeTool: own.describe,
    listToolExamples: own.examples,
    run_tool: own.run,
    run_chain: own.runChain,
    search_tools: own.search,
    describe_tool: own.describe,
    list_namespaces: own.listNamespaces,
    list_tool_examples: own.examples,
  });
  const at = (path) =>
    new Proxy(() => {}, {
      get: (_, name) => (typeof name === "symbol" || name === "then" ? undefined : at(`${path}:${name}`)),
      apply: (_, __, args) => {
        if (typeof args[0] === "string" && CALLS.has(path)) return own.run(...args);
        const name = `tools.${path.replaceAll(":", ".")}`;
        if (args.length > 1 || (args.length === 1 && (args[0] === null || typeof args[0] !== "object"))) {
          const bound = orders[`${path}(`]?.split(",").slice(0, args.length) ?? [];
          if (bound.length < args.length) throw new TypeError(`tools take one object: ${name}({name: value})`);
          const named = Object.fromEntries(bound.map((each, at) => [each, args[at]]));
          return call({ id: path, args: named, bound, ...byNames(path) }, name);
        }
        return call({ id: path, args: args[0] ?? {}, ...byNames(path) }, name);
      },
    });
  return new Proxy(own, {
    get: (target, name) => {
      if (typeof name === "symbol" || name === "then") return undefined;
      return Object.hasOwn(target, name) ? target[name] : at(name);
    },
  });
}

// -- programs ---------------------------------------------------------------------------------------------------------

const HEAD = "(async (__toolexec) => { ";
const KEEP = "__toolexec.last = (";
let shift = { line: 0, column: 0, by: 0 }; // by how much the last expression stands further to the right

function prepare(code) {
  const script = new vm.Script(`${HEAD}${rewrite(code)}\n;return __toolexec.end(typeof __out === "undefined" ? undefined : __out)})`, {
    filename: FILE,
    columnOffset: -HEAD.length,
    importModuleDynamically: vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER, // relative to the working directory
  });
  return script.runInThisContext();
}

// Keeps the value of a final expression and turns imports into what a function may have; lines stay where they are.
function rewrite(code) {
  let acorn;
  try {
    acorn = require("internal/deps/acorn/acorn/dist/acorn");
  } catch {
    return code;
  }
  let tree;
  try {
    tree = acorn.parse(code, {
      ecmaVersion: "latest",
      allowAwaitOutsideFunction: true,
      allowReturnOutsideFunction: true,
      allowImportExportEverywhere: true,
      allowHashBang: true,
      locations: true,
    });
  } catch (error) {
    if (!error.loc) throw error;
    const shown = new SyntaxError(error.message.replace(/ \(\d+:\d+\)$/, ""));
    shown.toolexecPlace = { line: error.loc.line, column: error.loc.column + 1 };
    shown.stack = `${FILE}:${error.loc.line}:${error.loc.column + 1}\nSyntaxError: ${shown.message}`;
    throw shown;
  }
  const edits = tree.body.filter((node) => node.type === "ImportDeclaration").map((node) => importEdit(node, code));
  const last = tree.body.at(-1);
  if (last?.type === "ExpressionStatement") {
    const { line: number, column } = last.expression.loc.start;
    shift = { line: number, column: column + 1, by: KEEP.length };
    edits.push({ start: last.expression.start, end: last.expression.start, text: KEEP });
    edits.push({ start: last.expression.end, end: last.expression.end, text: ")" });
  }
  return edits
    .sort((one, other) => other.start - one.start)
    .reduce((text, edit) => text.slice(0, edit.start) + edit.text + text.slice(edit.end), code);
}

function importEdit(node, code) {
  const source = `await import(${node.source.raw})`;
  const names = [];
  let text = "";
  for (const item of node.specifiers) {
    if (item.type === "ImportNamespaceSpecifier") text += `const ${item.local.name} = ${source};`;
    else {
      const imported = item.type === "ImportDefaultSpecifier" ? "default" : item.imported.name ?? item.imported.raw;
      names.push(`${imported}: ${item.local.name}`);
    }
  }
  if (names.length) text += `const { ${names.join(", ")} } = ${source};`;
  const lines = code.slice(node.start, node.end).split("\n").length - 1;
  return { start: node.start, end: node.end, text: (text || `${source};`) + "\n".repeat(lines) };
}

// -- one run ----------------------------------------------------------------------------------------------------------

let running = null;
let orders = {}; // of each tool, the arguments that values without a name stand for

const line = new Line((message) => {
  if (message.type === "execute") execute(message);
  else if (message.type === "bye") realExit(0);
});

function endGroup() {
  try {
    process.kill(-process.pid, "SIGKILL");
  } catch {
    // it is no group of its own
  }
  realExit(0);
}

async function execute(message) {
  const { code = "", env = {}, args = [], stdin = "", names = {} } = message.payload ?? {};
  running = { id: message.id, code };
  Object.assign(process.env, env);
  process.argv = [process.argv[0], FILE, ...args];
  setStdin(stdin);
  const require = createRequire(`${process.cwd()}/`);
  Object.assign(globalThis, { tools: makeTools(line), ToolError, require, __filename: FILE, __dirname: process.cwd() });
  orders = names;
  for (const [name, path] of Object.entries(names)) {
    if (name.endsWith("(")) continue;
    if (name in globalThis) continue;
    if (path === ".") globalThis[name] = tools;
    else globalThis[name] = path ? path.split(":").reduce((found, part) => found[part], tools) : tools.run;
  }
  line.ref(false);
  const control = {
    last: undefined,
    end: (out) => (out === undefined ? control.last : out),
  };
  let value;
  let failure = null;
  try {
    value = await prepare(code)(control);
    await settled();
  } catch (error) {
    failure = { error: describeError(error, code, shift) };
  }
  await Promise.all([printed(process.stdout), printed(process.stderr)]);
  return finish(failure, value);
}

// What a full pipe did not take at once is on its way still.
function printed(stream) {
  return new Promise((resolve) => stream.write("", resolve));
}

// Calls that nobody awaited are finished, too; and node tells of a failure that nobody heard of after its microtasks.
async function settled() {
  while (line.busy) await new Promise((resolve) => setTimeout(resolve, 1));
  await new Promise((resolve) => setImmediate(resolve));
}

function finish(outcome, value) {
  if (!running) return;
  const { id, code } = running;
  running = null;
  let text;
  try {
    text = outcome ? toText(outcome, "the error") : `{"value":${toText(value, "the value")}}`;
    if (Buffer.byteLength(text) > MAX_FRAME - 1024) {
      throw new RangeError("the value has more than 16 MiB as JSON; put it into a file");
    }
  } catch (error) {
    text = JSON.stringify({ error: describeError(error, code, shift) });
  }
  line.ref(true);
  line.sendNow(`{"type":"result","id":${JSON.stringify(id)},"payload":${text}}`);
}

function setStdin(text) {
  if (!text) return;
  const name = `.toolexec-stdin-${process.pid}`;
  fs.writeFileSync(name, Buffer.from(text, "base64"), { mode: 0o600 });
  fs.closeSync(0);
  fs.openSync(name, "r"); // takes the lowest free number, which is that of stdin
  fs.unlinkSync(name);
}

process.removeAllListeners("warning"); // node's own would tell of what this file uses
process.on("warning", (warning) => {
  if (warning.name !== "ExperimentalWarning") console.error(`${warning.name}: ${warning.message}`);
});
process.on("uncaughtException", (error) => finish({ error: describeError(error, running?.code ?? "", shift) }));
process.on("beforeExit", () => {
  const waits = new Error("the program waits for something that nothing can bring about");
  finish({ error: { ...describeError(waits, "", shift), kind: "Deadlock" } });
});
process.on("exit", (code) => {
  if (code === 0) return finish(null, globalThis.__out);
  return finish({ error: { kind: "Exit", message: `the program ended itself with exit code ${code}` } });
});

if (process.argv[3] === "warm") prepare("const first = 1; first"); // loads and compiles what a program will need

const hello = { protocol: "toolexec-guest", version: 1, capabilities: ["javascript"] };
line.send(`{"type":"hello","id":"0","payload":${JSON.stringify(hello)}}`);
