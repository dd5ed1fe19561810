// Values of programs as JSON and as text to read: the first part of the guest's half for JavaScript.
globalThis.__toolexec = (() => {
  "use strict";

  const { parse, stringify } = JSON;
  const isFinite = Number.isFinite;
  const MOST_LEVELS = 120;

  // -- JSON, with every digit ----------------------------------------------------------------------------------

  const exact = (_key, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && context && /^-?\d+$/.test(context.source)
      ? BigInt(context.source)
      : value;
  const fromText = (text) => (/\d{16}/.test(text) ? parse(text, exact) : parse(text));

  function toText(value, what) {
    return plain(value, "", what, 0) ?? "null";
  }

  // The JSON of a value; undefined for what an object leaves out.
  function plain(value, path, what, depth) {
    if (depth > MOST_LEVELS) {
      throw new TypeError(`${what} has more than ${MOST_LEVELS} levels, or contains itself`);
    }
    if (value instanceof Promise) throw notJSON(what, path, "a promise (await it)");
    value = values.reference(value) ?? value;
    if (value !== null && typeof value === "object" && typeof value.toJSON === "function") value = value.toJSON();
    switch (typeof value) {
      case "string": // half a character becomes an escape, which the host refuses by its name
        return stringify(value);
      case "boolean":
      case "bigint":
        return String(value);
      case "number":
        if (!isFinite(value)) throw notJSON(what, path, String(value));
        return stringify(value);
      case "undefined":
        return undefined;
      case "object":
        return value === null ? "null" : plainObject(value, path, what, depth);
      default:
        throw notJSON(what, path, `a ${typeof value}`);
    }
  }

  function plainObject(value, path, what, depth) {
    if (value instanceof Number || value instanceof String || value instanceof Boolean) {
      return plain(value.valueOf(), path, what, depth);
    }
    if (value instanceof Error) return stringify({ name: String(value.name), message: String(value.message) });
    if (value instanceof ArrayBuffer || value instanceof DataView) throw notJSON(what, path, "a buffer");
    if (value instanceof Set || ArrayBuffer.isView(value)) value = Array.from(value);
    if (Array.isArray(value)) {
      return `[${Array.from(value, (item, i) => plain(item, `${path}/${i}`, what, depth + 1) ?? "null").join(",")}]`;
    }
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    const parts = [];
    for (const [key, item] of entries) {
      const text = plain(item, `${path}/${String(key)}`, what, depth + 1);
      if (text !== undefined) parts.push(`${stringify(String(key))}:${text}`);
    }
    return `{${parts.join(",")}}`;
  }

  const notJSON = (what, path, found) =>
    new TypeError(`${what} at ${path || "its root"} is ${found}, which is not JSON; use objects, arrays, text and numbers`);

  // -- text to read ----------------------------------------------------------------------------------------------

  const shown = (value) => (typeof value === "string" ? value : inspect(value, []));

  function inspect(value, around) {
    switch (typeof value) {
      case "string":
        return stringify(value);
      case "bigint":
        return `${value}n`;
      case "function":
        return `[Function: ${(typeof value.name === "string" && value.name) || "anonymous"}]`;
      case "object":
        break;
      default:
        return String(value);
    }
    if (value === null) return "null";
    if (around.includes(value)) return "[Circular]";
    if (value instanceof Error) return `${value.name}: ${value.message}`;
    if (value instanceof Date) return isFinite(value.getTime()) ? value.toISOString() : "Invalid Date";
    if (value instanceof RegExp) return String(value);
    if (value instanceof Promise) return "Promise {} (not awaited)";
    const list = Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof Set;
    if (around.length > 4) return list ? "[Array]" : "[Object]";
    const deeper = [...around, value];
    if (list) return `[ ${some(Array.from(value), (item) => inspect(item, deeper))} ]`.replace("[  ]", "[]");
    const entries = value instanceof Map ? [...value] : Object.entries(value);
    const name = value.constructor?.name;
    const text = `{ ${some(entries, ([key, item]) => `${String(key)}: ${inspect(item, deeper)}`)} }`.replace("{  }", "{}");
    return name && name !== "Object" ? `${name} ${text}` : text;
  }

  function some(items, show) {
    const parts = items.slice(0, 100).map(show);
    if (items.length > 100) parts.push(`... ${items.length - 100} more`);
    return parts.join(", ");
  }

  // `reference` gives what stands for a large result; `javascript_guest.js` sets it.
  const values = { fromText, reference: () => undefined, shown, toText };
  return values;
})();
