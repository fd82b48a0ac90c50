// The budget of each source: who spent the requests of each minute, and how many were left.

import { span, stack, window } from './draw.js';
import { h, show } from './elements.js';
import { count } from './words.js';

// The lowest band first: what must not starve lies at the bottom.
const KINDS = [
  ['poll', 'polls'], ['detail', 'details'], ['trailing', 'trailing polls'], ['pass', 'passes'], ['operator', 'operator'],
  ['others', 'others’ use of the key'], ['left', 'left'],
];

export function showBudgets(node, about, budgets) {
  about.textContent = `requests a minute, ${span()}`;
  show(node, budgets.map((budget) => h('div', { class: 'budget', key: budget.source, id: `budget:${budget.source}`, tabindex: -1 }, describe(budget))));
}

function describe(budget) {
  const bands = KINDS.map(([kind]) => [`band ${kind}`, budget.kinds[kind] ?? []]);
  const sums = KINDS.map(([kind]) => window(budget.kinds[kind] ?? []));
  const latest = sums.map((values) => values.at(-1) ?? 0);
  const words = (i) => KINDS.map(([, name], n) => [name, sums[n][i] ?? 0]).filter(([, n]) => n > 0).map(([name, n]) => `${name} ${n}`).join(' · ') || 'no requests';
  return [
    h('p', { class: 'budget-head' }, h('strong', null, budget.source), ' ',
      h('span', null, `${count(budget.used)} used within the last minute`, budget.remaining == null ? '' : `, ${count(budget.remaining)} left`),
      h('span', { class: 'faint' }, `of ${count(budget.limit)} a minute; dockbell may use ${count(budget.allowed)}`)),
    stack(bands, { end: budget.end, step: budget.step, top: budget.limit, marks: budget.allowed < budget.limit ? [budget.allowed] : [], label: `Requests a minute of ${budget.source}, ${span()}; the last minute: ${words(sums[0].length - 1)}`, words }),
    h('ul', { class: 'legend' }, KINDS.map(([kind, name], n) => h('li', { key: kind, class: latest[n] ? null : 'none' },
      h('span', { class: `swatch ${kind}`, 'aria-hidden': 'true' }), `${name} `, h('span', { class: 'number' }, count(latest[n]))))),
  ];
}
