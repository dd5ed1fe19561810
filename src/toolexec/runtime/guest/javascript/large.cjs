// Results that are too large to travel at once: they stay on the host, and are read page by page as they are used. To a
// program they are the arrays, objects and strings that they stand for. Used in Node.js and in the embedded sandbox.
"use strict";

// `askNow(payload)` has the host answer a `read_result` request while the program waits, `ask(payload)` gives a promise
// of what a path selects, `release(id)` has the host forget a result.
globalThis.__toolexecLarge = ({ askNow, ask, release }) => {
  const FIRST_BYTES = 1 << 16;
  const MOST_BYTES = 1 << 20;
  const INDEX = /^(?:0|[1-9][0-9]{0,9})$/;
  const INSPECT = Symbol.for("nodejs.util.inspect.custom"); // it looks into a proxy past its traps
  const registry = typeof FinalizationRegistry === "function" ? new FinalizationRegistry(release) : undefined;
  const readers = new WeakMap();
  const define = (target, key, value) =>
    Object.defineProperty(target, key, { value, writable: true, enumerable: true, configurable: true });

  class Reader {
    constructor(data, target) {
      this.data = data;
      this.target = target;
      this.gaps = data.length > 0 ? [[0, data.length]] : [];
      this.isShared = false; // whether the program has got parts that it may have changed
      this.keys = undefined; // of an object
      this.positions = new Map();
      this.bytes = FIRST_BYTES;
    }

    page(wanted) {
      const answer = askNow({ handle: this.data.id, page: { bytes: this.bytes, ...wanted } });
      this.bytes = Math.min(this.bytes * 4, MOST_BYTES);
      for (const [place, data] of Object.entries(answer.held ?? {})) answer.items[place] = large(data);
      return answer;
    }

    isUnread(index) {
      return this.gaps.some(([low, high]) => low <= index && index < high);
    }

    // Read what is at an index, and what comes after it (or before it, where a program seems to go backward).
    readAt(index) {
      const at = this.gaps.findIndex(([low, high]) => low <= index && index < high);
      if (at < 0) return;
      const [low, high] = this.gaps[at];
      const backward = this.keys === undefined && low < index && index === high - 1;
      const wanted = backward ? { offset: high, limit: high - low, backward } : { offset: index, limit: high - index };
      const { items } = this.page(wanted);
      if (items.length === 0) throw new Error("the host has lost a part of this result");
      this.put(backward ? high - items.length : index, items, at);
    }

    put(start, items, at) {
      items.forEach((item, i) => define(this.target, this.keys === undefined ? start + i : this.keys[start + i], item));
      const [low, high] = this.gaps[at];
      const left = [[low, start], [start + items.length, high]].filter((gap) => gap[0] < gap[1]);
      this.gaps.splice(at, 1, ...left);
    }

    // Of an object: read its keys, and the first values with them.
    open() {
      if (this.keys !== undefined) return;
      const { keys, items } = this.page({ offset: 0, strings: false });
      while (keys.length < this.data.length) {
        const more = askNow({ handle: this.data.id, page: { of: "keys", offset: keys.length } }).keys;
        if (more.length === 0) throw new Error("the host has lost a part of this result");
        keys.push(...more);
      }
      this.keys = keys;
      keys.forEach((key, i) => {
        this.positions.set(key, i);
        define(this.target, key, undefined);
      });
      if (items.length > 0) this.put(0, items, 0);
    }

    load() {
      if (this.data.type === "object") this.open();
      while (this.gaps.length > 0) this.readAt(this.gaps[0][0]);
      delete this.target[INSPECT];
    }

    // Read one property, if it is one that is not here yet.
    reach(key) {
      if (this.data.type === "object") this.open();
      if (this.gaps.length === 0 || typeof key !== "string") return;
      const index = this.keys !== undefined ? this.positions.get(key) : INDEX.test(key) ? Number(key) : undefined;
      if (index !== undefined && this.isUnread(index)) this.readAt(index);
    }
  }

  function container(data) {
    const target = data.type === "array" ? [] : {};
    if (data.type === "array") target.length = data.length;
    const reader = new Reader(data, target);
    Object.defineProperty(target, INSPECT, {
      value: () => {
        reader.load();
        return target;
      },
      configurable: true,
      enumerable: false,
    });
    const traps = {
      get(_, key) {
        if (key === "length" && data.type === "array") return target.length;
        if (key === INSPECT) return undefined;
        reader.reach(key);
        if (key === "read" && !Object.hasOwn(target, "read")) return read;
        const value = target[key];
        reader.isShared ||= value !== null && typeof value === "object";
        return value;
      },
      getOwnPropertyDescriptor(_, key) {
        reader.reach(key);
        const found = key === INSPECT ? undefined : Reflect.getOwnPropertyDescriptor(target, key);
        reader.isShared ||= found !== undefined && found.value !== null && typeof found.value === "object";
        return found;
      },
      has(_, key) {
        reader.reach(key);
        return key !== INSPECT && Reflect.has(target, key);
      },
    };
    const read = async (path = "", { offset = 0, limit = null } = {}) =>
      ask({ handle: data.id, path, offset, limit });
    for (const name of ["set", "defineProperty", "deleteProperty", "ownKeys", "preventExtensions", "setPrototypeOf"]) {
      traps[name] = (_, ...rest) => {
        reader.load();
        if (name === "set") rest.length = 2; // what is set is set here, not in the proxy
        return Reflect[name](target, ...rest);
      };
    }
    const proxy = new Proxy(target, traps);
    readers.set(proxy, reader);
    return proxy;
  }

  function textOf({ id, length }) {
    let whole = "";
    for (let at = 0; at < length; ) {
      const { text } = askNow({ handle: id, page: { offset: at } });
      if (!text) throw new Error("the host has lost a part of this result");
      whole += text;
      at += text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0); // the host counts characters
    }
    release(id);
    return whole;
  }

  function large(data) {
    if (data.type === "string") return textOf(data);
    const result = container(data);
    registry?.register(result, data.id);
    return result;
  }

  // What stands for a value in messages to the host; undefined for what travels as it is. What the program may have
  // changed goes by value.
  function reference(value) {
    const reader = value !== null && typeof value === "object" ? readers.get(value) : undefined;
    const isWhole = reader !== undefined && !reader.isShared && reader.gaps.length > 0;
    return isWhole ? { $handle: reader.data.id } : undefined;
  }

  return { large, reference };
};
