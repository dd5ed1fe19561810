// Values and errors of a JavaScript program as JSON.
"use strict";

const FILE = "code.js"; // what the author's text is called in messages
const MAX_TEXT = 20_000;

class ToolError extends Error {
  constructor(payload) {
    super(String(payload?.error ?? "unknown error"));
    this.name = "ToolError";
    this.code = payload?.code ?? "internal";
    this.toolId = payload?.toolId ?? null;
    this.op = payload?.op ?? null;
    this.backend = payload?.backend ?? null;
    this.retryable = payload?.retryable === true;
    this.details = payload?.details ?? {};
    this.value = payload?.result?.structured ?? null;
    Object.defineProperty(this, "hostClass", { value: payload?.class });
  }
}

function toText(value, what) {
  const text = JSON.stringify(value, function (key, plain) {
    const given = this[key];
    const reference = module.exports.reference(given);
    if (reference !== undefined) return reference;
    const where = key ? ` at ${JSON.stringify(key)}` : "";
    if (given instanceof Promise) throw new TypeError(`${what}${where} is a promise (await it)`);
    if (typeof plain === "number" && !Number.isFinite(plain)) {
      throw new TypeError(`${what}${where} is ${plain}, which JSON does not have`);
    }
    if (typeof plain === "bigint") {
      if (plain >= Number.MIN_SAFE_INTEGER && plain <= Number.MAX_SAFE_INTEGER) return Number(plain);
      throw new TypeError(`${what}${where} is a BigInt that JSON cannot hold exactly; make it text`);
    }
    if (!key && (typeof plain === "function" || typeof plain === "symbol")) {
      throw new TypeError(`${what} is a ${typeof plain}, which is not JSON`);
    }
    if (given instanceof Map) return Object.fromEntries(given);
    if (given instanceof Set) return [...given];
    if (given instanceof Error) return { name: given.name, message: given.message };
    return plain;
  });
  return text ?? "null";
}

// The error as the host is told. `shift` says where, and by how much, a line of the author was moved to the right.
function describeError(error, code, shift) {
  const isError = error instanceof Error || (typeof error === "object" && error !== null && "stack" in error);
  const kind = isError ? String(error.name ?? "Error") : "Error";
  let said = "its text cannot be shown";
  try {
    said = isError ? String(error.message ?? "") : `${typeof error} thrown: ${toText(error, "it")}`;
  } catch {
    // an exotic value; what it is called has to be enough
  }
  const found = { kind, message: (said ? `${kind}: ${said}` : kind).slice(0, MAX_TEXT) };
  const stack = isError && typeof error.stack === "string" ? error.stack : "";
  const place = error?.toolexecPlace ?? placeIn(stack);
  if (place) {
    if (place.line === shift.line && place.column >= shift.column + shift.by) place.column -= shift.by;
    found.line = place.line;
    found.column = place.column;
    found.source = (code.split("\n")[place.line - 1] ?? "").replace(/\r$/, "");
  }
  const frames = stack.split("\n").filter((text) => !/^\s+at /.test(text) || text.includes(`${FILE}:`));
  found.traceback = frames.join("\n").slice(0, MAX_TEXT);
  if (error instanceof ToolError) {
    const { message, code: word, toolId, op, backend, retryable, details, hostClass } = error;
    found.tool_error = { error: message, code: word, class: hostClass, toolId, op, backend, retryable, details };
  }
  return found;
}

function placeIn(stack) {
  const found = /\bcode\.js:(\d+)(?::(\d+))?/.exec(stack);
  return found ? { line: Number(found[1]), column: Number(found[2] ?? 0) } : null;
}

module.exports = { FILE, ToolError, describeError, reference: () => undefined, toText };
