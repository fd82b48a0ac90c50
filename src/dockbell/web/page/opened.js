// One event, opened: what it changed, where it is, and why its record has the events that it has.

import { actButton, get, pathOf, say } from './acting.js';
import { age, clock, drawn, faint, h } from './elements.js';
import { count, formatDelay, formatValue, plural, shorten } from './words.js';

const STAGES = { delivered: '✓', owed: '○', waiting: '○', blocked: '▲', dead: '✕', filtered: '–', held: '❚❚', 'not begun': '○', 'before its beginning': '–' };
const SIGNS = { add: ['+', 'added'], remove: ['−', 'removed'], replace: ['~', 'changed'] };
const DIFFERENCES_MOST = 60;
const ATTEMPTS_MOST = 10;

async function ask(path) {
  try {
    return { found: await get(path) };
  } catch (error) {
    return { problem: error.message };
  }
}

/** Load an event; the answer is what `describeOpened` takes. */
export const load = ({ source, resource, sequence }) => ask(`events/${pathOf(source, resource, sequence)}`);

export const loadWhy = (source, resource, key) => ask(`why/${pathOf(source, resource, key)}`);

/** Whether a delivery of an opened event may still change by itself. */
export const isUnderWay = ({ found }) => Boolean(found?.deliveries.some((each) => ['owed', 'waiting', 'blocked'].includes(each.stage)));

/** Describe buttons that copy a link to what has this place in the address, and its JSON. */
export function copyButtons(place, text) {
  const link = () => `${location.origin}${location.pathname}#${encodeURIComponent(place).replaceAll('%2F', '/').replace('%3D', '=')}`;
  const copy = (label, what) => h('button', { type: 'button', key: label, class: 'quiet', on: { click: async (event) => say(...await copied(label, what()), event.currentTarget) } }, label);
  return h('div', { class: 'row', key: 'copy' }, copy('Copy link', link), text && copy('Copy JSON', () => text));
}

async function copied(label, text) {
  try {
    await navigator.clipboard.writeText(text);
    return [`${label}: copied`, false];
  } catch { // the clipboard is kept from pages that come by http from elsewhere
    return [`${label}: ${text}`, false];
  }
}

/** Describe the button that has an event sent to a sink again, or at once, as it stands there. */
function sendButton({ sink, stage }, { feed, sequence, key }) {
  const path = `sinks/${pathOf(sink)}`;
  const title = `${feed} #${sequence} to ${sink}`;
  if (stage === 'blocked') return actButton('Send now', { title, path: `${path}/retry` });
  if (key && stage === 'dead') return actButton('Retry', { title, path: `${path}/dead/retry`, body: { letters: [{ feed, sequence, key }] } });
  if (stage === 'delivered' || stage === 'before its beginning') return actButton('Send again', { title, path: `${path}/replay`, body: { feed, sequence } });
  return null;
}

/** Describe an opened event; `why` is undefined until it was asked for, null while it is looked up. */
export function describeOpened(summary, { found, problem, why, all, raw }, { askWhy, showAll, showRaw }) {
  if (problem) return h('p', { class: 'bad' }, problem);
  if (!found) return h('p', { class: 'faint' }, 'Loading…');
  const { event, text, differences, deliveries } = found;
  const shown = all ? differences : differences.slice(0, DIFFERENCES_MOST);
  return [
    differences.length > 0
      ? h('div', { class: 'diff', key: 'diff' }, shown.map((each, i) => describeDifference(each, i)),
        shown.length < differences.length && h('button', { type: 'button', key: 'all', on: { click: showAll } }, `All ${count(differences.length)} differences`),
        all && found.more > 0 && h('p', { class: 'difference faint', key: 'more' }, `and ${count(found.more)} more`))
      : h('pre', { key: 'data' }, formatValue(event.data, 4000)),
    raw && h('pre', { key: 'raw' }, text),
    h('p', { class: 'faint meta', key: 'meta' }, `${event.type}, revision ${summary.revision ?? '–'}, recorded `, clock(found.recorded_at), ', ', h('code', null, event.id),
      event.data?.changed_between && [', changed between ', clock(event.data.changed_between[0]), ' and ', clock(event.data.changed_between[1])]),
    deliveries.length > 0 && h('ul', { class: 'deliveries', key: 'deliveries', 'aria-label': 'Deliveries' }, deliveries.map((each) => h('li', { key: each.sink },
      drawn(`shape ${each.stage}`, STAGES[each.stage] ?? '○'), h('strong', null, each.sink), ` ${each.stage}`,
      each.attempts > 0 && faint(` after ${plural(each.attempts, 'attempt')}`),
      each.stage === 'blocked' && each.due && [', next ', age(each.due, 'in')],
      each.error && h('span', { class: 'bad error' }, ` ${each.error}`),
      sendButton(each, summary),
      each.attempt_log.length > 0 && h('ul', { class: 'faint' }, each.attempt_log.slice(-ATTEMPTS_MOST).map((attempt, i) => h('li', { key: i }, describeAttempt(attempt))))))),
    h('div', { class: 'row', key: 'about' },
      h('button', { type: 'button', class: 'quiet', 'aria-pressed': String(Boolean(raw)), on: { click: showRaw } }, 'Raw JSON'),
      copyButtons(`event=${summary.feed}/${summary.sequence}`, text),
      summary.key && h('a', { href: `#key=${summary.feed}/${encodeURIComponent(summary.key)}` }, 'Record')),
    summary.key && why === undefined && h('button', { type: 'button', key: 'why-button', on: { click: askWhy } }, 'Why?'),
    why !== undefined && describeWhy(why),
  ];
}

