// A map of vectors on a canvas: at most 5,000 points, in two color schemes.

import { html, useEffect, useRef, useState } from "../vendor/htm-preact.js";

const MOST = 5000;
const LIGHT = ["#15599c", "#d97a4a", "#0b7d6e", "#8c1d55", "#8f8f0a", "#3f98dd", "#4d3c2c", "#7d55e6", "#c9405f", "#3f7a1c", "#b565b0"];
const DARK = ["#5ea8e8", "#ff9c66", "#3fd0a8", "#e0609a", "#d6d34a", "#a8d8ff", "#b09878", "#a98bff", "#ff7f8f", "#8fc84f", "#e6b3e0"];

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
