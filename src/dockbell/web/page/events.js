// The events: as they are recorded, newest first; older ones, and those that a filter lets through, on demand.

import { get } from './acting.js';
import { clock, drawn, h, show } from './elements.js';
import { describeOpened, describeWhy, isUnderWay, load, loadWhy } from './opened.js';
import { plural, zone } from './words.js';

const LIVE_MOST = 200; // the list is for watching; what is older is asked for
const PAGE = 50;
const AGAIN = 1500;
const CHANGES = { created: '+', updated: '~', deleted: '−', restored: '↺', snapshot: '=' };
const FIELDS = ['source', 'resource', 'key', 'type', 'change'];

const nameOf = (event) => `${event.feed}#${event.sequence}`;

export class Events {
  constructor({ list, scroll, more, news, filter, about }) {
    Object.assign(this, { list, scroll, more, news, about });
    this.latest = []; // newest first, whatever the filter
    this.found = null; // what the filter found, newest first; null without a filter
    this.older = [];
    this.named = []; // what an address has named
    this.next = undefined; // where older ones begin; null: there are none
    this.waiting = []; // recorded while the list is being read
    this.opened = new Map();
    this.filter = {};
    this.searches = 0;
    this.why = undefined;
    this.problem = '';
    this.described = new WeakMap();
    this.form = filter;
    this.feeds = [];
    scroll.addEventListener('scroll', () => this.release(), { passive: true });
    list.addEventListener('focusout', () => setTimeout(() => this.release()));
    filter.addEventListener('submit', (event) => event.preventDefault());
    this.drawFilter();
    this.draw();
  }

  /** Begin anew, as after a lost connection: the last ones come again. */
  join() {
    this.joining = true;
  }

  /** Take in what was recorded, newest last. */
  add({ events, skipped = 0 }) {
    let fresh = events.toReversed();
    if (this.joining) {
      const last = events[0];
      const known = new Set([...this.latest, ...this.waiting].map(nameOf));
      if (last && known.size && !events.some((event) => known.has(nameOf(event)))) fresh.push({ skip: -1, key: `gap ${nameOf(last)}` });
      fresh = fresh.filter((event) => event.skip || !known.has(nameOf(event)));
      this.joining = false;
    }
    if (skipped > 0) fresh.push({ skip: skipped, key: `skip ${fresh.length ? nameOf(fresh.at(-1)) : Date.now()}` });
    if (!fresh.length) return;
    this.waiting = [...fresh, ...this.waiting].slice(0, LIVE_MOST);
    if (this.isRead()) this.drawNews();
    else this.take();
  }

  /** Whether the list is being read, so that nothing may move. */
  isRead() {
    const isScrolled = getComputedStyle(this.scroll).overflowY === 'auto' ? this.scroll.scrollTop > 8 : this.scroll.getBoundingClientRect().top < -40;
    return isScrolled || this.opened.size > 0 || this.list.querySelector(':focus-visible') !== null;
  }

  release() {
    if (this.waiting.length && !this.isRead()) this.take();
  }

  take() {
    this.latest = [...this.waiting, ...this.latest].slice(0, LIVE_MOST);
    this.waiting = [];
    this.draw();
  }

  get isFiltered() {
    return Object.keys(this.filter).length > 0;
  }

  lets(event) {
    if (event.skip) return !this.isFiltered;
    return FIELDS.every((field) => !this.filter[field] || event[field] === this.filter[field]);
  }

  get shown() {
    const seen = new Set();
    return [...this.named, ...this.latest.filter((event) => this.lets(event)), ...(this.found ?? []), ...this.older].filter((event) => {
      const name = event.skip ? event.key : nameOf(event);
      return !seen.has(name) && seen.add(name);
    });
  }

  async search() {
    this.searches += 1;
    const isAsked = this.remember();
    this.older = [];
    this.named = [];
    this.next = undefined;
    this.found = null;
    this.why = undefined;
    this.problem = '';
    if (this.isFiltered) {
      try {
        const answer = await this.ask();
        if (!isAsked()) return;
        this.found = answer.events;
        this.next = answer.next;
      } catch (error) {
        if (!isAsked()) return;
        this.problem = error.message;
      }
    }
    this.draw();
    this.drawFilter();
  }

