// What a program that is run once more reports of its reads that found nothing. Only prototypes are changed, and results of
// tools: every read that ends at one of these prototypes is reported, with what it was read from, and where. At most 100 are
// reported; a value is reported in part. The host puts so many empty lines before this that no program has as many.
(names) => {
  const { stringify } = JSON, { getPrototypeOf, setPrototypeOf, defineProperty, keys } = Object;
  const { get, has, apply } = Reflect, isArray = Array.isArray, ErrorOf = Error;
  const call = (method) => Function.prototype.call.bind(method), lines = call("".split), at = call(/x/.exec);
  const say = println, MOST = 100, MOST_PARTS = 20000, OWN = 20000;
  const from = new WeakMap(), reported = new Set(), FRAME = /<input>:(\d+):(\d+)/;
  const QUIET = new Set(["then", "toJSON", "constructor"]);
  let count = 0, busy = false;

  function place() {
    for (const frame of lines(new ErrorOf().stack, "\n")) {
      const found = at(FRAME, frame);
      if (found && Number(found[1]) <= OWN) return Number(found[1]);
      if (!found && !frame.includes("native") && frame.trim()) return 0;
    }
    return 0;
  }
  const kindOf = (value) => value === null ? "null" : isArray(value) ? "array" : typeof value !== "object" ? typeof value
    : from.has(value) ? "object" : getPrototypeOf(value)?.constructor?.name ?? "object";
  function part(value, depth) {
    if (typeof value === "string") return value.length > 300 ? `${value.slice(0, 300)}...` : value;
    if (value === null || typeof value !== "object") return ["number", "boolean"].includes(typeof value) ? value : null;
    if (value instanceof Set || value instanceof Map) value = [...value];
    if (depth > 3) return isArray(value) ? [] : {};
    if (isArray(value)) return value.slice(0, 20).map((each) => part(each, depth + 1));
    const found = {};
    for (const key of keys(value).slice(0, 40)) found[key] = part(value[key], depth + 1);
    return found;
  }
  function methods(value) {
    const found = [];
    for (let of = Object(value); of && of !== Object.prototype; of = getPrototypeOf(of)) {
      if (of === watching) break;
      if (of !== value) found.push(...Object.getOwnPropertyNames(of));
    }
    return found.filter((name) => /^[a-z]\w*$/.test(name) && name !== "constructor").slice(0, 80);
  }
  function report(op, key, value, more) {
    if (busy || count >= MOST) return;
    busy = true;
    try {
      const line = place(), path = from.get(Object(value)) ?? "", kind = kindOf(value);
      if (!line || reported.has(`${line} ${op} ${key} ${kind}`)) return;
      reported.add(`${line} ${op} ${key} ${kind}`);
      const own = kind === "array" || kind === "object" ? [] : methods(value);
      const size = isArray(value) ? value.length : value?.size ?? null;
      count += 1;
      say(stringify({ op, key: String(key).slice(0, 100), line, kind, path, size, own, value: part(value, 0), ...more }));
    } catch { } finally {
      busy = false;
    }
  }

  const watching = new Proxy(Object.prototype, {
    get(target, key, of) {
      if (key in target) return get(target, key, of);
      if (key === Symbol.iterator && kindOf(of) !== "array") report("iterate", "", of);
      else if (key === Symbol.toPrimitive && !["array", "Date", "string", "number"].includes(kindOf(of))) report("text", "", of);
      else if (typeof key === "string" && !QUIET.has(key)) report("read", key, of);
      return undefined;
    },
    has(target, key) {
      return has(target, key);
    },
    set(target, key, value, of) {
      defineProperty(of, key, { value, writable: true, enumerable: true, configurable: true });
      return true;
    },
  });
  const listed = new Proxy(watching, {
    has(target, key) {
      if (typeof key === "string" && !/^\d+$/.test(key)) report("in", key, []); // the trap is not reported of which array
      return has(target, key);
    },
  });
  for (const kind of [String, Number, Date, Map, Set, Promise]) setPrototypeOf(kind.prototype, watching);
  setPrototypeOf(Array.prototype, listed);

  let parts = 0;
  function mark(value, path) {
    if (value === null || typeof value !== "object" || parts++ > MOST_PARTS) return value;
    from.set(value, path);
    if (isArray(value)) {
      for (let i = 0; i < value.length; i++) mark(value[i], `${path}[]`);
      return value;
    }
    if (getPrototypeOf(value) !== Object.prototype) return value;
    for (const key of keys(value)) {
      const inner = value[key];
      if (inner !== null) mark(inner, `${path}.${key}`);
      else {
        const give = (it, given) =>
          defineProperty(it, key, { value: given, writable: true, enumerable: true, configurable: true });
        defineProperty(value, key, {
          get() { report("null", key, value); return null; },
          set(given) { give(this, given); },
          enumerable: true, configurable: true,
        });
      }
    }
    return setPrototypeOf(value, watching);
  }

  function patch(of, name, watch) {
    const was = of[name];
    defineProperty(of, name, {
      value: function (...given) {
        const value = apply(was, this, given);
        if (!busy) watch(this, given, value, name);
        return value;
      },
      writable: true, configurable: true,
    });
  }
  const source = (given) => typeof given === "function" ? String(given).replace(/\s+/g, " ").slice(0, 200) : "";
  const none = (it, given, value, name) => value === undefined && report("none", name, it, { of: source(given[0]) });
  for (const name of ["find", "findLast", "at", "pop", "shift"]) patch(Array.prototype, name, none);
  patch(Array.prototype, "filter", (it, given, value, name) => {
    if (isArray(value) && value.length === 0) report("none", name, it, { of: source(given[0]) });
  });
  patch(Array.prototype, "reduce", (it, given, value, name) => {
    if (typeof given[1] === "number" && typeof value === "string") report("fold", name, it, { of: source(given[0]) });
  });
  patch(String.prototype, "match", (it, given, value, name) => {
    if (value === null) report("none", name, String(it), { of: String(given[0]).slice(0, 100) });
  });
  patch(Map.prototype, "get", (it, given, value) => value === undefined && report("get", String(given[0]), it));
  for (const name of ["max", "min"]) {
    patch(Math, name, (_, given, value) => {
      const found = given.find((each) => typeof each === "object" && each !== null);
      if (value !== value && found !== undefined) report("many", name, found);
    });
  }

  const wrap = (of, path) => new Proxy(of, {
    get(target, key) {
      const value = get(target, key);
      return typeof value === "function" ? wrap(value, path ? `${path}.${String(key)}` : String(key)) : value;
    },
    apply(target, self, given) {
      const value = apply(target, self, given);
      const named = typeof given[0] === "string" ? given[0] : path;
      return value && typeof value.then === "function" ? value.then((result) => mark(result, named)) : value;
    },
  });
  for (const name of ["tools", ...names]) if (name in globalThis) globalThis[name] = wrap(globalThis[name], name === "tools" ? "" : name);
  globalThis.println = () => {};
  globalThis.console = new Proxy({}, { get: () => () => {} });
}
