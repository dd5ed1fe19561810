// Numbers and dates for people. QuickJS has no data of locales and ignores what it is asked for, which would give wrong
// texts without a word: here are the forms of en-US, and errors for the others.
(() => {
  "use strict";

  const SIGNS = { USD: "$", EUR: "€", GBP: "£", CAD: "CA$", AUD: "A$", INR: "₹" };
  const RANGES = { decimal: [0, 3], currency: [2, 2], percent: [0, 0] };
  const DIGITS = ["minimumFractionDigits", "maximumFractionDigits"];

  const isHere = (locale) => locale === undefined || locale === "en" || locale === "en-US";

  function refuse(what, instead) {
    throw new RangeError(`this sandbox has no locales: ${what} have the plain form of en-US only; use ${instead}`);
  }

  // Half away from zero, by the shortest decimal form of the number, whose point moves by `shift` places.
  function rounded(number, most, shift) {
    const [mantissa, exponent = 0] = String(number).split("e");
    const point = (mantissa + ".").indexOf(".") + Number(exponent) + shift;
    const all = mantissa.replace(".", "");
    const digits = "0".repeat(Math.max(1 - point, 0)) + all.padEnd(point, "0");
    const end = Math.max(point, 1) + most;
    const up = digits[end] >= "5" ? 1n : 0n;
    const text = String(BigInt(digits.slice(0, end).padEnd(end, "0")) + up).padStart(most + 1, "0");
    return most > 0 ? `${text.slice(0, -most)}.${text.slice(-most)}` : text;
  }

  function numberText(locale, options) {
    const { style = "decimal", currency, useGrouping = true, ...digits } = options ?? {};
    const sign = style === "currency" ? SIGNS[currency] : "";
    const fits = Object.hasOwn(RANGES, style) && Object.keys(digits).every((key) => DIGITS.includes(key));
    if (!isHere(locale) || !fits || sign === undefined) refuse("numbers", "`toFixed` and template strings");
    const [low, high] = RANGES[style];
    const most = digits.maximumFractionDigits ?? Math.max(high, digits.minimumFractionDigits ?? 0);
    const least = digits.minimumFractionDigits ?? Math.min(low, most);
    if (!(least >= 0 && least <= most && most <= 100)) throw new RangeError("the fraction digits are out of range");
    const size = Math.abs(this);
    const minus = this < 0 || Object.is(this, -0) ? `-${sign}` : sign;
    const end = style === "percent" ? "%" : "";
    if (!Number.isFinite(size)) return `${minus}${Number.isNaN(size) ? "NaN" : "∞"}${end}`;
    let [whole, part = ""] = rounded(size, most, end ? 2 : 0).split(".");
    while (part.length > least && part.endsWith("0")) part = part.slice(0, -1);
    if (useGrouping) whole = whole.replace(/\B(?=(\d{3})+$)/g, ",");
    return `${minus}${whole}${part && "."}${part}${end}`;
  }

  const give = (prototype, name, value) =>
    Object.defineProperty(prototype, name, { value, writable: true, configurable: true, enumerable: false });
  give(Number.prototype, "toLocaleString", function toLocaleString(locale, options) {
    return numberText.call(Number(this), locale, options);
  });
  for (const name of ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]) {
    const plain = Date.prototype[name];
    give(Date.prototype, name, function (locale, options) {
      const { timeZone = "UTC", ...rest } = options ?? {};
      if (!isHere(locale) || timeZone !== "UTC" || Object.keys(rest).length > 0) {
        refuse("dates", "`toISOString`, `getUTCDay` and the like, with names of your own");
      }
      return plain.call(this).replace(/(^|\/|, )0(?=\d)/g, "$1");
    });
  }
})();
