// Rows that open: each is its own small document, shown again only when what it shows has changed.

import { onSession } from './acting.js';
import { drawn, faint, h, show } from './elements.js';
import { tellDelay } from './words.js';

export class Rows {
  /**
   * @param list the element that holds them
   * @param kind begins their ids: `feed`, `sink`
   * @param describe (value, isOpen, toggle) => the row's children
   */
  constructor(list, kind, describe, opened = () => {}) {
    this.list = list;
    this.kind = kind;
    this.describe = describe;
    this.opened = opened;
    this.rows = new Map();
    onSession(() => this.drawAll());
  }

  /** A row was taken away. */
  left() {}

  get values() {
    return [...this.rows.values()].map((row) => row.value);
  }

  set(name, value) {
    const row = this.rows.get(name);
    if (value === null) {
      const hadFocus = row?.node.contains(document.activeElement);
      row?.node.remove();
      this.rows.delete(name);
      this.left(row?.value);
      if (hadFocus) this.list.parentElement.querySelector('h2').focus({ preventScroll: true });
    } else if (row) {
      row.value = value;
      this.draw(row);
    } else {
      const node = document.createElement('li');
      node.id = `${this.kind}:${name}`;
      const fresh = { name, node, value, isOpen: false };
      this.rows.set(name, fresh);
      this.listOf(value).append(node);
      this.draw(fresh);
    }
  }

  /** Return the element that holds the row of a value. */
  listOf() {
    return this.list;
  }

  draw(row) {
    row.node.classList.toggle('open', row.isOpen);
    show(row.node, this.describe(row.value, row.isOpen, () => this.toggle(row)));
  }

  redraw(name) {
    const row = this.rows.get(name);
    if (row) this.draw(row);
  }

  drawAll() {
    for (const row of this.rows.values()) this.draw(row);
  }

  toggle(row, isOpen = !row.isOpen) {
    row.isOpen = isOpen;
    if (isOpen) this.opened(row.value);
    this.draw(row);
  }

  /** Open a row and bring it into view; return whether there is one. */
  go(name) {
    const row = this.rows.get(name);
    if (!row) return false;
    this.reveal(row);
    this.toggle(row, true);
    row.node.scrollIntoView({ block: 'start' });
    row.node.querySelector('button').focus({ preventScroll: true });
    return true;
  }

  /** Let a row be seen. */
  reveal(row) {
    row.node.hidden = false;
  }

  /** Show only those that a test accepts, and the one that has the focus; return how many. */
  filter(test) {
    let n = 0;
    for (const row of this.rows.values()) {
      row.node.hidden = !test(row.value) && !row.node.contains(document.activeElement);
      n += row.node.hidden ? 0 : 1;
    }
    return n;
  }
}

/** Describe the button that opens a row; Escape anywhere in the row closes it. */
export function opener(id, name, isOpen, toggle) {
  return h('button', { type: 'button', class: 'opener', 'aria-expanded': String(isOpen), 'aria-controls': isOpen ? id : null, on: { click: toggle } },
    drawn('arrow'), h('span', { class: 'name' }, breakable(name)));
}

/** Describe a name that is broken between its words, and not inside one. */
export function breakable(name) {
  return name.split(/(?<=[/_.-])/).map((part, i) => [i > 0 && h('wbr', { key: `after ${i}` }), part]);
}

/** Describe what a row is opened to. */
export function drawer(id, toggle, ...kids) {
  const close = (event) => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    document.querySelector(`[aria-controls="${CSS.escape(id)}"]`)?.focus();
    toggle();
  };
  return h('div', { class: 'drawer', id, role: 'group', tabindex: -1, 'aria-label': id.slice(id.indexOf(':') + 1), on: { keydown: close } }, kids);
}

/** Describe a state: its shape, its word. */
export function badge(kind, shape, word) {
  return h('span', { class: `state ${kind}` }, drawn('shape', shape), word);
}

/** Describe a cell with its label, which only narrow screens and screen readers get. */
export function cell(name, label, ...kids) {
  return h('span', { class: `cell ${name}`, key: name }, h('span', { class: 'label' }, `${label} `), kids);
}

export function delayCell(label, delay) {
  return cell('delay', label, h('span', { class: delay ? null : 'faint' }, delay ? tellDelay(delay, 'p50') : '–'), delay && faint(`p99 ${tellDelay(delay, 'p99')}`));
}

export function facts(pairs) {
  const known = pairs.filter(([, words]) => words !== null && words !== undefined && words !== '' && words !== false);
  return known.length > 0 && h('dl', { class: 'facts' }, known.map(([name, words]) => h('div', { key: name }, h('dt', null, name), h('dd', null, words))));
}

/** Describe a table, each row of which begins with its name; narrow screens get cards. */
export function table(label, heads, rows) {
  return h('table', { 'aria-label': label },
    h('thead', null, h('tr', null, heads.map((head) => h('th', null, head)))),
    h('tbody', null, rows.map((cells) => h('tr', { key: cells[0] }, cells.map((cell, i) => h(i ? 'td' : 'th', { 'data-label': heads[i] }, cell))))));
}
