// At a glance: whether all is well, and if not, what to do, each reason leading to its place.

import { latest } from './draw.js';
import { age, drawn, h, show } from './elements.js';
import { table } from './rows.js';
import { brief, count, everyOf, formatRate, now, parseEvery, plural, tellDelay, tellOwed } from './words.js';

const PROCESS = ['process', 'sources', 'requests/min', 'taken over', 'runs for', 'version'];
const WHERE = { feed: 'feed', sink: 'sink', source: 'budget' };

/** Return the id of the place that a reason is about; empty where it has none of its own. */
function placeOf(about) {
  const colon = about.indexOf(':');
  const kind = colon < 0 ? about : about.slice(0, colon);
  return kind in WHERE ? `${WHERE[kind]}:${about.slice(colon + 1)}` : '';
}

/** Describe words in which commands are quoted. */
export function withCommands(text) {
  return text.split(/("dockbell [^"]*")/).map((part) => (part.startsWith('"dockbell ') ? h('code', null, part.slice(1, -1)) : part));
}

/** Show the verdict, of when it was heard last where the connection is lost; return its words. */
export function showVerdict(node, daemon, parts, go, lostAt) {
  const feeds = parts('feed').filter((feed) => !feed.paused);
  const sinks = parts('sink');
  const { reasons } = daemon;
  const [kind, sign, words] = judge(reasons, lostAt);
  show(node,
    h('div', { class: `verdict ${kind}` },
      drawn('sign', lostAt ? '?' : sign),
      h('div', { class: 'words' },
        h('p', { id: 'verdict-words', class: 'big' }, words),
        lostAt && h('p', { class: 'faint', key: 'lost' }, 'as of the last update, ', age(lostAt), '.'),
        daemon.well && !lostAt && h('p', { class: 'faint' }, `${plural(feeds.length, 'feed')} read in time, ${plural(sinks.length, 'sink')} ${sinks.length === 1 ? 'accepts' : 'accept'} events. Up for `, age(daemon.started_at, 'for'), '.'),
        !daemon.well && h('ul', { class: 'reasons' }, reasons.map((reason, i) => tellReason(reason, i, go)))),
      showFigures(feeds, sinks, parts('budget'), daemon.delay),
      daemon.processes.length > 0 && table('Processes', PROCESS, daemon.processes.map((each) => [each.process, count(each.sources), count(each.requests_per_minute), count(each.taken_over), age(each.since, 'for'), each.version]))));
  return words;
}

/** Return the kind, the sign and the words of how everything stands: what fails weighs more than what waits. */
function judge(reasons, lostAt) {
  const [failing, waiting] = ['failing', 'waiting'].map((weight) => reasons.filter((reason) => reason.weight === weight).length);
  const things = (n) => (n === 1 ? 'One thing' : `${n} things`);
  if (failing) return ['bad', '✕', `${things(failing)} ${failing === 1 ? 'fails' : 'fail'}${waiting ? `, ${waiting} to look at` : ''}`];
  if (waiting) return ['look', '!', `${things(waiting)} to look at`];
  if (reasons.length) return ['wait', '○', 'First reading in progress'];
  return ['well', '✓', lostAt ? 'All was well' : 'All is well'];
}

function tellReason({ text, about, weight }, i, go) {
  const place = placeOf(about);
  return h('li', { key: `${about} ${i}`, class: `weight-${weight}` },
    h('span', null, withCommands(text)),
    place && h('a', { href: `#${place.replace(':', '=')}`, 'aria-label': `Show ${about.replace(':', ' ')}`, on: { click: (event) => { event.preventDefault(); go(place); } } }, 'Show'));
}

function showFigures(feeds, sinks, budgets, delay) {
  const read = feeds.filter((feed) => feed.read_at).sort((a, b) => overdue(b) - overdue(a));
  const owed = sinks.reduce((sum, sink) => sum + sink.owed, 0);
  const dead = sinks.reduce((sum, sink) => sum + sink.dead, 0);
  const perMinute = sinks.reduce((sum, sink) => sum + latest(sink.rate.values), 0);
  const left = budgets.filter((budget) => budget.remaining != null).map((budget) => budget.remaining);
  return h('dl', { class: 'figures' },
    figure('stalest feed', age(read[0]?.read_at, 'for'), read.length ? `${read[0].feed}, ${everyOf(read[0])}` : 'nothing read yet'),
    figure('change to sink', delay ? tellDelay(delay, 'p50') : '–', delay ? `typical, p99 ${tellDelay(delay, 'p99')}, last hour` : 'no change in the last hour'),
    figure('delivered', `${formatRate(perMinute)}/s`, plural(sinks.length, 'sink')),
    figure('owed', tellOwed(owed, sinks.some((sink) => sink.owed && sink.owed_at_most)), dead ? plural(dead, 'dead letter') : 'no dead letters', dead > 0),
    budgets.length > 0 && figure('requests left', left.length ? brief(Math.min(...left)) : '–', 'of this minute’s budget'));
}

const overdue = (feed) => (now() - Date.parse(feed.read_at)) / 1000 / (parseEvery(feed.every) || 3600);

function figure(name, value, note, isBad) {
  return h('div', { key: name }, h('dt', null, name), h('dd', null, value), h('dd', { class: isBad ? 'note bad' : 'note faint' }, note));
}
