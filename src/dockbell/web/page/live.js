// The one stream that the page lives on: read until it ends, begun again after pauses that grow.

const SILENCE = 45_000; // the daemon says something every 15 s, if only that it is still there
const FIRST = 15_000; // until it says the first
const LASTING = 10_000; // who hangs up sooner is in trouble
const PAUSE_MOST = 30_000;
// A browser allows six connections to one place, whatever the number of tabs: a hidden tab hangs up, and
// comes back now and then for as long as it takes to hear all, so that its title stays true.
const HIDDEN = 3_000;
const REST = 60_000;

/**
 * Follow `live` for ever.
 *
 * @param {{heard(name: string, value: object): void, joined(): void, lost(pause: number, why: string): void, resting(): void, refused(): void}} listener
 * @returns {{retry(): void, leave(): void}} ends the pause; ends it all
 */
export function follow(listener) {
  let pause = 0;
  let hurry = () => {};
  let left = false;
  let isResting = false;
  let hiding = 0;
  let control = new AbortController();

  const wait = (length) => new Promise((resolve) => {
    const timer = setTimeout(resolve, length);
    hurry = () => { clearTimeout(timer); resolve(); };
  });

  function rest() {
    isResting = true;
    control.abort();
  }

  function look() {
    clearTimeout(hiding);
    if (document.hidden) hiding = setTimeout(rest, HIDDEN);
    else hurry();
  }

  async function run() {
    while (!left) {
      let why = 'the connection ended';
      try {
        const refusal = await read();
        if (refusal === null && !left) continue; // a stream ends now and then, so that the session is looked at again
        why = refusal ?? why;
      } catch (error) {
        why = error.name === 'AbortError' ? 'no more data arrived' : 'dockbell does not answer';
      }
      if (left) return;
      if (isResting) {
        listener.resting();
        if (document.hidden) await wait(REST);
        continue;
      }
      pause = Math.min(PAUSE_MOST, Math.max(1000, pause * 2));
      const length = pause * (0.8 + 0.4 * Math.random()); // many pages must not all come back at once
      listener.lost(length, why);
      await wait(length);
    }
  }

  async function read() {
    control = new AbortController();
    isResting = false;
    const isGlance = document.hidden;
    let watch = setTimeout(() => control.abort(), FIRST);
    try {
      const answer = await fetch('live', { headers: { accept: 'text/event-stream' }, signal: control.signal, cache: 'no-store' });
      if (answer.status === 401) {
        left = true;
        listener.refused();
        return '';
      }
      if (!answer.ok) return `dockbell answers ${answer.status}`;
      listener.joined();
      const joinedAt = performance.now();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return performance.now() - joinedAt > LASTING ? null : undefined;
        clearTimeout(watch);
        watch = setTimeout(() => control.abort(), SILENCE);
        const blocks = (text + value).split('\n\n');
        text = blocks.pop();
        for (const block of blocks) tell(block, isGlance);
      }
    } finally {
      clearTimeout(watch);
      control.abort();
    }
  }

  function tell(block, isGlance) {
    let name = '';
    const lines = [];
    for (const line of block.split('\n')) {
      if (line.startsWith('event:')) name = line.slice(6).trim();
      else if (line.startsWith('data:')) lines.push(line.slice(5));
    }
    if (name === 'ready') pause = 0;
    if (name) listener.heard(name, lines.length && lines[0].trim() ? JSON.parse(lines.join('\n')) : {});
    if (name === 'ready' && isGlance && document.hidden) rest();
  }

  function leave() {
    left = true;
    document.removeEventListener('visibilitychange', look);
    control.abort();
    hurry();
  }

  document.addEventListener('visibilitychange', look);
  run();
  return { retry: () => hurry(), leave };
}
