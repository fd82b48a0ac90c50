// How times, lengths of time, numbers and states are said.

let offset = -Infinity;
let setAt = 0;

/**
 * Take over the daemon's clock: ages are differences of its times, whatever the clock here says.
 *
 * A time that comes late, or again, says nothing: the clock is put back by a fiftieth of the time that has passed at
 * most, as clocks drift. What is old would look fresh else.
 */
export function setClock(at) {
  const here = Date.now();
  offset = Math.max(Date.parse(at) - here, offset - Math.max(0, here - setAt) / 50);
  setAt = here;
}

/** The daemon's time, in milliseconds since 1970. */
export const now = () => Date.now() + (offset === -Infinity ? 0 : offset);

const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
let inUtc = false;

/** Have times shown by UTC, or by the clocks of this place. */
export function setUtc(wanted) {
  inUtc = wanted;
}

export const isUtc = () => inUtc;

/** The zone of the times that are shown. */
export const zone = () => (inUtc ? 'UTC' : here);

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sept', 'Oct', 'Nov', 'Dec'];

/** A time as ISO 8601 has it, in the zone that is shown. */
const isoShown = (date) => (inUtc ? `${date.toISOString().slice(0, 19)}Z` : isoHere(date));

/** 21:12 */
export const formatMinute = (date) => isoShown(date).slice(11, 16);

/** A time as ISO 8601 has it, by the clocks of this place. */
function isoHere(date) {
  const minutes = -date.getTimezoneOffset();
  const [h, m] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((n) => String(n).padStart(2, '0'));
  return `${new Date(date.getTime() + minutes * 60_000).toISOString().slice(0, 19)}${minutes < 0 ? '-' : '+'}${h}:${m}`;
}

/** 21:12:00, with the day where that is not today: 19 Nov 21:12:00, 2025-11-19 21:12:00. */
export function formatMoment(at) {
  const [then, today] = [new Date(at), new Date(now())].map(isoShown);
  const time = then.slice(11, 19);
  if (then.slice(0, 10) === today.slice(0, 10)) return time;
  return `${then.slice(0, 4) === today.slice(0, 4) ? `${Number(then.slice(8, 10))} ${MONTHS[then.slice(5, 7) - 1]}` : then.slice(0, 10)} ${time}`;
}

/** A time in full, by the clocks of this place and by UTC. */
export const formatFully = (at) => `${isoHere(new Date(at))} ${here}, ${at}`;

// Text that others wrote

// Emoji have variation selectors, and lines their ends; all else that cannot be seen is shown.
const UNSEEN = /(?![\t\n\r\ufe0e\ufe0f])[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{DI}]/gu;

/** Text whose characters can all be seen, and none of which turns the others around: ⟨U+202E⟩. */
export const plain = (text) => text.replace(UNSEEN, (each) => `⟨U+${each.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}⟩`);

const whole = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

export const count = (n) => (n == null ? '–' : whole.format(n));
export const brief = (n) => (n == null ? '–' : n < 10000 ? whole.format(n) : short.format(n));
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** 3 s, 3m 20s, 2h 4m, 2d 4h. */
export function formatAge(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  const [big, small, unit, part] = s < 3600 ? [60, 1, 'm', 's'] : s < 86400 ? [3600, 60, 'h', 'm'] : [86400, 3600, 'd', 'h'];
  const rest = Math.floor((s % big) / small);
  return `${Math.floor(s / big)}${unit}${rest ? ` ${rest}${part}` : ''}`;
}

/** 240 ms, 2.4 s, then as an age. */
export function formatDelay(seconds) {
  if (seconds == null) return '–';
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : formatAge(Math.round(seconds));
}

/** The events that sinks are owed; ≤ where they may get fewer. */
export const tellOwed = (owed, isMost) => `${owed && isMost ? '≤ ' : ''}${brief(owed)}`;

/** A delay of a feed; ≈ where its records have no timestamps. */
export const tellDelay = (delay, name) => `${delay.estimated ? '≈' : ''}${formatDelay(delay[name])}`;

/** A share in percent; all only where it is all, none only where it is none. */
export function formatShare(share) {
  const percent = Math.round(share * 1000) / 10;
  if (percent === 100 && share < 1) return 'more than 99.9 %';
  return percent === 0 && share > 0 ? 'less than 0.1 %' : `${percent} %`;
}

/** All of a delay, of the last hour. */
export const tellAll = (delay, noun) => delay && `${tellDelay(delay, 'p50')} typical, ${tellDelay(delay, 'p99')} at p99 (${plural(delay.count, noun)})`;

/** Events per second, from events per minute. */
export function formatRate(perMinute) {
  const rate = perMinute / 60;
  return rate === 0 ? '0' : rate < 0.1 ? rate.toFixed(2) : rate < 100 ? rate.toFixed(1) : whole.format(Math.round(rate));
}

export const everyOf = (feed) => (feed.every.startsWith('cron') ? feed.every : `every ${feed.every}`);

/** The seconds of an interval, `1m30s`; 0 where there is none, as of a cron line. */
export function parseEvery(text) {
  if (text.startsWith('cron')) return 0;
  const units = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };
  return [...text.matchAll(/([0-9.]+)(ms|[smhd])/g)].reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0);
}

/** A JSON value as text, shortened. */
export function formatValue(value, most = 400) {
  const text = typeof value === 'string' ? JSON.stringify(value) : JSON.stringify(value, null, 1);
  return shorten(text ?? '', most);
}

export function shorten(text, most = 400) {
  return text.length > most ? `${text.slice(0, most).replace(/[\ud800-\udbff]$/, '')}… (${whole.format(text.length)} characters)` : text;
}

/** The shape that stands beside a word, so that no state is told by its colour alone. */
export const SHAPES = { well: '✓', look: '▲', bad: '✕', wait: '○', paused: '❚❚' };
