// The feeds: one row each, opened to all that is known of it and what may be decided. Those of many sources are grouped.

import { actButton, get, pathOf, whyNot } from './acting.js';
import { span, spark } from './draw.js';
import { age, faint, h, show } from './elements.js';
import { badge, breakable, cell, delayCell, drawer, facts, opener, Rows } from './rows.js';
import { withCommands } from './verdict.js';
import { brief, count, everyOf, formatAge, formatDelay, formatShare, now, parseEvery, plural, SHAPES, tellAll } from './words.js';

const FILTER_FROM = 9;
const GROUPS_FROM = 3; // sources
const WORST = ['bad', 'look', 'wait', 'well'];

/** Return the kind and the word of how a feed stands. */
function judgeFeed(feed) {
  if (feed.paused) return ['wait', 'paused'];
  if (feed.problem) return ['bad', 'stopped'];
  if (feed.failing) return ['bad', 'failing'];
  if (feed.held) return ['look', 'held'];
  if (feed.drift?.decision === 'hold') return ['look', 'drift'];
  if (feed.quarantined) return ['look', 'quarantine'];
  if (feed.reasons.length) return ['look', feed.expected_at && Date.parse(feed.expected_at) < now() ? 'late' : 'to check'];
  if (feed.silence === 'blind') return ['look', 'blind'];
  if (!feed.read_at) return ['wait', 'not read yet'];
  return feed.silence ? ['well', feed.silence] : ['well', 'well'];
}

export class Feeds extends Rows {
  constructor(list, filter) {
    super(list, 'feed', (feed, isOpen, toggle) => describe(feed, isOpen, toggle, { week: this.weeks.get(feed.feed), show: () => this.showWeek(feed) }));
    this.weeks = new Map(); // by feed, where they are shown
    this.bar = filter;
    this.text = '';
    this.onlyLook = false;
    this.groups = new Map(); // by source: its node, and whether it was opened or closed by hand
  }

  listOf({ source }) {
    let group = this.groups.get(source);
    if (!group) {
      const [node, head, list] = ['li', 'div', 'ul'].map((tag) => document.createElement(tag));
      node.className = 'group';
      head.className = 'group-head';
      list.className = 'rows';
      list.id = `feeds-of:${source}`;
      node.append(head, list);
      group = { source, node, head, list, isOpen: null };
      this.groups.set(source, group);
      this.list.append(node);
    }
    return group.list;
  }

  left(feed) {
    const group = feed && this.groups.get(feed.source);
    if (!group || group.list.childElementCount) return;
    group.node.remove();
    this.groups.delete(feed.source);
  }

  reveal(row) {
    super.reveal(row);
    const group = this.groups.get(row.value.source);
    group.isOpen = true;
    group.node.hidden = false;
    this.gather();
  }

  /** Show how each source stands, and the rows of those that are not well; with few sources, all rows alone. */
  gather() {
    const areMany = this.groups.size >= GROUPS_FROM;
    const feeds = Map.groupBy(this.values, (feed) => feed.source);
    for (const group of this.groups.values()) {
      const shown = [...group.list.children].some((node) => !node.hidden);
      group.node.hidden = !shown;
      group.head.hidden = !areMany;
      if (areMany) this.tellGroup(group, feeds.get(group.source));
      else group.list.hidden = false;
    }
  }

  tellGroup(group, feeds) {
    const judged = feeds.map(judgeFeed);
    const kind = WORST.find((each) => judged.some(([found]) => found === each));
    const [, word] = judged.find(([found]) => found === kind);
    const isSought = this.text !== '' || this.onlyLook;
    const isOpen = group.isOpen ?? (isSought || kind === 'bad' || kind === 'look');
    const n = judged.filter(([found]) => found === kind).length;
    const oldest = feeds.map((feed) => feed.read_at).filter(Boolean).sort()[0];
    const sum = (name) => brief(feeds.reduce((total, feed) => total + feed[name], 0));
    group.list.hidden = !isOpen && !group.list.contains(document.activeElement);
    group.node.classList.toggle('open', !group.list.hidden);
    const toggle = () => {
      group.isOpen = group.list.hidden;
      this.gather();
    };
    show(group.head,
      h('button', { type: 'button', class: 'opener', 'aria-expanded': String(!group.list.hidden), 'aria-controls': group.list.id, on: { click: toggle } },
        h('span', { class: 'arrow', 'aria-hidden': 'true' }), h('span', { class: 'name' }, breakable(group.source))),
      badge(kind, SHAPES[word] ?? SHAPES[kind], n === feeds.length ? word : `${n} of ${feeds.length} ${word}`),
      faint(plural(feeds.length, 'feed'), ', read ', oldest ? age(oldest) : '–', `, ${sum('records')} records, ${sum('events')} events`));
  }

  /** Show the delays of a feed over the last week, or the last day again. */
  async showWeek({ feed, source, resource }) {
    if (!this.weeks.delete(feed)) {
      this.weeks.set(feed, {});
      this.redraw(feed);
      try {
        const week = await get(`delays/${pathOf(source, resource)}`);
        if (this.weeks.has(feed)) this.weeks.set(feed, week);
      } catch (error) {
        this.weeks.set(feed, { problem: error.message });
      }
    }
    this.redraw(feed);
  }

