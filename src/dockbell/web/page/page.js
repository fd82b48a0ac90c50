// The page: what it is told goes to its views, each of which shows again only what has changed.

import { explain, getSession, onSession, send, setSession } from './acting.js';
import { showBudgets } from './budget.js';
import { setUptime } from './draw.js';
import { age, drawn, faint, h, show, tick } from './elements.js';
import { Events } from './events.js';
import { Feeds } from './feeds.js';
import { follow } from './live.js';
import { Records, tellRecords } from './records.js';
import { badge } from './rows.js';
import { Sinks } from './sinks.js';
import { showVerdict } from './verdict.js';
import { isUtc, now, setClock, setUtc } from './words.js';

const $ = (id) => document.getElementById(id);

const parts = new Map();
const feeds = new Feeds($('feed-rows'), $('feed-filter'));
const sinks = new Sinks($('sink-rows'));
const events = new Events({ list: $('event-rows'), scroll: $('event-scroll'), more: $('event-more'), news: $('event-news'), filter: $('event-filter'), about: $('events-about') });
const records = new Records({ form: $('record-filter'), list: $('record-rows'), more: $('record-more') }, (event) => events.go(event.feed, event.sequence));
let stream = null;
let heardAt = null;
let lostAt = null;
let isFirst = true;
let token = ''; // from the address, until it was shown
let beginning = 0;
let stale = new Set(); // parts of before a lost connection that were not told again
const dirty = new Set();

const ofKind = (kind) => [...parts].filter(([name]) => name.startsWith(`${kind}:`)).map(([, value]) => value);

// What is told

const listener = {
  joined() {
    stale = new Set(parts.keys());
    events.join();
  },
  heard(name, value) {
    heardAt = new Date(now()).toISOString();
    if (name === 'part') {
      stale.delete(value.part);
      if (value.part === 'dockbell' && value.value) setClock(value.value.at);
      if (value.value === null) parts.delete(value.part);
      else parts.set(value.part, value.value);
      later(value.part);
    } else if (name === 'events') {
      events.add(value);
    } else if (name === 'ready') {
      for (const part of stale) {
        parts.delete(part);
        later(part);
      }
      $('everything').hidden = $('sections').hidden = false;
      connected();
      if (isFirst) goToFragment();
      isFirst = false;
    }
  },
  lost(pause, why) {
    const again = new Date(now() + pause).toISOString();
    document.body.classList.add('lost');
    lostAt ??= heardAt;
    if (parts.has('dockbell')) drawDaemon(parts.get('dockbell'));
    show($('connection'), badge('bad', '✕', 'connection lost'),
      faint(`${why}; `, heardAt && ['last update ', age(heardAt), '; '], 'next try ', age(again, 'in')),
      h('button', { type: 'button', on: { click: () => (stream ? stream.retry() : begin()) } }, 'Now'));
  },
  resting() {
    show($('connection'), badge('wait', '○', 'catching up'));
  },
  refused: () => begin(),
};

function connected() {
  document.body.classList.remove('lost');
  lostAt = null;
  later('dockbell');
  show($('connection'), badge('well', '●', 'live'));
}

function later(part) {
  if (!dirty.size) setTimeout(draw, 16);
  dirty.add(part);
}

function draw() {
  const names = [...dirty];
  dirty.clear();
  const kinds = new Set(names.map((name) => name.split(':', 1)[0]));
  const daemon = parts.get('dockbell');
  if (daemon?.started_at) setUptime((Date.parse(daemon.at) - Date.parse(daemon.started_at)) / 1000);
  for (const name of names) {
    const colon = name.indexOf(':');
    const [kind, about] = [name.slice(0, colon), name.slice(colon + 1)];
    const feed = parts.get(`feed:${about}`);
    if (kind === 'sink') sinks.set(about, parts.get(name) ?? null);
    if (kind === 'feed' || kind === 'course') feeds.set(about, feed ? { ...feed, course: parts.get(`course:${about}`) } : null);
  }
  if (kinds.has('feed')) {
    feeds.sift();
    events.setFeeds(feeds.values);
    records.setFeeds(feeds.values);
    $('records-about').textContent = tellRecords(feeds.values);
  }
  if (kinds.has('budget') || kinds.has('plan')) showBudgets($('budget-bands'), $('budget-about'), ofKind('budget'), ofKind('plan'));
  if (daemon) drawDaemon(daemon);
}

function drawDaemon(daemon) {
  $('name').textContent = daemon.name;
  $('version').textContent = `dockbell ${daemon.version}`;
  const words = showVerdict($('verdict'), daemon, ofKind, go, lostAt);
  const look = daemon.reasons.filter((reason) => reason.weight !== 'progress').length;
  const title = `${lostAt ? '(?) ' : look === 0 ? '' : `(${look}) `}${daemon.name} · dockbell`;
  if (document.title !== title) document.title = title;
  const said = lostAt ? 'Connection lost.' : `${words}.`;
  if ($('said').textContent !== said) $('said').textContent = said;
}

