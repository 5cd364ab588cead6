// Numbers as people read them, in the way of the report.

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };

export const count = (value) => Number(value).toLocaleString("en-US");

export const plural = (value, one, many = `${one}s`) => `${count(value)} ${Number(value) === 1 ? one : many}`;

/** Three decimals at most, thousands with commas, tiny numbers as powers of ten, a dash for none. */
export function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e6) return value.toPrecision(3).replace("e+", "e");
  if (size >= 1000) return count(Math.round(value)).replace("-", "−");
  if (size < 0.001) {
    const [digits, exponent] = value.toExponential(1).split("e");
    const raised = Array.from(String(Number(exponent)), (sign) => RAISED[sign]).join("");
    return `${digits.replace(".0", "").replace("-", "−")} · 10${raised}`;
  }
  const text = value.toFixed(size < 100 ? 3 : 1);
  return text.replace(/\.?0+$/, "").replace("-", "−");
}

/** A signed number, plus included. */
export const signed = (value) => (value > 0 ? `+${short(value)}` : short(value));

export const percent = (rate) => (Number.isFinite(rate) ? (100 * rate).toFixed(1) : "–");

/** A probability with a fixed width: 0.976, or <0.001. */
export function probability(value) {
  if (!Number.isFinite(value)) return "–";
  return value > 0 && value < 0.0005 ? "<0.001" : value.toFixed(3);
}

export const milliseconds = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;

export function bytes(size) {
  return size < 1024
    ? `${size} B`
    : size < 1024 ** 2
      ? `${(size / 1024).toFixed(1)} KiB`
      : `${(size / 1024 ** 2).toFixed(1)} MiB`;
}

/** The beginning of a text, given as code points, in whole words. */
export function clipped(points, most) {
  const cut = points.lastIndexOf(" ", most);
  return `${points.slice(0, cut > most / 2 ? cut : most).join("")} …`;
}