  /** Show the filter where there are many, and those rows that it lets through. */
  sift() {
    this.bar.hidden = this.rows.size < FILTER_FROM;
    if (this.bar.hidden) {
      this.gather();
      return;
    }
    const isShown = (feed) => feed.feed.includes(this.text) && !(this.onlyLook && (feed.paused || judgeFeed(feed)[0] === 'well'));
    const n = this.filter(isShown);
    this.gather();
    show(this.bar,
      h('input', { type: 'search', 'aria-label': 'Feeds whose name contains', placeholder: 'name', on: { input: (event) => { this.text = event.target.value; this.sift(); } } }),
      h('label', null, h('input', { type: 'checkbox', on: { change: (event) => { this.onlyLook = event.target.checked; this.sift(); } } }), 'only feeds to check'),
      h('span', { class: 'faint', role: 'status' }, n === this.rows.size ? plural(n, 'feed') : `${n} of ${this.rows.size}`));
  }
}

function describe(feed, isOpen, toggle, weeks) {
  const [kind, word] = judgeFeed(feed);
  const { freshness, interval, delay } = feed;
  const runs = interval.kept + interval.late;
  const id = `feed-drawer:${feed.feed}`;
  const worst = Math.max(0, ...freshness.values.map((value) => value ?? 0));
  return [
    h('div', { class: 'line' },
      h('span', { class: 'cell who', key: 'who' }, opener(id, feed.feed, isOpen, toggle), badge(kind, SHAPES[word] ?? SHAPES[kind], word)),
      cell('fresh', 'last read', h('span', null, age(feed.read_at)), faint(everyOf(feed))),
      h('span', { class: 'cell drawn', key: 'drawn' }, spark(freshness.values, {
        end: freshness.end, step: freshness.step, mark: parseEvery(feed.every),
        label: `Data age, ${span()}: at worst ${formatAge(worst)}`, words: (value) => `${formatDelay(value)} old`,
      })),
      cell('change', 'last change', age(feed.last_change_at, 'ago', 'none')),
      cell('kept', 'runs in time', runs ? percent(interval) : faint('–'), interval.late > 0 && faint(`${interval.late} late`)),
      delayCell('change to sink', delay),
      cell('size', 'records', h('span', null, brief(feed.records)), faint(`${brief(feed.events)} ${feed.events === 1 ? 'event' : 'events'}`))),
    feed.progress && describeProgress(feed.progress),
    isOpen && drawer(id, toggle, open(feed, weeks)),
  ];
}

function percent({ kept, late }) {
  const share = (100 * kept) / (kept + late);
  return `${share === 100 || share === 0 ? share : share.toFixed(share > 99 ? 1 : 0)} %`;
}

function describeProgress(progress) {
  const share = progress.expected ? Math.min(1, progress.records / progress.expected) : null;
  const words = `${progress.kind}: ${plural(progress.pages, 'page')}, ${count(progress.records)}${progress.expected ? ` of about ${count(progress.expected)}` : ''} records`;
  return h('div', { class: 'progress', key: 'progress' },
    h('div', { class: 'bar', role: 'progressbar', 'aria-label': words, 'aria-valuenow': share === null ? null : Math.round(share * 100), 'aria-valuemin': 0, 'aria-valuemax': 100 },
      h('span', { class: share === null ? 'unknown' : null, vars: { share: `${((share ?? 1) * 100).toFixed(1)}%` } })),
    faint(words, progress.ends_at ? ', done ' : '', progress.ends_at && age(progress.ends_at, 'in')));
}