function describeAttempt({ number, at, seconds, verdict, error, status, answer, next_at: next, replay }) {
  return [clock(at), ` ${replay ? 'replay' : 'attempt'} ${number}: ${verdict}${error ? `, ${error}` : status ? `, HTTP ${status}` : ''} after ${formatDelay(seconds)}`,
    next && [', next planned for ', clock(next)], answer && [': ', h('code', null, answer)]];
}

// Numbers are shown as they are stored: a browser rounds long ones, and cannot tell 1.10 from 1.1.
const tellValue = (text, value) => (text == null ? formatValue(value) : shorten(text));

function describeDifference({ path, op, from, to, from_text: fromText, to_text: toText }, i) {
  const [sign, word] = SIGNS[op] ?? SIGNS.replace;
  return h('div', { class: `difference ${op}`, key: `${path} ${i}` },
    h('code', { class: 'path' }, drawn('sign', sign), h('span', { class: 'unseen' }, `${word} `), path || '/'),
    h('span', { class: 'values' },
      op !== 'add' && h('del', null, h('span', { class: 'unseen' }, 'from '), tellValue(fromText, from)),
      op === 'replace' && drawn('to', '→'),
      op !== 'remove' && h('ins', null, h('span', { class: 'unseen' }, 'to '), tellValue(toText, to))));
}

/** Describe what `why` answers: the reason first, then what it rests on. */
export function describeWhy(why) {
  if (!why) return h('p', { class: 'faint', key: 'why', tabindex: -1 }, 'Loading…');
  if (why.problem) return h('p', { class: 'bad', key: 'why', tabindex: -1 }, why.problem);
  const { found } = why;
  const { record } = found;
  return h('div', { class: 'why', key: 'why', role: 'group', tabindex: -1, 'aria-label': 'Why' },
    h('p', null, h('strong', null, 'Why: '), found.why || 'the last reading has its event.'),
    h('p', { class: 'faint' }, h('code', null, found.key), ` of ${found.feed}: ${found.presence}`, record && `, revision ${record.revision}`, record?.modified && [', modified ', age(record.modified)]),
    list('Runs that covered it', found.runs.slice(-8).reverse(), (run) => [clock(run.asked_at), ` ${run.kind}: `, run.problem ? `incomplete, ${run.problem}` : `${plural(run.pages, 'page')}, ${plural(run.records, 'record')}, ${plural(run.events, 'event')}`]),
    list('Findings', found.findings.slice(-8).reverse(), (note) => [clock(note.at), ` ${note.via}: ${note.says}`, note.sequence && ` (#${note.sequence})`]),
    list('Quarantine', found.quarantine, (bad) => bad.problem),
    list('Events', found.events.slice(-8).reverse(), (event) => [clock(event.recorded_at), ` #${event.sequence} ${event.type}`, faint(Object.entries(event.sinks).map(([name, { stage }]) => ` · ${name} ${stage}`))]));
}

const list = (title, rows, words) => rows.length > 0 && [h('h3', { key: title, class: 'small' }, title), h('ul', { key: `${title} list` }, rows.map((row, i) => h('li', { key: i }, words(row))))];
