// The guest's half for JavaScript: what a program finds, and how it runs. The host evaluates this in a fresh context,
// takes `start` and `pump` away, and lets every run begin from a copy of that state. Nothing of it is global but what
// programs may use; so what is not the same in every run (time, chance, what is given) is set up by `start`.
globalThis.__toolexec = (() => {
  "use strict";

  const host = {};
  for (const name of ["exchange", "post", "sleep", "file", "finish"]) {
    host[name] = globalThis[name];
    delete globalThis[name];
  }
  const values = globalThis.__toolexec; // of javascript_values.js
  const { fromText, shown, toText } = values;
  const makeLarge = globalThis.__toolexecLarge; // of large.cjs
  delete globalThis.__toolexecLarge;
  const { parse, stringify } = JSON;
  const then = Function.prototype.call.bind(Promise.prototype.then);
  const VALUE_KEYS = [Symbol.toPrimitive, Symbol.iterator, Symbol.asyncIterator];
  const evaluate = globalThis.eval;
  const sinceBoot = performance.now.bind(performance);
  let began = 0;
  const now = () => sinceBoot() - began;
  const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
  const LONGEST_TIMER = 2 ** 31;
  const MOST_TEXT = 20000;
  const MOST_MESSAGE = (16 << 20) - 64;
  const HEAD = "(async function (__toolexec) {";
  const KEEP = "__toolexec.last = ";
  const TAIL = '\n;__toolexec.out = typeof __out === "undefined" ? undefined : __out;\n})';

  // -- the way to the host ---------------------------------------------------------------------------------------

  const outbox = [];
  const waiting = new Map();
  const released = [];
  let lastId = 0;

  // A large value of an error is read when somebody looks at it.
  function readLater(error, read) {
    const set = (value) =>
      Object.defineProperty(error, "value", { value, writable: true, enumerable: true, configurable: true });
    const get = () => set(read()).value;
    Object.defineProperty(error, "value", { get, set, enumerable: true, configurable: true });
  }

  class ToolError extends Error {
    constructor(message = "", { code, class: hostClass, toolId, op, backend, retryable, details, result } = {}) {
      super(message);
      this.name = "ToolError";
      this.code = code ?? "internal";
      this.toolId = toolId ?? null;
      this.op = op ?? null;
      this.backend = backend ?? null;
      this.retryable = retryable === true;
      this.details = details ?? {};
      this.value = result?.structured ?? null;
      Object.defineProperty(this, "hostClass", { value: hostClass });
      if (result?.handle) readLater(this, () => large(result.handle));
    }
  }

  function ask(type, payload, convert, name) {
    const asked = new Error().stack;
    return watched(new Promise((resolve, reject) => {
      const refuse = (message, fields) => reject(failedAt(asked, message, fields));
      let text;
      try {
        text = toText(payload, "an argument");
      } catch (error) {
        return refuse(error.message, { code: "validation_input" });
      }
      if (text.length > MOST_MESSAGE) {
        return refuse(`a request of ${text.length} characters is too large; at most 16 MiB fit`, { code: "protocol" });
      }
      const id = String(++lastId);
      if (released.length > 0) outbox.push(message("release", "0", stringify({ handles: released.splice(0) })));
      outbox.push(message(type, id, text));
      const finish = (answer) => {
        try {
          resolve(convert(answer));
        } catch (error) {
          reject(error);
        }
      };
      waiting.set(id, { resolve: finish, refuse, payload, name }); // a large result in it must not be forgotten before
    }), { seen: false, name });
  }

  const rejected = []; // of promises that nobody had looked at by then

  // A promise that tells when it is used like the value that it will have, and whose failure is not lost.
  function watched(promise, state) {
    then(promise, undefined, (error) => state.seen || rejected.push({ state, error }));
    const misused = () => {
      throw new TypeError(`the result of ${state.name}() is a promise still: write \`await ${state.name}(...)\``);
    };
    return new Proxy(promise, {
      get(target, key) {
        if (key === "then" || key === "catch" || key === "finally") {
          return (...given) => {
            state.seen = true;
            return watched(target[key](...given), { seen: false, name: state.name });
          };
        }
        if (key === "constructor" || (typeof key === "symbol" && !VALUE_KEYS.includes(key))) return target[key];
        return misused();
      },
      has: misused,
      ownKeys: misused,
    });
  }

  // An error in the place of the call: QuickJS does not follow a stack across `await`.
  function failedAt(stack, message, fields) {
    const error = new ToolError(message, fields);
    Object.defineProperty(error, "stack", { value: stack, writable: true, configurable: true });
    return error;
  }

  const message = (type, id, payload) => `{"type":"${type}","id":"${id}","payload":${payload}}`;

  function deliver(answer) {
    const asked = waiting.get(answer.id);
    if (asked === undefined) return;
    waiting.delete(answer.id);
    const payload = answer.payload ?? {};
    const failed = answer.type === "error" ? payload : payload.failed; // a call that failed, or a step of a chain
    if (failed) {
      if (outcome !== undefined) {
        const what = `${asked.name} failed after the program had ended`;
        print(`${what}: ${failed.error}; await the function that calls it\n`, "stderr");
      }
      asked.refuse(failed.error ?? "unknown error", failed);
    }
    else asked.resolve(payload);
  }

  function print(text, stream) {
    for (let at = 0; at < text.length; at += 1 << 20) {
      host.post(`[${message("print", "0", stringify({ text: text.slice(at, at + (1 << 20)), stream }))}]`);
    }
  }

  // -- tools -----------------------------------------------------------------------------------------------------

  const { large, reference } = makeLarge({
    askNow: (payload) => {
      const [answer] = fromText(host.exchange(`[${message("read_result", String(++lastId), stringify(payload))}]`));
      if (answer.type !== "error") return answer.payload;
      throw failedAt(new Error().stack, answer.payload.error, answer.payload);
    },
    ask: (payload) => ask("read_result", payload, structured, "read"),
    release: (id) => released.push(id),
  });
  values.reference = reference;

  const structured = (payload) => (payload.handle ? large(payload.handle) : payload.structured ?? null);

  const run = (id, args = {}, { timeout } = {}) => ask("run_tool", { id, args, timeout }, structured, "tools.run");
  const runChain = (steps) => ask("run_chain", { steps: Array.from(steps) }, structured, "tools.runChain");
  // A limit: as it is, or as the only option.
  const most = (limit) => (typeof limit === "object" ? limit?.limit : limit) ?? 10;
  const search = (query, limit) => ask("search_tools", { query, limit: most(limit) }, (payload) => payload.results ?? [], "tools.search");
  const describe = (id, level = "full") => ask("describe_tool", { id, level }, (payload) => payload, "tools.describe");
  const listNamespaces = () => ask("list_namespaces", {}, (payload) => payload.namespaces ?? [], "tools.listNamespaces");
  const examples = (id, max) => ask("list_tool_examples", { id, max: most(max) }, (payload) => payload.examples ?? [], "tools.examples");
  const println = (...values) => print(`${values.map(shown).join(" ")}\n`, "stdout");

  const methods = Object.assign(Object.create(null), {
    run, runTool: run, run_tool: run,
    runChain, run_chain: runChain,
    search, searchTools: search, search_tools: search,
    describe, describeTool: describe, describe_tool: describe,
    listNamespaces, list_namespaces: listNamespaces,
    examples, listToolExamples: examples, list_tool_examples: examples,
    println,
  });
  const noTool = (name) => typeof name === "symbol" || name === "then" || name === "toJSON";

  // What models call `tools.run`; a tool of such a name takes no text.
  const CALLS = ["call", "callTool", "call_tool", "execute", "invoke", "executeTool", "invokeTool"];

  let orders = {}; // of each tool, the arguments that values without a name stand for
  const NAMES = /^[\p{ID_Start}$_][\p{ID_Continue}$]*(?::[\p{ID_Start}$_][\p{ID_Continue}$]*)*$/u;

  // A namespace or a tool, by the names that led to it; calling it calls the tool.
  function toolAt(path) {
    const call = (...given) => {
      if (typeof given[0] === "string" && CALLS.includes(path)) return run(...given);
      const name = `tools.${path.replaceAll(":", ".")}`;
      const called = { id: path, args: given[0] ?? {} };
      if (given.length > 1 || (given.length === 1 && (given[0] === null || typeof given[0] !== "object"))) {
        const order = orders[`${path}(`]?.split(",").slice(0, given.length) ?? [];
        if (order.length < given.length) throw new TypeError(`tools take one object: ${name}({name: value})`);
        called.args = Object.fromEntries(order.map((each, at) => [each, given[at]]));
        called.bound = order;
      }
      if (NAMES.test(path)) called.path = true; // else `tools["my-space"]["list-issues"]` is an ID
      return ask("run_tool", called, structured, name);
    };
    const said = () => `tools.${path.replaceAll(":", ".")}`;
    return new Proxy(call, { get: (_, name) => asText(name, said) ?? (noTool(name) ? undefined : toolAt(`${path}:${name}`)) });
  }

  // What a template and `String` show of tools.
  const asText = (name, said) => (name === Symbol.toPrimitive ? said : undefined);
  const tools = new Proxy(methods, {
    get: (_, name) => methods[name] ?? asText(name, () => "tools") ?? (noTool(name) ? undefined : toolAt(name)),
  });

  // -- files -----------------------------------------------------------------------------------------------------

  function file(request) {
    const answer = parse(host.file(stringify(request)));
    if (answer.error) throw new Error(answer.error);
    return answer.value;
  }
  const files = Object.freeze({
    list: () => file({ op: "list" }),
    read: (path) => file({ op: "text", path: String(path) }),
    readBytes: (path) => Uint8Array.from(atob(file({ op: "bytes", path: String(path) })), (c) => c.charCodeAt(0)),
    write: (path, content) => {
      if (typeof content === "string") return file({ op: "write", path: String(path), text: content });
      if (!(content instanceof Uint8Array)) throw new TypeError("a file is written as text or as a Uint8Array");
      let binary = "";
      for (let at = 0; at < content.length; at += 8192) {
        binary += String.fromCharCode(...content.subarray(at, at + 8192));
      }
      return file({ op: "write", path: String(path), bytes: btoa(binary) });
    },
    remove: (path) => file({ op: "remove", path: String(path) }),
  });

  // -- console ---------------------------------------------------------------------------------------------------

  const printer = (stream) => (...values) => print(`${values.map(shown).join(" ")}\n`, stream);
  const [out, err] = [printer("stdout"), printer("stderr")];
  const console = { log: out, info: out, debug: out, dir: out, table: out, warn: err, error: err, trace: err };
  console.assert = (holds, ...values) => holds || err("Assertion failed", ...values);

  // -- time ------------------------------------------------------------------------------------------------------

  const timers = new Map();
  let lastTimer = 0;

  function addTimer(callback, delay, args, again) {
    if (typeof callback !== "function") throw new TypeError("a timer calls a function");
    const wait = Math.min(Math.max(Number(delay) || 0, again ? 1 : 0), LONGEST_TIMER);
    timers.set(++lastTimer, { callback, args, due: now() + wait, wait: again ? wait : undefined });
    return lastTimer;
  }

  const setTimeout = (callback, delay, ...args) => addTimer(callback, delay, args, false);
  const setInterval = (callback, delay, ...args) => addTimer(callback, delay, args, true);
  const clearTimer = (id) => void timers.delete(id);

  // Milliseconds until the first timer is due; undefined without one.
  function untilDue() {
    if (timers.size === 0) return undefined;
    return Math.max(Math.min(...Array.from(timers.values(), (timer) => timer.due)) - now(), 0);
  }

  // Call the first timer that is due; the next ones have their turn after the jobs that it leads to.
  function fire() {
    const [id, timer] = [...timers].sort(([, a], [, b]) => a.due - b.due)[0] ?? [];
    if (timer === undefined || timer.due > now()) return;
    if (timer.wait === undefined) timers.delete(id);
    else timer.due = Math.max(timer.due + timer.wait, now());
    try {
      timer.callback(...timer.args);
    } catch (error) {
      fail(error);
    }
  }

  // -- chance ----------------------------------------------------------------------------------------------------

  // A generator of numbers from 0 to 1 (sfc32) from four whole numbers, given by the host.
  function generator([a, b, c, d]) {
    return () => {
      const sum = (((a + b) | 0) + d) | 0;
      d = (d + 1) | 0;
      a = b ^ (b >>> 9);
      b = (c + (c << 3)) | 0;
      c = ((c << 21) | (c >>> 11)) + sum;
      return ((sum >>> 5) * 67108864 + ((c | 0) >>> 6)) / 9007199254740992;
    };
  }

  // -- the program -----------------------------------------------------------------------------------------------

  let source = "";
  let kept = { column: 0, line: 0 };
  let outcome;

  function compiles(body) {
    try {
      new AsyncFunction("__toolexec", body);
      return true;
    } catch {
      return false;
    }
  }

  const STATEMENT =
    /^(?:function|class|async\s+function|if|for|while|do|switch|try|return|throw|const|let|var|break|continue|with|debugger|import|export)\b|^(?:[{};:,.?)\]=<>&|^%*]|\/[/*]|$)/;
  const MAY_GO_ON = /^[([`+\-/]/;

  // The program with its final expression kept; as it is when it does not end in one.
  function withLast(text) {
    const places = [0];
    for (const match of text.matchAll(/[;}\n]/g)) places.push(match.index + 1);
    places.reverse();
    for (const place of places.slice(0, Math.max(Math.min(200, 2e6 / (text.length + 1)), 8))) {
      const gap = /^\s*/.exec(text.slice(place))[0].length;
      const [before, last] = [text.slice(0, place + gap), text.slice(place + gap)];
      if (STATEMENT.test(last)) continue;
      const above = before.replace(/(?:\s|^[ \t]*\/\/.*$)+$/gm, "");
      if (MAY_GO_ON.test(last) && above !== "" && !/[;}]$/.test(above)) continue;
      if (compiles(`${before}@${last}`) || !compiles(before)) continue; // in a comment or text; or in a statement
      const changed = `${before}${KEEP}${last}`;
      if (!compiles(changed)) continue;
      const lines = before.split("\n");
      kept = { line: lines.length, column: lines.at(-1).length };
      return changed;
    }
    return text;
  }

  function start(text) {
    const payload = parse(text);
    source = payload.code;
    give("env", Object.freeze({ ...payload.env }));
    give("args", Object.freeze([...(payload.args ?? [])]));
    give("stdin", payload.stdin ?? "");
    orders = payload.names ?? {};
    for (const [name, path] of Object.entries(orders)) {
      if (name.endsWith("(")) continue;
      if (!(name in globalThis)) give(name, path === "." ? tools : path ? toolAt(path) : run);
    }
    if (payload.watch !== undefined) evaluate(payload.watch);
    began = sinceBoot();
    Math.random = generator(payload.random);
    const found = {};
    try {
      const body = compiles(source) ? withLast(source) : source;
      evaluate(HEAD + body + TAIL)(found).then((value) => settle(value, found), fail);
    } catch (error) {
      fail(error);
    }
  }

  function settle(value, { out, last }) {
    Promise.resolve(value !== undefined ? value : out !== undefined ? out : last).then((chosen) => {
      try {
        outcome ??= { text: `{"value":${toText(chosen, "the value")}}` };
      } catch (error) {
        fail(error);
      }
    }, fail);
  }

  function fail(error) {
    outcome ??= { failed: true, text: stringify({ error: described(error) }) };
  }

  function described(error) {
    try {
      const kind = error instanceof Error ? String(error.name) : typeof error;
      const said = error instanceof Error ? String(error.message) : shown(error);
      const stack = error instanceof Error ? String(error.stack ?? "") : "";
      const found = { kind, message: (said ? `${kind}: ${said}` : kind).slice(0, MOST_TEXT), ...placeOf(stack, said) };
      if (error instanceof ToolError) {
        const { message, code, toolId, op, backend, retryable, details, hostClass } = error;
        found.tool_error = { error: message, code, class: hostClass, toolId, op, backend, retryable, details };
        stringify(found);
      }
      return found;
    } catch {
      return { kind: "Error", message: "the program failed with an error that cannot be shown" };
    }
  }

  // Where in the program, and the frames that belong to it.
  function placeOf(stack, said) {
    const all = stack.split("\n").filter((frame) => frame.includes("<input>:"));
    const called = all.filter((frame) => frame.includes("("));
    const frames = called.length > 0 ? called : all; // a frame without a name is where a parser stopped
    const shown = frames
      .slice(0, 60)
      .map((frame) => frame.replace(/<input>:(\d+):(\d+)/, (_, line, column) => `<code>:${line}:${own(line, column)}`));
    const match = /<input>:(\d+):(\d+)/.exec(frames[0] ?? "");
    if (match === null) return {};
    const lines = source.trimEnd().split("\n");
    const line = Math.min(Number(match[1]), lines.length);
    const place = accessed(lines, { line, column: own(match[1], match[2]) }, said);
    const text = lines[place.line - 1];
    const column = place.column > text.length + 1 ? 0 : place.column;
    shown[0] = shown[0].replace(/<code>:\d+:\d+/, `<code>:${place.line}:${column}`);
    return { line: place.line, column, source: text.slice(0, 1000), traceback: shown.join("\n") };
  }

  // QuickJS has no positions for reading and setting properties, and reports one before them: look for the access.
  function accessed(lines, place, said) {
    const name = /^cannot (?:read|set) property '([^']+)' of/.exec(said)?.[1];
    if (name === undefined) return place;
    const plainName = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    const access = new RegExp(`(?:\\.\\s*|["'\`[{,]\\s*)${plainName}(?![\\w$])`, "g");
    access.lastIndex = Math.max(place.column - 1, 0);
    for (let at = place.line; at <= lines.length; at++) {
      const found = access.exec(lines[at - 1]);
      if (found !== null) return { line: at, column: found.index + found[0].length - name.length + 1 };
      access.lastIndex = 0;
    }
    return place;
  }

  // A column as the author has it, without what was put before it; 0 for none of theirs.
  function own(line, column) {
    let at = Number(column) - (Number(line) === 1 ? HEAD.length : 0);
    if (Number(line) === kept.line && at > kept.column) at = Math.max(at - KEEP.length, kept.column + 1);
    return Math.max(at, 0);
  }

  // Let the host do what the program waits for, or tell it the outcome.
  function pump() {
    try {
      next();
    } catch (error) {
      fail(error); // no memory, or intrinsics that the program replaced
    }
  }

  // The outcome; the failure of a call that nobody awaited is that of the program.
  function whole() {
    const lost = outcome.failed ? undefined : rejected.find(({ state }) => !state.seen);
    if (lost !== undefined) outcome = { failed: true, text: stringify({ error: described(lost.error) }) };
    return outcome;
  }

  // What only a run that waits may answer: a program that has ended does not wait for it.
  const WAITS = ["run:sleep", "run:signal", "run:input"];

  function leaveWaits() {
    for (const [id, { payload }] of [...waiting]) {
      if (!WAITS.includes(payload.id)) continue;
      waiting.delete(id);
      outbox.push(message("cancel", id, "{}"));
    }
    if (waiting.size === 0 && outbox.length > 0) host.post(`[${outbox.splice(0).join(",")}]`);
  }

  function next() {
    if (outcome !== undefined) leaveWaits();
    if (outcome !== undefined && (outcome.failed || waiting.size === 0)) return void host.finish(whole().text);
    const due = outcome === undefined ? untilDue() : undefined;
    if (waiting.size > 0) {
      const alone = waiting.size === 1 && outbox.length === 1 && due === undefined;
      const messages = outbox.splice(0);
      if (!alone) messages.push(message("wait", "0", stringify({ timeout: due === undefined ? null : due / 1000 })));
      for (const answer of fromText(host.exchange(`[${messages.join(",")}]`))) deliver(answer);
    } else if (due !== undefined) {
      host.sleep(String(due));
    } else {
      fail(new Error("the program waits for something that can never happen"));
    }
    if (outcome === undefined) fire();
  }

  function give(name, value) {
    Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  }

  // A deep copy, as browsers make it: of plain data, dates, maps, sets, errors and bytes, with all circles in it.
  function structuredClone(value, seen = new Map()) {
    if (typeof value === "function" || typeof value === "symbol") {
      throw new TypeError(`${String(value)} could not be cloned`);
    }
    if (value === null || typeof value !== "object") return value;
    if (seen.has(value)) return seen.get(value);
    const keep = (copy) => (seen.set(value, copy), copy);
    const inner = (item) => structuredClone(item, seen);
    if (value instanceof Date) return keep(new Date(value.getTime()));
    if (value instanceof RegExp) return keep(new RegExp(value.source, value.flags));
    if (value instanceof ArrayBuffer) return keep(value.slice(0));
    if (value instanceof DataView) {
      return keep(new DataView(inner(value.buffer), value.byteOffset, value.byteLength));
    }
    if (ArrayBuffer.isView(value)) {
      return keep(new value.constructor(inner(value.buffer), value.byteOffset, value.length));
    }
    if (value instanceof Map) {
      const copy = keep(new Map());
      for (const [key, item] of value) copy.set(inner(key), inner(item));
      return copy;
    }
    if (value instanceof Set) {
      const copy = keep(new Set());
      for (const item of value) copy.add(inner(item));
      return copy;
    }
    if (value instanceof Promise) throw new TypeError("a promise could not be cloned: await it");
    if (value instanceof Error) {
      const copy = keep(new value.constructor(value.message));
      Object.defineProperty(copy, "stack", { value: value.stack, writable: true, configurable: true });
      return copy;
    }
    const copy = keep(Array.isArray(value) ? new Array(value.length) : {});
    for (const key of Object.keys(value)) copy[key] = inner(value[key]);
    return copy;
  }

  const given = { console, tools, ToolError, println, files, setTimeout, setInterval };
  given.structuredClone = (value) => structuredClone(value);
  for (const [name, value] of Object.entries(given)) give(name, value);
  give("performance", Object.freeze({ now }));
  give("clearTimeout", clearTimer);
  give("clearInterval", clearTimer);

  return { start, pump };
})();
