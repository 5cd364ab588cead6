// Line charts as SVG, drawn as the report draws them: round ticks, values on hover, a sentence for those who cannot see them.

import { el, svg } from "./dom.js";
import { short } from "./format.js";

const [WIDTH, HEIGHT] = [360, 190];
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 10, 10, 36];
const MOST_HOVERS = 60;

/** A figure of one or more lines: ``lines`` are [label, [[step, value]]]; ``unit``: from 0 to 1; ``zero``: the axis holds 0. */
export function lineChart(caption, lines, { unit, zero }) {
  const steps = lines.flatMap(([, points]) => points.map(([x]) => x));
  const values = lines.flatMap(([, points]) => points.map(([, y]) => y));
  const across = axis(Math.min(0, ...steps), Math.max(...steps), 5, LEFT, WIDTH - RIGHT, false);
  const [low, high] = unit
    ? [0, 1]
    : [Math.min(...values, ...(zero ? [0] : [])), Math.max(...values, ...(zero ? [0] : []))];
  const up = axis(low, high, 4, HEIGHT - BOTTOM, TOP, true);
  const last = lines
    .map(([label, points]) => `${lines.length > 1 ? label : "it"} ends at ${short(points.at(-1)[1])}`)
    .join(", ");
  const base = zero ? svg("line", { class: "zero", x1: LEFT, x2: WIDTH - RIGHT, y1: up.at(0), y2: up.at(0) }) : null;
  const drawn = lines.map(([label, points], i) => line(label, points, i, across, up));
  const name = `${caption}, over steps ${short(Math.min(...steps))} to ${short(Math.max(...steps))}: ${last}.`;
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": name },
    grid(across, up),
    base,
    drawn,
  );
  return el("figure", {}, el("figcaption", {}, el("span", {}, caption), legend(lines)), picture);
}

function legend(lines) {
  const swatch = (i) => (lines.length > 1 ? el("i", { class: `swatch s${i % 3}` }) : null);
  const entry = ([label, points], i) =>
    el("span", {}, swatch(i), lines.length > 1 ? `${label} ` : "", short(points.at(-1)[1]));
  return el("span", { class: "last", "aria-hidden": "true" }, lines.map(entry));
}

function grid(across, up) {
  const rows = up.ticks.flatMap((tick) => [
    svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: up.at(tick), y2: up.at(tick) }),
    svg("text", { class: "tick", x: LEFT - 6, y: up.at(tick), dy: "0.32em", "text-anchor": "end" }, short(tick)),
  ]);
  const columns = across.ticks.map((tick) => {
    const anchor = across.at(tick) > WIDTH - RIGHT - 12 ? "end" : "middle";
    return svg(
      "text",
      { class: "tick", x: across.at(tick), y: HEIGHT - BOTTOM + 15, "text-anchor": anchor },
      short(tick),
    );
  });
  const floor = svg("line", { class: "axis", x1: LEFT, x2: WIDTH - RIGHT, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM });
  const name = svg(
    "text",
    { class: "label", x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 5, "text-anchor": "middle" },
    "step",
  );
  return svg("g", { "aria-hidden": "true" }, rows, columns, floor, name);
}

/** The line, a dot at its end, and unseen discs that show a value under the pointer. */
function line(label, points, i, across, up) {
  const places = points.map(([x, y]) => [across.at(x).toFixed(1), up.at(y).toFixed(1)]);
  const every = Math.ceil(points.length / MOST_HOVERS);
  const hovers = places.flatMap(([x, y], n) => {
    if (n % every && n !== places.length - 1) return [];
    const [step, value] = points[n];
    return [
      svg(
        "circle",
        { class: "hover", cx: x, cy: y, r: 7 },
        svg("title", {}, `${label} at step ${short(step)}: ${short(value)}`),
      ),
    ];
  });
  const path =
    places.length > 1
      ? svg("path", { class: "curve", d: `M${places.map((pair) => pair.join(" ")).join(" L")}` })
      : null;
  const [x, y] = places.at(-1);
  return svg("g", { class: `series s${i % 3}` }, path, svg("circle", { class: "end", cx: x, cy: y, r: 3 }), hovers);
}

/** About ``wanted`` round ticks between two values, and where a value lies. ``out`` widens the axis to whole ticks. */
function axis(low, high, wanted, start, end, out) {
  if (high - low <= 1e-12 * Math.max(1, Math.abs(high))) {
    const pad = Math.abs(high) * 0.5 || 0.5;
    [low, high, out] = [low - pad, high + pad, true];
  }
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => power * factor).find((size) => size >= raw * 0.999);
  const [first, last] = [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
  if (out) [low, high] = [first * step, last * step];
  const ticks = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  return {
    at: (value) => start + ((value - low) / (high - low)) * (end - start),
    ticks: ticks.filter((tick) => low - 1e-9 * step <= tick && tick <= high + 1e-9 * step),
  };
}
