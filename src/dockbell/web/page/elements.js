// Elements as descriptions, and the least that makes the document show them.
//
// A view describes what it wants to see; `show` changes what differs and leaves alone what does not, so focus, selection
// and scroll positions stay. Text becomes text nodes and attributes are set by name: nothing here can read markup. What is
// written by others passes here, and comes out so that all of it can be seen.

import { formatAge, formatFully, formatMoment, now, plain } from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const shown = Symbol('the description that a node shows');
const children = Symbol('the nodes of its children, by key');
const READ = new Set(['title', 'aria-label', 'placeholder']); // attributes that people get

/** Describe an element. Props: `key` (among siblings), `on` (listeners by type), `vars` (CSS variables), attributes. */
export function h(tag, props, ...kids) {
  return { tag, props: props ?? {}, kids: kids.flat(Infinity).filter((kid) => !(kid == null || kid === false || kid === '')) };
}

/** Describe a sign that is seen and not read out. */
export const drawn = (kind, shape) => h('span', { class: kind, 'aria-hidden': 'true' }, shape);

/** Describe words that matter less. */
export const faint = (...kids) => h('span', { class: 'faint' }, kids);

/** Let an element have these children. */
export function show(parent, ...kids) {
  place(parent, h('', null, kids).kids);
}

/** Describe how long ago something was; it goes on by itself. `form`: "ago", "for" or "in". */
export function age(at, form = 'ago', none = '–') {
  return isTime(at) ? h('time', { datetime: at, 'data-age': form, title: formatFully(at) }) : faint(none);
}

const isTime = (at) => !Number.isNaN(Date.parse(at));

/** Describe a time of the day, with the day where it is another one. */
export function clock(at) {
  return age(at, 'clock');
}

/** Let all ages and days be those of now. */
export function tick() {
  for (const node of document.getElementsByTagName('time')) tellAge(node);
}

function tellAge(node) {
  const form = node.dataset.age;
  if (!form) return;
  const words = form === 'clock' ? formatMoment(node.dateTime) : sayAge((now() - Date.parse(node.dateTime)) / 1000, form);
  if (node.textContent !== words) node.textContent = words;
}

function sayAge(seconds, form) {
  if (form === 'in') return seconds > -1 ? 'now' : `in ${formatAge(-seconds)}`;
  if (form === 'for') return formatAge(seconds);
  return seconds < 1 ? 'now' : `${formatAge(seconds)} ago`;
}

function place(parent, kids) {
  const before = parent[children] ?? new Map();
  const after = new Map();
  const counts = new Map();
  const nodes = kids.map((kid) => {
    const name = typeof kid === 'object' ? kid.tag : '#';
    let key = kid.props?.key;
    if (key === undefined) {
      counts.set(name, (counts.get(name) ?? 0) + 1);
      key = `${name} ${counts.get(name)}`;
    }
    let node = before.get(key);
    if (node === undefined || (name !== '#' && node.localName !== name)) {
      const isDrawing = name === 'svg' || parent.namespaceURI === SVG;
      node = name === '#' ? document.createTextNode('') : isDrawing ? document.createElementNS(SVG, name) : document.createElement(name);
    }
    after.set(key, node);
    if (name !== '#') update(node, kid);
    else tell(node, plain(String(kid)));
    return node;
  });
  let orphaned = -1;
  for (const [i, [key, node]] of [...before].entries()) {
    if (after.get(key) === node) continue;
    if (node.contains(document.activeElement)) orphaned = i;
    node.remove();
  }
  let next = parent.firstChild;
  for (const node of nodes) {
    if (node === next) next = next.nextSibling;
    else parent.insertBefore(node, next);
  }
  parent[children] = after;
  if (orphaned >= 0) refocus(parent, nodes[Math.min(orphaned, nodes.length - 1)]);
}

function tell(node, words) {
  if (node.data !== words) node.data = words;
}

/**
 * Put the focus of something that is gone where one can go on from: on what has taken its place, or around it.
 *
 * Only on what takes it without doing anything, marked by a `tabindex`: a button that was not meant is pressed easily.
 */
function refocus(parent, successor) {
  const node = successor?.hasAttribute?.('tabindex') ? successor : parent.closest('[tabindex]');
  (node ?? document.getElementById('main')).focus({ preventScroll: true });
}

function update(node, description) {
  const last = node[shown]?.props ?? {};
  if (node[shown] === description) return;
  node[shown] = description;
  const { props, kids } = description;
  for (const name of Object.keys(last)) if (!(name in props) && name !== 'on' && name !== 'vars') node.removeAttribute(name);
  for (const [name, value] of Object.entries(props)) {
    if (name === 'key' || last[name] === value) continue;
    if (name === 'on') {
      for (const type of Object.keys(value)) {
        if (!last.on?.[type]) node.addEventListener(type, (event) => node[shown].props.on?.[type]?.(event));
      }
    } else if (name === 'vars') {
      for (const [variable, content] of Object.entries(value)) node.style.setProperty(`--${variable}`, content);
    } else if (value === null || value === undefined || value === false) {
      node.removeAttribute(name);
    } else {
      node.setAttribute(name, value === true ? '' : READ.has(name) ? plain(String(value)) : value);
    }
  }
  if (props['data-age']) tellAge(node);
  else place(node, kids);
}
