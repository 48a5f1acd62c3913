// Numbers as people read them; a dash where there is none.

const NONE = "–";
const given = (value) => value !== null && value !== undefined && Number.isFinite(value);
const minus = (text) => text.replace(/^-/, "−");

export function fixed(value, digits = 3) {
  return given(value) ? minus(value.toFixed(digits)) : NONE;
}

// 0.853 for shares and correlations, 75.31 for percent.
export function scored(value, unit) {
  return fixed(value, unit === "percent" ? 2 : 3);
}

export function count(value) {
  return given(value) ? minus(value.toLocaleString("en-US")) : NONE;
}

// A share as percent; what is there never reads as nothing.
export function percent(share, digits = 1) {
  if (!given(share)) return NONE;
  const least = 10 ** -digits;
  if (share > 0 && share * 100 < least) return `< ${least.toFixed(digits)} %`;
  return `${minus((share * 100).toFixed(digits))} %`;
}

// For axes and hovering: 0.25, 1,200, 3e-5.
export function short(value) {
  if (!given(value)) return NONE;
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e7)) {
    return minus(value.toExponential(2).replace(/\.?0*e/, "e").replace("e+", "e").replace("e-", "e−"));
  }
  return minus(Number(value.toPrecision(4)).toLocaleString("en-US", { maximumFractionDigits: 6 }));
}
