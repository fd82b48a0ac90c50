// The stored records of a feed: found by a part of the key, opened to what is stored and to their history.

import { get, pathOf } from './acting.js';
import { age, clock, faint, h, show } from './elements.js';
import { copyButtons, describeWhy, loadWhy } from './opened.js';
import { plural } from './words.js';

const PAGE = 20;

export class Records {
  /** @param openEvent is called with the name of an event that is to be shown */
  constructor({ form, list, more }, openEvent) {
    Object.assign(this, { form, list, more, openEvent });
    this.feeds = [];
    this.feed = '';
    this.part = '';
    this.inValues = false;
    this.found = null; // null: nothing was searched for
    this.next = null;
    this.problem = '';
    this.opened = new Map(); // by key: {found, problem, why}
    this.searches = 0;
    form.addEventListener('submit', (event) => event.preventDefault());
  }

  setFeeds(feeds) {
    const names = feeds.map((feed) => feed.feed);
    if (names.join() === this.feeds.join()) return;
    this.feeds = names;
    if (!names.includes(this.feed)) this.feed = names[0] ?? '';
    this.drawForm();
  }

  drawForm() {
    show(this.form,
      h('select', { key: 'feed', 'aria-label': 'Feed', on: { change: (event) => { this.feed = event.target.value; this.search(); } } },
        this.feeds.map((name) => h('option', { key: name, value: name, selected: name === this.feed ? true : null }, name))),
      h('input', { key: 'part', type: 'search', 'aria-label': 'Part of the key', placeholder: 'part of the key', autocomplete: 'off', spellcheck: 'false', on: { input: (event) => this.typed(event.target.value) } }),
      h('label', { key: 'values' }, h('input', { type: 'checkbox', checked: this.inValues ? true : null, on: { change: (event) => { this.inValues = event.target.checked; this.search(); } } }), 'in all values'),
      h('button', { key: 'search', type: 'button', on: { click: () => this.search() } }, 'Search'));
  }

  typed(text) {
    this.part = text.trim();
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.search(), 300);
  }

  async search(after = null) {
    const search = ++this.searches;
    const query = new URLSearchParams({ limit: PAGE, [this.inValues ? 'text' : 'find']: this.part });
    if (after !== null) query.set('after', after);
    try {
      let answer = await get(`records/${this.feed}?${query}`);
      const records = answer.records;
      while (!records.length && answer.next !== null && search === this.searches) { // a long list has places without any
        query.set('after', answer.next);
        answer = await get(`records/${this.feed}?${query}`);
        records.push(...answer.records);
      }
      if (search !== this.searches) return;
      this.found = after === null ? records : [...this.found, ...records];
      this.next = answer.next;
      this.problem = '';
    } catch (error) {
      if (search !== this.searches) return;
      this.problem = error.message;
    }
    this.draw();
  }

  /** Show one record; its feed need not be configured. */
  async go(feed, key) {
    this.feed = feed;
    this.drawForm();
    this.searches += 1;
    this.found = [{ key }];
    this.next = null;
    this.opened.clear();
    await this.open(key);
    document.getElementById('records').scrollIntoView({ block: 'start' });
    this.list.querySelector('button')?.focus({ preventScroll: true });
  }

  toggle(key) {
    if (this.opened.delete(key)) this.draw();
    else this.open(key);
  }

  async open(key) {
    const { feed } = this;
    const opened = {};
    this.opened.set(key, opened);
    this.draw();
    try {
      opened.found = await get(`records/${pathOf(...feed.split('/'), key)}`);
    } catch (error) {
      opened.problem = error.message;
    }
    this.draw();
  }

  draw() {
    show(this.list, (this.found ?? []).map((record) => this.describe(record)));
    show(this.more,
      this.problem && h('p', { class: 'bad' }, this.problem),
      this.found?.length === 0 && h('p', { class: 'faint' }, this.inValues ? 'No stored record contains this text.' : 'No stored record has this in its key.'),
      this.next !== null && h('button', { type: 'button', on: { click: () => this.search(this.next) } }, 'More'));
  }

  describe(record) {
    const { key } = record;
    const opened = this.opened.get(key);
    const id = `record:${this.feed}/${key}`;
    return h('li', { key, class: opened ? 'open' : null },
      h('button', { type: 'button', class: 'event', 'aria-expanded': String(Boolean(opened)), 'aria-controls': opened ? id : null, on: { click: () => this.toggle(key) } },
        h('span', { class: 'key' }, key),
        record.revision !== undefined && h('span', { class: 'what faint' }, `revision ${record.revision}`, record.modified && [', modified ', age(record.modified)], record.gone_at && [', gone ', age(record.gone_at)])),
      opened && h('div', { class: 'drawer', id, role: 'group', tabindex: -1, 'aria-label': `${key}, opened` }, this.describeOpened(opened)));
  }

  describeOpened(opened) {
    const { found, problem, why } = opened;
    if (problem) return h('p', { class: 'bad' }, problem);
    if (!found) return h('p', { class: 'faint' }, 'Loading…');
    const [source, resource] = found.feed.split('/');
    const askWhy = async () => {
      opened.why = null;
      this.draw();
      opened.why = await loadWhy(source, resource, found.key);
      this.draw();
    };
    return [
      h('p', { class: 'faint', key: 'about' }, `revision ${found.revision}`, found.modified && [', modified ', age(found.modified)], found.gone_at && [', gone ', age(found.gone_at)]),
      found.text === null ? h('p', { key: 'text' }, 'The content was erased.') : h('pre', { key: 'text' }, found.text),
      copyButtons(`key=${found.feed}/${found.key}`, found.text),
      h('h3', { key: 'history', class: 'small' }, 'History'),
      h('ul', { key: 'events' }, found.events.map((event) => h('li', { key: event.sequence },
        h('button', { type: 'button', class: 'quiet', 'aria-label': `Show event ${event.sequence}`, on: { click: () => this.openEvent(event) } }, `#${event.sequence}`), ' ',
        clock(event.at), ` ${event.type.split('.').at(-1)} `, faint(event.words)))),
      found.events.length === 0 && h('p', { key: 'none', class: 'faint' }, 'No kept events.'),
      why === undefined ? h('button', { type: 'button', key: 'why-button', on: { click: askWhy } }, 'Why?') : describeWhy(why),
    ];
  }
}

export const tellRecords = (feeds) => plural(feeds.reduce((sum, feed) => sum + (feed.records ?? 0), 0), 'record');