  async loadOlder() {
    const last = this.shown.filter((event) => !event.skip).at(-1);
    const isAsked = this.remember();
    try {
      const answer = await this.ask(this.next ?? last?.place);
      if (!isAsked()) return;
      this.older = [...this.older, ...answer.events];
      this.next = answer.next;
      this.problem = '';
    } catch (error) {
      if (!isAsked()) return;
      this.problem = error.message;
    }
    this.draw();
  }

  /** Return what tells whether nothing was searched for since. */
  remember() {
    const n = this.searches;
    return () => n === this.searches;
  }

  ask(before) {
    const query = new URLSearchParams({ limit: PAGE, ...this.filter });
    if (before !== undefined) query.set('before', before);
    return get(`events?${query}`);
  }

  /** Show an event, however old it is. */
  async go(feed, sequence) {
    const [source, resource] = feed.split('/');
    const event = { feed, source, resource, sequence, type: 'event', key: '' };
    const opened = await load(event);
    if (opened.found) {
      const { type, time, data } = opened.found.event;
      Object.assign(event, { type, at: time, key: data.key ?? '', change: data.change ?? data.statement, revision: data.revision });
    }
    this.searches += 1;
    this.filter = {};
    this.form.reset();
    this.found = null;
    this.named = [event];
    this.opened.clear();
    this.toggle(event, opened);
    document.getElementById('events').scrollIntoView({ block: 'start' });
    this.list.querySelector('button')?.focus({ preventScroll: true });
  }

  async toggle(event, known = {}) {
    const name = nameOf(event);
    if (this.opened.delete(name)) {
      this.draw();
      this.release();
      return;
    }
    const opened = known;
    this.opened.set(name, opened);
    this.draw();
    // Looked at again while it is under way, and for as long as the event is shown.
    while (this.opened.get(name) === opened) {
      Object.assign(opened, await load(event));
      this.draw();
      if (!isUnderWay(opened)) return;
      await new Promise((resolve) => setTimeout(resolve, AGAIN));
    }
  }

  draw() {
    const { shown } = this;
    show(this.list, shown.map((event) => this.describe(event)));
    show(this.more,
      this.problem && h('p', { class: 'bad' }, this.problem),
      !shown.length && h('p', { class: 'faint' }, !this.isFiltered ? 'No events yet. Changes appear here when they are recorded.' : this.next ? 'No recent event matches.' : 'No kept event matches.'),
      (shown.length > 0 ? this.next !== null : this.next) && h('button', { type: 'button', on: { click: () => this.loadOlder() } }, shown.length ? 'Older' : 'Search further'),
      shown.length > 0 && this.next === null && h('p', { class: 'faint' }, 'No older events are kept.'));
    this.drawNews();
  }

  drawNews() {
    const n = this.waiting.filter((event) => this.lets(event) && !event.skip).length;
    show(this.news, n > 0 && h('button', { type: 'button', class: 'strong', on: { click: () => this.catchUp() } }, `Show ${plural(n, 'new event')}`));
  }

  catchUp() {
    this.opened.clear();
    this.scroll.scrollTop = 0;
    this.take();
    document.getElementById('events').focus({ preventScroll: true }); // not into the list, which would wait again
  }

  describe(event) {
    if (event.skip) return h('li', { key: event.key, class: 'skip faint' }, event.skip > 0 ? `${plural(event.skip, 'event')} came too fast to show` : 'connection lost here; events may be missing');
    const name = nameOf(event);
    const opened = this.opened.get(name);
    if (!opened) {
      if (!this.described.has(event)) this.described.set(event, h('li', { key: name }, this.head(event, false)));
      return this.described.get(event);
    }
    const id = `event:${name}`;
    const close = (key) => {
      if (key.key !== 'Escape') return;
      key.stopPropagation();
      document.querySelector(`[aria-controls="${CSS.escape(id)}"]`)?.focus();
      this.toggle(event);
    };
    return h('li', { key: name, class: 'open', on: { keydown: close } }, this.head(event, true, id),
      h('div', { class: 'drawer', id, role: 'group', tabindex: -1, 'aria-label': `${event.key || event.feed}, opened` }, describeOpened(event, opened, {
        askWhy: async () => {
          opened.why = null;
          this.draw();
          opened.why = await loadWhy(event.source, event.resource, event.key);
          this.draw();
        },
        showAll: () => { opened.all = true; this.draw(); },
        showRaw: () => { opened.raw = !opened.raw; this.draw(); },
      })));
  }

