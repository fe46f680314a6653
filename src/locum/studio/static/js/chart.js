// Curves over epsilon or k, with a band, a level, measured points and a mark that moves.

import { html, useEffect, useRef } from "../vendor/htm-preact.js";
import { useDark } from "./map.js";

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Where the words of a level are farthest from the curves and dots: left or right, above or below its line. The mark
// does not count, so that words stay where they are while the dial turns.
function freePlace(u, y, wide, tall, points) {
  const { left, top, width, height } = u.bbox;
  const line = u.valToPos(y, "y", true);
  const obstacles = points.flatMap(({ x, value, low, high }) => [value, low ?? value, high ?? value].map((one) => [u.valToPos(x, "x", true), u.valToPos(one, "y", true)]));
  for (const series of u.data.slice(1)) u.data[0].forEach((x, i) => obstacles.push([u.valToPos(x, "x", true), u.valToPos(series[i], "y", true)]));
  const gap = tall * 0.5;
  let best = null;
  for (const base of [line - gap, line + gap + tall * 0.8])
    for (const x of [left + gap, left + width - wide - gap]) {
      const [high, low] = [base - tall, base];
      if (high < top - gap || low > top + height + gap) continue;
      const room = Math.min(...obstacles.map(([px, py]) => Math.hypot(Math.max(x - px, px - x - wide, 0), Math.max(high - py, py - low, 0))));
      if (!best || room > best.room + 1) best = { room, place: [x, base] };
    }
  return best?.place ?? [left + gap, line - gap];
}

// curve: {x, y, low?, high?}; dots: [{x, value, low, high}]; levels: [{y, words}].
export const Chart = ({ curve, dots = [], levels = [], at, from, to, label, axis, logarithmic = true, height = 220 }) => {
  const box = useRef(null);
  const plot = useRef(null);
  const now = useRef({});
  now.current = { at, dots, levels };
  const dark = useDark();
  useEffect(() => {
    if (!curve?.x.length) return undefined;
    const marks = (u) => {
      const pen = u.ctx;
      const ratio = devicePixelRatio || 1;
      const { left, top, width, height: tall } = u.bbox;
      const { at: mark, dots: points, levels: lines } = now.current;
      pen.save();
      // A little beyond the frame, so that a dot on its edge is drawn whole.
      const edge = 6 * ratio;
      pen.beginPath();
      pen.rect(left - edge, top - edge, width + 2 * edge, tall + 2 * edge);
      pen.clip();
      for (const { y } of lines) {
        const place = u.valToPos(y, "y", true);
        pen.strokeStyle = color("--muted");
        pen.setLineDash([5 * ratio, 4 * ratio]);
        pen.lineWidth = ratio;
        pen.beginPath();
        pen.moveTo(left, place);
        pen.lineTo(left + width, place);
        pen.stroke();
        pen.setLineDash([]);
      }
      for (const { x, value, low, high } of points) {
        const [px, py] = [u.valToPos(x, "x", true), u.valToPos(value, "y", true)];
        pen.strokeStyle = pen.fillStyle = color("--ink");
        pen.lineWidth = 1.5 * ratio;
        pen.beginPath();
        pen.moveTo(px, u.valToPos(low ?? value, "y", true));
        pen.lineTo(px, u.valToPos(high ?? value, "y", true));
        pen.stroke();
        pen.beginPath();
        pen.arc(px, py, 3.5 * ratio, 0, 2 * Math.PI);
        pen.fill();
      }
      if (mark) {
        const place = u.valToPos(mark, "x", true);
        pen.strokeStyle = color("--ink");
        pen.lineWidth = 2 * ratio;
        pen.beginPath();
        pen.moveTo(place, top);
        pen.lineTo(place, top + tall);
        pen.stroke();
      }
      // Last, on a halo of the card's color: nothing is drawn through words.
      pen.font = `${11 * ratio}px system-ui, sans-serif`;
      pen.textAlign = "left";
      pen.lineJoin = "round";
      for (const { y, words } of lines) {
        const [x, base] = freePlace(u, y, pen.measureText(words).width, 11 * ratio, points);
        pen.strokeStyle = color("--surface");
        pen.lineWidth = 4 * ratio;
        pen.strokeText(words, x, base);
        pen.fillStyle = color("--muted");
        pen.fillText(words, x, base);
      }
      pen.restore();
    };
    const look = { stroke: color("--muted"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line") }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
    const band = Boolean(curve.low);
    const line = { stroke: color("--accent"), width: 2.5, points: { show: false } };
    const outline = { stroke: "transparent", points: { show: false } };
    const fill = dark ? "rgb(124 199 220 / .22)" : "rgb(11 90 114 / .16)";
    const u = new uPlot(
      {
        width: box.current.clientWidth,
        height,
        cursor: { show: false },
        legend: { show: false },
        scales: { x: { time: false, distr: logarithmic ? 3 : 1, range: () => [curve.x[0], curve.x.at(-1)] }, y: { range: () => [from, to] } },
        axes: [
          { ...look, label: axis, labelSize: 20, size: 34, splits: logarithmic ? () => [0.1, 0.3, 1, 3, 10] : undefined, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : String(Number(tick.toPrecision(2))))), filter: logarithmic ? (_, ticks) => ticks : undefined },
          { ...look, size: 44 },
        ],
        series: band ? [{}, outline, outline, line] : [{}, line],
        bands: band ? [{ series: [2, 1], fill }] : [],
        hooks: { draw: [marks] },
      },
      band ? [curve.x, curve.low, curve.high, curve.y] : [curve.x, curve.y],
      box.current,
    );
    plot.current = u;
    const watch = new ResizeObserver(() => box.current && u.setSize({ width: box.current.clientWidth, height }));
    watch.observe(box.current);
    return () => {
      watch.disconnect();
      u.destroy();
      plot.current = null;
    };
  }, [curve, dark, from, to]);
  useEffect(() => {
    plot.current?.redraw(false);
  }, [at, dots, levels]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label} data-at=${at}></div>`;
};

// The value of a curve at x, straight between its points on a logarithmic axis.
export function between(steps, x, key) {
  let i = steps.findIndex((step) => step[key] >= x);
  if (i === 0) return [steps[0], steps[0], 0];
  if (i < 0) return [steps.at(-1), steps.at(-1), 0];
  const [a, b] = [steps[i - 1], steps[i]];
  return [a, b, Math.log(x / a[key]) / Math.log(b[key] / a[key])];
}

export const mixed = (a, b, t) => a + t * (b - a);

export const mixedPoints = (a, b, t) => (t === 0 || a === b ? a : a.map((point, i) => [mixed(point[0], b[i][0], t), mixed(point[1], b[i][1], t), point[2]]));
