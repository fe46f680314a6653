// A map of vectors on a canvas: at most 5,000 points, in two color schemes.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";

const MOST = 5000;
const LIGHT = ["#0b63a5", "#b3480e", "#2b7a3d", "#7d3fa0", "#8a6d00", "#00757a", "#b01f5c", "#4a5a68", "#6b4a2f", "#3d4fc4"];
const DARK = ["#6cb3e8", "#f2a065", "#82cf95", "#c79be0", "#e2c04f", "#5fc9cd", "#f08db3", "#aebac4", "#cfa885", "#9fabff"];

export function useDark() {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

export const Legend = ({ classes }) => {
  const colors = useDark() ? DARK : LIGHT;
  return html`<ul class="legend" aria-label="Classes">${classes.slice(0, 12).map((name, i) => html`<li><i style=${{ background: colors[i % colors.length] }}></i>${name}</li>`)}${classes.length > 12 && html`<li>and ${classes.length - 12} more</li>`}</ul>`;
};

// The square that holds everything, so that nothing jumps when the dial turns.
export function boundsOf(sets) {
  let [left, right, low, high] = [-0.1, 0.1, -0.1, 0.1];
  for (const points of sets)
    for (const [x, y] of points) {
      left = Math.min(left, x);
      right = Math.max(right, x);
      low = Math.min(low, y);
      high = Math.max(high, y);
    }
  return [left, right, low, high];
}

export const Map = ({ points = [], means = [], behind = [], bounds, label, shown, settled }) => {
  const canvas = useRef(null);
  const [size, setSize] = useState([0, 0]);
  const dark = useDark();
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setSize([entry.contentRect.width, entry.contentRect.height]));
    watch.observe(canvas.current);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const [width, height] = size;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    const own = canvas.current;
    if (own.width !== Math.round(width * ratio)) own.width = Math.round(width * ratio);
    if (own.height !== Math.round(height * ratio)) own.height = Math.round(height * ratio);
    const pen = own.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const [left, right, low, high] = bounds ?? boundsOf([points, means, behind]);
    const scale = 0.92 * Math.min(width / (right - left), height / (high - low));
    const place = ([x, y]) => [width / 2 + scale * (x - (left + right) / 2), height / 2 - scale * (y - (low + high) / 2)];
    const colors = dark ? DARK : LIGHT;
    const dot = (at, radius) => {
      pen.beginPath();
      pen.arc(at[0], at[1], radius, 0, 2 * Math.PI);
    };
    pen.lineWidth = 1;
    pen.strokeStyle = dark ? "rgb(255 255 255 / .28)" : "rgb(0 0 0 / .2)";
    for (const point of behind.slice(0, MOST)) {
      dot(place(point), 2);
      pen.stroke();
    }
    pen.globalAlpha = 0.75;
    for (const point of points.slice(0, MOST)) {
      pen.fillStyle = colors[point[2] % colors.length];
      dot(place(point), 2.4);
      pen.fill();
    }
    pen.globalAlpha = 1;
    means.forEach((mean, i) => {
      const at = place(mean);
      dot(at, 7);
      pen.fillStyle = colors[i % colors.length];
      pen.fill();
      pen.lineWidth = 2.5;
      pen.strokeStyle = dark ? "#10161b" : "#ffffff";
      pen.stroke();
    });
    own.dataset.points = String(Math.min(points.length, MOST));
    own.dataset.shown = String(shown ?? "");
    own.dataset.settled = String(settled ?? "");
  }, [points, means, behind, bounds, size, dark, shown, settled]);
  return html`<canvas class="map" ref=${canvas} role="img" aria-label=${label}></canvas>`;
};
