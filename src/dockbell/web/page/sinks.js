// The sinks: one row each, opened to its deliveries that died and what may be done about them.

import { actButton, get, pathOf, whyNot } from './acting.js';
import { counted, latest, span, spark } from './draw.js';
import { age, faint, h } from './elements.js';
import { badge, cell, delayCell, drawer, facts, opener, Rows } from './rows.js';
import { withCommands } from './verdict.js';
import { brief, count, formatRate, plural, SHAPES, tellAll, tellOwed } from './words.js';

const SHOWN = { connected: ['well', 'well'], waiting: ['look', 'wait'], down: ['bad', 'bad'], paused: ['look', 'paused'], unknown: ['wait', 'wait'] };

/** Return the kind and the word of how a sink stands. */
function judgeSink(sink) {
  if (sink.paused) return ['look', 'paused', SHAPES.paused];
  const [kind, shape] = SHOWN[sink.condition] ?? SHOWN.unknown;
  if (kind === 'well' && sink.reasons.length) return ['look', sink.dead ? 'dead letters' : sink.condition, SHAPES.look];
  return [kind, sink.condition, SHAPES[shape]];
}

export class Sinks extends Rows {
  constructor(list) {
    super(list, 'sink', (sink, isOpen, toggle) => this.row(sink, isOpen, toggle), (sink) => this.load(sink));
    this.letters = new Map();
  }

  set(name, value) {
    const before = this.rows.get(name);
    super.set(name, value);
    if (before?.isOpen && value && before.dead !== value.dead) this.load(value);
    if (value) this.rows.get(name).dead = value.dead;
  }

  async load(sink, after = null) {
    const found = this.letters.get(sink.sink);
    if (!sink.dead) {
      this.letters.delete(sink.sink);
      return;
    }
    const query = after === null ? '' : `&after=${encodeURIComponent(after)}`;
    try {
      const answer = await get(`sinks/${pathOf(sink.sink)}/dead?limit=20${query}`);
      this.letters.set(sink.sink, { ...answer, letters: after === null ? answer.letters : [...found.letters, ...answer.letters] });
    } catch (error) {
      this.letters.set(sink.sink, { letters: found?.letters ?? [], next: null, problem: error.message });
    }
    this.redraw(sink.sink);
  }

  row(sink, isOpen, toggle) {
    const [kind, word, shape] = judgeSink(sink);
    const id = `sink-drawer:${sink.sink}`;
    const values = counted(sink.rate.values);
    const most = Math.max(0, ...values.map((value) => value ?? 0));
    return [
      h('div', { class: 'line' },
        h('span', { class: 'cell who', key: 'who' }, opener(id, sink.sink, isOpen, toggle), badge(kind, shape, word)),
        cell('rate', 'delivered', h('span', null, `${formatRate(latest(sink.rate.values))}/s`), faint(sink.type)),
        h('span', { class: 'cell drawn', key: 'drawn' }, spark(sink.rate.values, { end: sink.rate.end, step: sink.rate.step, isCounted: true, label: `Events delivered, ${span()}: at most ${formatRate(most)} a second`, words: (value) => `${count(value)} events` })),
        cell('owed', 'owed', h('span', null, tellOwed(sink.owed, sink.owed_at_most)), sink.blocked > 0 && faint(plural(sink.blocked, 'blocked key'))),
        cell('oldest', 'waiting for', age(sink.oldest, 'for', 'nothing')),
        delayCell('event to sink', sink.delay),
        cell('dead', 'dead letters', h('span', { class: sink.dead ? 'bad' : 'faint' }, sink.dead ? brief(sink.dead) : 'none'), sink.held > 0 && faint(`${sink.held} hold keys`))),
      isOpen && drawer(id, toggle, this.open(sink)),
    ];
  }

  open(sink) {
    const path = `sinks/${pathOf(sink.sink)}`;
    return [
      sink.reasons.length > 0 && h('ul', { class: 'reasons', key: 'reasons' }, sink.reasons.map((reason, i) => h('li', { key: i }, h('span', null, withCommands(reason))))),
      sink.silence_words && h('p', { key: 'silence' }, sink.silence_words),
      facts([
        ['condition', [sink.condition, sink.since ? ' for ' : '', sink.since && age(sink.since, 'for'), sink.reason ? `: ${sink.reason}` : '']],
        ['last error', sink.error],
        ['paused', sink.paused && [sink.paused, sink.paused_at ? ', ' : '', sink.paused_at && age(sink.paused_at)]],
        ['replays waiting', sink.replays ? count(sink.replays) : ''],
        ['change to acknowledgement', tellAll(sink.change_delay, 'change')],
        ['event to acknowledgement', tellAll(sink.delay, 'event')],
      ]),
      h('div', { class: 'row', key: 'acts' },
        sink.paused
          ? actButton('Resume', { key: 'pause', title: sink.sink, path: `${path}/resume` })
          : actButton('Pause', { key: 'pause', title: sink.sink, path: `${path}/pause`, input: 'reason', words: `dockbell sends nothing to ${sink.sink} until you resume it, and keeps new events for it.` }),
        (sink.blocked > 0 || sink.replays > 0) && actButton('Send now', { title: `waiting events of ${sink.sink}`, path: `${path}/retry` }),
        whyNot() && faint(whyNot())),
      sink.dead > 0 && this.showLetters(sink, path),
    ];
  }

  showLetters(sink, path) {
    const found = this.letters.get(sink.sink);
    const done = () => this.load(this.rows.get(sink.sink)?.value ?? sink);
    const act = (label, title, body, words) => actButton(label, { title, path: `${path}/dead/${label.startsWith('Retry') ? 'retry' : 'discard'}`, body, words, danger: label.startsWith('Discard'), done });
    return h('div', { class: 'letters', key: 'letters' },
      h('div', { class: 'row' },
        h('h3', null, plural(sink.dead, 'dead letter')),
        sink.dead > 1 && act('Retry all', sink.sink, { all: true }),
        sink.dead > 1 && act('Discard all', sink.sink, { all: true }, `${plural(sink.dead, 'event')} will not be delivered to ${sink.sink}. Only “dockbell replay” can still send them.`)),
      !found && h('p', { class: 'faint' }, 'Loading…'),
      found?.problem && h('p', { class: 'bad' }, found.problem),
      found && h('ul', { class: 'cards' }, found.letters.map((letter) => {
        const name = `${letter.feed} ${letter.key}`;
        const type = letter.type ?? 'an event';
        const body = { letters: [{ feed: letter.feed, sequence: letter.sequence, key: letter.key }] };
        return h('li', { key: `${letter.feed} ${letter.sequence}`, tabindex: -1 },
          h('div', null,
            h('p', null, h('code', null, letter.key), ' ', letter.feed, faint(` #${letter.sequence} ${type}`)),
            h('p', { class: 'bad error' }, letter.error, letter.answer && [': ', h('code', null, letter.answer)]),
            h('p', { class: 'faint' }, `${plural(letter.attempts, 'attempt')}, died `, age(letter.died_at), letter.holds ? '; later events of its key wait' : '')),
          h('div', { class: 'row' }, act('Retry', name, body), act('Discard', name, body, [`${type} of `, h('code', null, letter.key), ` will not be delivered to ${sink.sink}. Only “dockbell replay” can still send it.`])));
      })),
      found?.next && h('button', { type: 'button', on: { click: () => this.load(sink, found.next) } }, 'More dead letters'));
  }
}
