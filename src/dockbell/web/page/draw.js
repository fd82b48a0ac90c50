// Small drawings of the last hours, by hand. One minute is one step; what is not known is a gap, not a zero: minutes from
// before the daemon's start, and the one that goes on, which would end each line at the bottom.

import { h } from './elements.js';
import { formatMinute } from './words.js';

const SPANS = [[15, 'last 15 minutes'], [30, 'last half hour'], [60, 'last hour'], [120, 'last 2 hours'], [240, 'last 4 hours']];
let [steps, spanWords] = SPANS[4];
let lived = Infinity; // whole minutes since the daemon's start

/** Show as much of the last hours as the daemon has lived through, rounded up. */
export function setUptime(seconds) {
  lived = Math.floor(seconds / 60);
  [steps, spanWords] = SPANS.find(([minutes]) => seconds <= minutes * 60) ?? SPANS[4];
}

export const span = () => spanWords;

/** The last of some values, as many as are drawn, without that of the running minute; what is missing is null. */
export function window(values) {
  const last = values.slice(-steps - 1, -1);
  return last.length < steps ? [...Array(steps - last.length).fill(null), ...last] : last;
}

/** The same of what is counted from the daemon's start on. */
export const counted = (values) => window(values).map((value, i) => (i < steps - lived ? null : value));

/** What was counted in the last whole minute; in the first one, so far. */
export const latest = (values) => values.at(lived > 0 ? -2 : -1) ?? 0;

/**
 * A line over a filled area.
 *
 * @param values one a step, null where nothing is known
 * @param mark a value to draw a dashed line at, such as the interval
 * @param isCounted the values are counted from the daemon's start on
 * @param beside values of a dashed line; then all are drawn, whatever the uptime
 * @param goal what the values are to stay below
 */
export function spark(values, { end, step = 60, label, words, mark = 0, beside, goal = 0, isCounted }) {
  const known = beside ? values : isCounted ? counted(values) : window(values);
  const top = Math.max(...[...known, ...(beside ?? [])].map((value) => value ?? 0), mark * 1.25, goal * 1.25, 1e-9) * 1.08;
  const x = (i) => ((i * 100) / (known.length - 1)).toFixed(2);
  const y = (value) => (30 - (value / top) * 29).toFixed(2);
  const [line, area] = trace(known, x, y);
  const dashed = beside ? trace(beside, x, y)[0] : mark > 0 && `M0 ${y(mark)}H100`;
  return h('span', { class: 'spark', role: 'img', 'aria-label': label, on: reading(known, end, beside ? 0 : step, step, (i) => (known[i] == null ? '–' : words(known[i], i))) },
    h('svg', { viewBox: '0 0 100 30', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      h('path', { class: 'area', d: area || 'M0 30' }),
      dashed && h('path', { class: 'mark', d: dashed }),
      goal > 0 && h('path', { class: 'mark goal', d: `M0 ${y(goal)}H100` }),
      h('path', { class: 'line', d: line || 'M0 30' })));
}

/** The paths of a line and of the area below it. */
function trace(values, x, y) {
  let line = '';
  let area = '';
  for (let i = 0; i < values.length; ) {
    if (values[i] == null) {
      i += 1;
      continue;
    }
    const from = i;
    while (i < values.length && values[i] != null) i += 1;
    const points = values.slice(from, i).map((value, n) => `${x(from + n)} ${y(value)}`);
    if (points.length === 1) points.push(`${(Number(x(from)) + 0.8).toFixed(2)} ${y(values[from])}`);
    line += `M${points.join('L')}`;
    area += `M${x(from)} 30L${points.join('L')}L${x(i - 1)} 30Z`;
  }
  return [line, area];
}

/**
 * Bands stacked on each other.
 *
 * @param bands [[class, values]...], the lowest first
 * @param top the height of it all
 */
export function stack(bands, { end, step = 60, top, label, marks = [], words }) {
  const shown = bands.map(([name, values]) => [name, counted(values)]);
  const base = Array(steps).fill(0);
  const height = Math.max(top, ...base.map((_, i) => shown.reduce((sum, [, values]) => sum + (values[i] ?? 0), 0)), 1);
  const x = (i) => ((i * 100) / steps).toFixed(2);
  const y = (value) => (40 - (value / height) * 40).toFixed(2);
  const paths = shown.map(([name, values]) => {
    let lower = '';
    let upper = `M0 ${y(base[0])}`;
    for (let i = 0; i < steps; i += 1) {
      const from = base[i];
      base[i] += values[i] ?? 0;
      upper += `L${x(i)} ${y(base[i])}H${x(i + 1)}`;
      lower = `L${x(i + 1)} ${y(from)}H${x(i)}${lower}`;
    }
    return h('path', { class: name, d: `${upper}${lower}Z` });
  });
  return h('div', { class: 'stack', role: 'img', 'aria-label': label, on: reading(base, end, step, step, words) },
    h('svg', { viewBox: '0 0 100 40', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      paths, marks.map((value) => h('path', { class: 'mark', d: `M0 ${y(value)}H100` }))));
}

/** Return what tells the value under the pointer; the last one's step ends `before` seconds ahead of `end`. */
function reading(values, end, before, step, words) {
  return {
    pointermove: (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      const i = Math.max(0, Math.min(values.length - 1, Math.floor(((event.clientX - box.left) / box.width) * values.length)));
      const at = new Date(Date.parse(end) - (before + (values.length - 1 - i) * step) * 1000);
      read(event, `${formatMinute(at)} · ${words(i)}`);
    },
    pointerleave: () => read(null, ''),
  };
}

function read(event, words) {
  const node = document.getElementById('readout');
  node.hidden = !words;
  if (!words) return;
  node.textContent = words;
  const left = Math.min(event.clientX + 12, document.documentElement.clientWidth - node.offsetWidth - 8);
  node.style.transform = `translate(${Math.max(8, left)}px, ${event.clientY + 16}px)`;
}