function open(feed, weeks) {
  const path = `feeds/${pathOf(feed.source, feed.resource)}`;
  const { drift, deletions, bad, gap } = feed;
  const explained = (feed.held > 0) + (drift?.decision === 'hold') + (feed.quarantined > 0); // by what follows
  return [
    feed.reasons.length > explained && h('ul', { class: 'reasons', key: 'reasons' }, feed.reasons.map((reason, i) => h('li', { key: i }, h('span', null, withCommands(reason))))),
    feed.held > 0 && h('div', { class: 'decide', key: 'held' },
      h('h3', null, `${plural(feed.held, 'deletion')} held`),
      h('p', { class: 'faint' }, 'Too many records vanished at once. Approve to publish each as deleted. Reject to keep them until they appear again.'),
      h('ul', { class: 'keys' }, deletions.map((each) => h('li', { key: each.key }, h('code', null, each.key), ' absent for ', age(each.suspected_at, 'for'))),
        feed.held > deletions.length && h('li', { class: 'faint' }, `and ${count(feed.held - deletions.length)} more`)),
      h('div', { class: 'row' },
        actButton('Approve', { title: `${plural(feed.held, 'deletion')} of ${feed.feed}`, path: `${path}/deletions`, body: { decision: 'approve' }, danger: true, words: `${plural(feed.held, 'record')} of ${feed.feed} will be published as deleted. Sinks cannot undo this.` }),
        actButton('Reject', { title: `deletions of ${feed.feed}`, path: `${path}/deletions`, body: { decision: 'reject' } }))),
    drift && h('div', { class: 'decide', key: 'drift' },
      h('h3', null, `Drift: ${count(drift.readings)} readings ${drift.decision === 'hold' ? 'held' : `(${drift.decision})`}`),
      h('p', { class: 'faint' }, 'For ', age(drift.since, 'for'), ', records have differed only in these members, with unchanged timestamps: the service changed, not the records. Absorb to publish no events. Publish to send one per record.'),
      h('p', null, drift.fields.map((field) => [h('code', { key: field }, field), ' '])),
      drift.decision === 'hold' && h('div', { class: 'row' },
        actButton('Absorb', { title: `drift of ${feed.feed}`, path: `${path}/drift`, body: { decision: 'absorb' } }),
        actButton('Publish', { title: `drift of ${feed.feed}`, path: `${path}/drift`, body: { decision: 'publish' }, words: `dockbell publishes an event for each of ${plural(drift.readings, 'reading')} of ${feed.feed}.` }))),
    feed.quarantined > 0 && h('div', { key: 'quarantine' },
      h('h3', null, `${plural(feed.quarantined, 'record')} in quarantine`),
      h('ul', { class: 'keys' }, bad.map((each, i) => h('li', { key: i }, each.key && h('code', null, each.key), ` ${each.problem} `, faint('met ', age(each.last_at))))),
    ),
    feed.silence_words && h('p', { key: 'silence' }, feed.silence_words),
    feed.remarks.length > 0 && h('ul', { class: 'remarks', key: 'remarks' }, feed.remarks.map((remark, i) => h('li', { key: i }, withCommands(remark)))),
    facts([
      ['last full read', feed.pass_at && age(feed.pass_at)],
      ['complete up to', feed.watermark && age(feed.watermark)],
      ['records', `${count(feed.records)}, ${plural(feed.events, 'event')} so far`],
      ['change to sink', tellAll(feed.delay, 'change')],
      ['freshness goal', feed.goal && `${formatDelay(feed.goal)}${feed.goal_share === null ? '' : `, met by ${formatShare(feed.goal_share)} in the last hour`}`],
      ...(feed.delay?.sinks ?? []).map((each) => [`to ${each.sink}`, tellAll(each, 'change')]),
      ['last blind', gap && [gap.from ? age(gap.from) : 'from the beginning', ' until ', age(gap.to), `: ${gap.reason}`]],
    ]),
    h('div', { key: 'course' },
      weeks.week ? plotWeek(weeks.week) : feed.course && plot(feed.course, feed.goal),
      h('div', { class: 'row' }, h('button', { type: 'button', class: 'quiet', on: { click: weeks.show } }, weeks.week ? 'Delay, last day' : 'Delay, last week'))),
    feed.learned.length > 0 && h('h3', { key: 'learned-head' }, 'Learned about the list'),
    feed.learned.length > 0 && h('div', { key: 'learned' }, facts(feed.learned)),
    h('div', { class: 'row', key: 'acts' },
      actButton('Reconcile', { title: feed.feed, path: `${path}/reconcile` }),
      faint(whyNot() || 'reads the whole list now to find deletions and missed changes')),
  ];
}

function plot({ mean, p99, planned, end, step }, goal) {
  const words = (value, i) => `mean ${formatDelay(value)}, p99 ${formatDelay(p99[i])}, planned ${formatDelay(planned[i])}`;
  const last = mean.findLastIndex((value) => value != null);
  return [
    spark(mean, { end, step, beside: planned, goal: goal ?? 0, label: `Delay, the last day; last: ${words(mean[last], last)}`, words }),
    h('p', { class: 'faint' }, `Change to sink, last day: mean; dashed: planned wait${goal ? `; dotted: goal of ${formatDelay(goal)}` : ''}.`),
  ];
}

function plotWeek({ problem, mean_seconds: mean, p99_seconds: p99, changes, end, step_seconds: step, goal_seconds: goal, goal_share: share }) {
  if (problem) return h('p', { class: 'bad' }, problem);
  if (!mean) return h('p', { class: 'faint' }, 'Loading…');
  const words = (value, i) => `mean ${formatDelay(value)}, p99 ${formatDelay(p99[i])}, ${plural(changes[i], 'change')}`;
  const total = changes.reduce((sum, each) => sum + each, 0);
  const met = goal && share !== null ? `; ${formatShare(share)} within the goal of ${formatDelay(goal)} (dotted)` : '';
  return [
    spark(p99, { end, step, beside: mean, goal: goal ?? 0, label: `Delay, the last week: ${plural(total, 'change')}${met}`, words: (_, i) => words(mean[i], i) }),
    h('p', { class: 'faint' }, `Change to sink, last week, per two hours: p99; dashed: mean; ${plural(total, 'change')}${met}.`),
  ];
}
