// The budget of each source: who spent the requests of each minute, how many were left, and how they are planned. Of many
// sources, first all together, and each below it on request.

import { counted, latest, span, stack } from './draw.js';
import { drawn, faint, h, show } from './elements.js';
import { breakable, table } from './rows.js';
import { count, formatDelay, plural, tellDelay } from './words.js';

// The lowest band first: what must not starve lies at the bottom.
const KINDS = [
  ['poll', 'polls'], ['detail', 'details'], ['trailing', 'trailing polls'], ['pass', 'passes'], ['operator', 'operator'],
  ['others', 'others’ use of the key'], ['left', 'left'],
];

const TOGETHER_FROM = 3; // sources
const NAMED_MOST = 7; // of these, in the chart of all
const BESIDE = ['others', 'left']; // no requests of ours

export function showBudgets(node, about, budgets, plans) {
  about.textContent = `requests per minute, ${span()}`;
  const areMany = budgets.length >= TOGETHER_FROM;
  show(node, areMany && together(budgets), budgets.map((budget) => {
    const plan = tellPlan(plans.find((each) => each.source === budget.source));
    const props = { class: 'budget', key: `${areMany} ${budget.source}`, id: `budget:${budget.source}`, tabindex: -1 };
    if (!areMany) return h('div', props, head(budget), describe(budget), plan);
    return h('details', props, h('summary', null, head(budget)), describe(budget), plan);
  }));
}

/** Requests of ours in each minute. */
const usedOf = (budget) => {
  const all = KINDS.filter(([kind]) => !BESIDE.includes(kind)).map(([kind]) => budget.kinds[kind] ?? []);
  return Array.from({ length: Math.max(0, ...all.map((each) => each.length)) }, (_, i) => all.reduce((sum, each) => sum + (each[i] ?? 0), 0));
};

/** Describe the requests of all sources, stacked: those that use most by name, the others as one. */
function together(budgets) {
  const uses = budgets.map((budget) => ({ name: budget.source, values: usedOf(budget) }));
  const total = ({ values }) => values.reduce((sum, each) => sum + each, 0);
  uses.sort((a, b) => total(b) - total(a));
  const rest = uses.splice(NAMED_MOST);
  if (rest.length) uses.push({ name: plural(rest.length, 'other source'), values: rest[0].values.map((_, i) => rest.reduce((sum, { values }) => sum + (values[i] ?? 0), 0)) });
  const [{ end, step }] = budgets;
  const limits = new Map(budgets.map((budget) => [budget.account, budget.limit])); // of each key
  const top = [...limits.values()].reduce((sum, limit) => sum + limit, 0);
  const sums = uses.map(({ values }) => counted(values));
  const last = uses.map(({ values }) => latest(values));
  const words = (i) => uses.map(({ name }, n) => [name, sums[n][i] ?? 0]).filter(([, n]) => n > 0).map(([name, n]) => `${name} ${n}`).join(' · ') || 'no requests';
  const used = last.reduce((sum, each) => sum + each, 0);
  return h('div', { class: 'budget', key: 'together', id: 'budget-together' },
    h('p', { class: 'budget-head' }, h('strong', null, `All ${budgets.length} sources`), ' ', h('span', null, `${count(used)} requests in the last full minute`), faint(`of ${count(top)} that their keys allow`)),
    stack(uses.map(({ values }, n) => [`band key-${n}`, values]), { end, step, top: Math.max(1, ...sums[0].map((_, i) => sums.reduce((sum, each) => sum + (each[i] ?? 0), 0))), label: `Requests per minute of all sources, ${span()}; the last minute: ${words(sums[0].length - 1)}`, words }),
    h('ul', { class: 'legend' }, uses.map(({ name }, n) => h('li', { key: name, class: last[n] ? null : 'none' }, drawn(`swatch key-${n}`), `${name} `, h('span', { class: 'number' }, count(last[n]))))));
}

function head(budget) {
  const used = latest(usedOf(budget));
  return h('p', { class: 'budget-head' }, h('strong', null, breakable(budget.source)), ' ',
    h('span', null, `${count(used)} requests in the last full minute`, budget.remaining == null ? '' : `, ${count(budget.remaining)} left now`),
    faint(`of ${count(budget.limit)} per minute; dockbell may use ${count(budget.allowed)}`));
}

function describe(budget) {
  const bands = KINDS.map(([kind]) => [`band ${kind}`, budget.kinds[kind] ?? []]);
  const sums = KINDS.map(([kind]) => counted(budget.kinds[kind] ?? []));
  const last = KINDS.map(([kind]) => latest(budget.kinds[kind] ?? []));
  const words = (i) => KINDS.map(([, name], n) => [name, sums[n][i] ?? 0]).filter(([, n]) => n > 0).map(([name, n]) => `${name} ${n}`).join(' · ') || 'no requests';
  return [
    stack(bands, { end: budget.end, step: budget.step, top: budget.limit, marks: budget.allowed < budget.limit ? [budget.allowed] : [], label: `Requests per minute of ${budget.source}, ${span()}; the last minute: ${words(sums[0].length - 1)}`, words }),
    h('ul', { class: 'legend' }, KINDS.map(([kind, name], n) => h('li', { key: kind, class: last[n] ? null : 'none' },
      drawn(`swatch ${kind}`), `${name} `, h('span', { class: 'number' }, count(last[n]))))),
  ];
}

const HEADS = ['feed', 'read every', 'reason', 'requests/min', 'of budget', 'mean', 'p99', 'measured mean', 'measured p99'];

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
    h('p', { class: plan.fits ? 'faint' : 'bad', key: 'advice' }, `All: mean ${formatDelay(plan.delay.mean_seconds)}, at best ${formatDelay(plan.floor.mean_seconds)}; ${plan.advice}.`),
  ];
}