/** Open a place, `feed:main/stock`, and go there. */
function go(place) {
  const colon = place.indexOf(':');
  const rows = { feed: feeds, sink: sinks }[place.slice(0, colon)];
  if (rows?.go(place.slice(colon + 1))) return;
  const node = document.getElementById(place);
  if (node?.localName === 'details') node.open = true;
  node?.scrollIntoView({ block: 'start' });
  node?.focus({ preventScroll: true });
}

/** Go where an address leads, `#feed=main/stock`: to a feed, a sink, an event or a record. */
function goToFragment() {
  const [, kind, name] = /^(feed|sink|event|key)=(.+)$/.exec(decode(location.hash.slice(1))) ?? [];
  const [source, resource, ...rest] = (name ?? '').split('/');
  if (kind === 'event') events.go(`${source}/${resource}`, Number(rest[0]));
  else if (kind === 'key') records.go(`${source}/${resource}`, rest.join('/'));
  else if (kind) go(`${kind}:${name}`);
}

/** Decode a part of an address; what is no such part is meant as it stands. */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// Signing in

async function begin() {
  clearTimeout(beginning);
  try {
    await findSession();
    if (token && !getSession().signed_in) {
      await signIn(token);
      await findSession();
    }
    token = '';
  } catch (error) {
    listener.lost(2000, error.message);
    clearTimeout(beginning);
    beginning = setTimeout(begin, 2000);
    return;
  }
  const { needs_token: needsToken, signed_in: isIn } = getSession();
  if (needsToken && !isIn) {
    stream?.leave();
    stream = null;
    $('everything').hidden = $('sections').hidden = true;
    $('sign-in').hidden = false;
    show($('connection'));
    $('token').focus();
  } else {
    $('sign-in').hidden = true;
    stream?.leave();
    stream = follow(listener);
  }
}

async function findSession() {
  const { status, body } = await send('GET', 'session');
  if (status !== 200) throw new Error(explain(status, body));
  setSession(body);
}

async function signIn(word) {
  const { status, body, retryAfter } = await send('POST', 'session', { token: word });
  $('sign-in-problem').textContent = status === 200 ? '' : status === 429 && retryAfter ? `Too many wrong tokens; wait ${retryAfter} s.` : status === 401 ? 'Wrong token. dockbell init stores the token of [web] in dockbell.token.' : explain(status, body);
  return status === 200;
}

$('sign-in').addEventListener('submit', async (event) => {
  event.preventDefault();
  try {
    if (!(await signIn($('token').value))) return;
  } catch (error) {
    $('sign-in-problem').textContent = error.message;
    return;
  }
  $('token').value = '';
  await begin();
  $('main').focus();
});

$('sign-out').addEventListener('click', async () => {
  try {
    await send('DELETE', 'session');
  } catch { /* whether it is still there is seen at once */ }
  stream?.leave();
  location.reload();
});

document.addEventListener('signed-out', () => begin());
onSession(() => { $('sign-out').hidden = !(getSession().signed_in && getSession().needs_token); });

// The times: by the clocks of this place, or by UTC

function showTimes() {
  show($('times'), `${isUtc() ? 'UTC' : 'local'} times`);
  $('times').title = `Show ${isUtc() ? 'local times' : 'UTC'}`;
  tick();
  events.tellAbout();
}

$('times').addEventListener('click', () => {
  setUtc(!isUtc());
  keep('dockbell-times', isUtc() ? 'utc' : '');
  showTimes();
});

try {
  setUtc(localStorage.getItem('dockbell-times') === 'utc');
} catch { /* storage is forbidden: local times, then */ }

/** Keep a choice for the next visit. */
function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch { /* storage is forbidden: it lasts as long as the page, then */ }
}

// The theme

const THEMES = { '': ['◐', 'system'], light: ['☀', 'light'], dark: ['☾', 'dark'] };

function showTheme() {
  const [shape, word] = THEMES[document.documentElement.dataset.theme ?? ''];
  show($('theme'), drawn(null, shape), h('span', { class: 'unseen' }, `Theme: ${word}`));
  $('theme').title = `Theme: ${word}`;
}

$('theme').addEventListener('click', () => {
  const names = Object.keys(THEMES);
  const root = document.documentElement;
  const next = names[(names.indexOf(root.dataset.theme ?? '') + 1) % names.length];
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  keep('dockbell-theme', next);
  showTheme();
});

showTheme();
showTimes();
setInterval(tick, 1000);
addEventListener('hashchange', goToFragment);
if (location.hash.startsWith('#token=')) {
  const { hash } = location;
  history.replaceState(null, '', location.pathname + location.search);
  token = decode(hash.slice('#token='.length));
}
begin();