  head(event, isOpen, id) {
    const word = event.change && event.change in CHANGES ? event.change : event.type.split('.').at(-1);
    const kind = event.type.split('.').at(-1);
    return h('button', { type: 'button', class: 'event', 'aria-expanded': String(isOpen), 'aria-controls': isOpen ? id : null, on: { click: () => this.toggle(event) } },
      h('span', { class: `change ${CHANGES[event.change] ? event.change : 'other'}` }, drawn('shape', CHANGES[event.change] ?? '•'), word),
      h('span', { class: 'key' }, event.key || event.feed),
      h('span', { class: 'when' }, clock(event.at)),
      h('span', { class: 'what faint' }, event.key ? event.feed : event.type, kind !== word && ` · ${kind}`, event.words && ` · ${event.words}`));
  }

  setFeeds(feeds) {
    const names = feeds.map((feed) => feed.feed).join();
    if (names === this.feeds.join()) return;
    this.feeds = feeds.map((feed) => feed.feed);
    this.sources = [...new Set(feeds.map((feed) => feed.source))].sort();
    this.resources = [...new Set(feeds.map((feed) => feed.resource))].sort();
    this.drawFilter();
  }

  drawFilter() {
    const set = (field) => (event) => {
      const value = event.target.value.trim();
      if (value) this.filter[field] = value;
      else delete this.filter[field];
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.search(), event.type === 'input' ? 250 : 0);
    };
    const choice = (field, label, values) => h('select', { key: field, 'aria-label': label, on: { change: set(field) } },
      h('option', { value: '' }, `any ${field}`), values.map((value) => h('option', { key: value, value }, value)));
    const text = (field, label, type, list) => h('input', { key: field, type: 'search', list, 'aria-label': label, placeholder: field, autocomplete: 'off', spellcheck: 'false', on: { [type]: set(field) } });
    const types = [...new Set([...this.latest, ...(this.found ?? [])].map((event) => event.type).filter(Boolean))].sort();
    show(this.form,
      this.sources?.length > 1 && choice('source', 'Source', this.sources),
      choice('resource', 'Resource', this.resources ?? []),
      choice('change', 'Change', Object.keys(CHANGES)),
      text('key', 'Key, as in events', 'input'), text('type', 'Type', 'change', 'event-types'),
      h('datalist', { id: 'event-types', key: 'types' }, types.map((type) => h('option', { key: type, value: type }))),
      this.isFiltered && h('button', { key: 'clear', type: 'button', class: 'quiet', on: { click: () => this.clear() } }, 'Clear'),
      this.drawWhy());
    this.tellAbout();
  }

  /** Say which events are shown, and by which clocks. */
  tellAbout() {
    this.about.textContent = `${this.isFiltered ? 'filtered' : 'as they are recorded'}, times in ${zone()}`;
  }

  /** A key that has no events can be asked about too. */
  drawWhy() {
    const { key, resource } = this.filter;
    const source = this.filter.source ?? (this.sources?.length === 1 ? this.sources[0] : undefined);
    if (!key || !resource || !source) return null;
    const asks = async () => {
      this.why = null;
      this.drawFilter();
      this.why = await loadWhy(source, resource, key);
      this.drawFilter();
    };
    return this.why === undefined
      ? h('button', { key: 'asks', type: 'button', on: { click: asks } }, `Why does ${key} have these events, or none?`)
      : h('div', { key: 'answers', class: 'wide', tabindex: -1 }, describeWhy(this.why));
  }

  clear() {
    this.filter = {};
    this.form.reset();
    this.form.querySelector('select').focus();
    this.search();
  }
}
