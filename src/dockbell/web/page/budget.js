// The budget of each source: who spent the requests of each minute, how many were left, and how they are planned.

import { counted, latest, span, stack } from './draw.js';
import { drawn, faint, h, show } from './elements.js';
import { table } from './rows.js';
import { count, formatDelay, tellDelay } from './words.js';

// The lowest band first: what must not starve lies at the bottom.
const KINDS = [
  ['poll', 'polls'], ['detail', 'details'], ['trailing', 'trailing polls'], ['pass', 'passes'], ['operator', 'operator'],
  ['others', 'others’ use of the key'], ['left', 'left'],
];

const BESIDE = ['others', 'left']; // no requests of ours

export function showBudgets(node, about, budgets, plans) {
  about.textContent = `requests a minute, ${span()}`;
  show(node, budgets.map((budget) => h('div', { class: 'budget', key: budget.source, id: `budget:${budget.source}`, tabindex: -1 }, describe(budget), tellPlan(plans.find((plan) => plan.source === budget.source)))));
}

function describe(budget) {
  const bands = KINDS.map(([kind]) => [`band ${kind}`, budget.kinds[kind] ?? []]);
  const sums = KINDS.map(([kind]) => counted(budget.kinds[kind] ?? []));
  const last = KINDS.map(([kind]) => latest(budget.kinds[kind] ?? []));
  const used = KINDS.reduce((sum, [kind], n) => sum + (BESIDE.includes(kind) ? 0 : last[n]), 0);
  const words = (i) => KINDS.map(([, name], n) => [name, sums[n][i] ?? 0]).filter(([, n]) => n > 0).map(([name, n]) => `${name} ${n}`).join(' · ') || 'no requests';
  return [
    h('p', { class: 'budget-head' }, h('strong', null, budget.source), ' ',
      h('span', null, `${count(used)} requests in the last whole minute`, budget.remaining == null ? '' : `, ${count(budget.remaining)} left now`),
      faint(`of ${count(budget.limit)} a minute; dockbell may use ${count(budget.allowed)}`)),
    stack(bands, { end: budget.end, step: budget.step, top: budget.limit, marks: budget.allowed < budget.limit ? [budget.allowed] : [], label: `Requests a minute of ${budget.source}, ${span()}; the last minute: ${words(sums[0].length - 1)}`, words }),
    h('ul', { class: 'legend' }, KINDS.map(([kind, name], n) => h('li', { key: kind, class: last[n] ? null : 'none' },
      drawn(`swatch ${kind}`), `${name} `, h('span', { class: 'number' }, count(last[n]))))),
  ];
}

const HEADS = ['feed', 'read every', 'because', 'requests/min', 'of budget', 'mean', 'p99', 'measured mean', 'measured p99'];

/** Describe what “dockbell plan” prints. */
function tellPlan(plan) {
  if (!plan) return null;
  const rows = plan.feeds.map((feed) => {
    const measured = feed.measured && { ...feed.measured, estimated: feed.measured_estimated };
    return [feed.feed, feed.interval_seconds ? formatDelay(feed.interval_seconds) : `cron ${feed.cron}`, feed.reason ?? '–', feed.requests_per_minute.toFixed(1),
      `${(feed.part_of_budget * 100).toFixed(1)} %`, formatDelay(feed.delay?.mean_seconds), formatDelay(feed.delay?.p99_seconds),
      ...['mean_seconds', 'p99_seconds'].map((name) => (measured ? tellDelay(measured, name) : '–'))];
  });
  return [
    table(`Plan of ${plan.source}`, HEADS, rows),
    h('p', { class: plan.fits ? 'faint' : 'bad', key: 'advice' }, `All: mean ${formatDelay(plan.delay.mean_seconds)}, at the least ${formatDelay(plan.floor.mean_seconds)}; ${plan.advice}.`),
  ];
}
