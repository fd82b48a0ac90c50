// What an operator does here: asked for again where it destroys, sent with the session's mark, its outcome said.

import { h, show } from './elements.js';

const COMMAND_PAUSE = 500;
const COMMAND_SILENCE = 60_000; // a daemon that begins anew is away for a while, and runs commands then
const ANSWER_MOST = 10_000;

let session = { signed_in: false, can_act: false, csrf: null, needs_token: false };
const listeners = [];

export const onSession = (listener) => listeners.push(listener);
export const getSession = () => session;

/** Why acts are impossible here; empty where they are possible. */
export const whyNot = () => (session.can_act ? '' : session.needs_token ? 'Sign in to act.' : 'This page is read-only: add token to [web] in the configuration.');

export function setSession(found) {
  session = found;
  for (const listener of listeners) listener();
}

/** Send a request; return {status, body}, the body decoded. Throws, in words to be shown, where no answer comes. */
export async function send(method, path, body) {
  let answer = await sendOnce(method, path, body);
  if (answer.status === 403 && answer.body?.type?.endsWith(':csrf')) { // the user signed in anew, in another tab
    setSession((await sendOnce('GET', 'session')).body);
    answer = await sendOnce(method, path, body);
  }
  if (answer.status === 401 && path !== 'session') document.dispatchEvent(new Event('signed-out'));
  return answer;
}

async function sendOnce(method, path, body) {
  const headers = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (session.csrf && method !== 'GET') headers['x-dockbell-csrf'] = session.csrf;
  let answer;
  let text;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store', signal: AbortSignal.timeout(ANSWER_MOST) });
    text = await answer.text();
  } catch (error) {
    throw new Error(error.name === 'TimeoutError' ? `dockbell does not answer within ${ANSWER_MOST / 1000} s` : 'dockbell does not answer', { cause: error });
  }
  let decoded = null;
  try { decoded = JSON.parse(text); } catch { /* not every refusal is JSON */ }
  return { status: answer.status, body: decoded, retryAfter: Number(answer.headers.get('retry-after')) };
}

/** Read something; throws an Error in the server's own words where it is refused. */
export async function get(path) {
  const { status, body } = await send('GET', path);
  if (status !== 200) throw new Error(explain(status, body));
  return body;
}

export const explain = (status, body) => body?.detail ?? body?.title ?? `dockbell answers ${status}`;

/** Write a feed, `main/stock`, or other words as parts of a path. */
export const pathOf = (...parts) => parts.map((part) => encodeURIComponent(part)).join('/');

/**
 * Describe a button that acts.
 *
 * @param act {{path, body, title, words, input, danger, key}}: `words` ask for confirmation, `input` for a reason;
 *   `key` is shared by two of which one takes the place of the other
 */
export function actButton(label, act) {
  const reason = whyNot();
  const about = act.title ? `${label}: ${act.title}` : label;
  return h('button', {
    type: 'button', key: `act ${act.key ?? label}`, class: act.danger ? 'danger' : null, 'aria-disabled': reason ? 'true' : null,
    title: reason || null, 'aria-label': about === label ? null : about,
    on: { click: (event) => (reason ? say(reason, true, event.currentTarget) : run(label, act, event.currentTarget)) },
  }, label);
}

async function run(label, act, button) {
  let body = act.body ?? {};
  if (act.words) {
    const answer = await ask(label, act);
    if (answer === null) return;
    if (act.input && answer) body = { ...body, [act.input]: answer };
  }
  const tell = (words, isProblem) => say([label, act.title && [' ', h('bdi', null, act.title)], ': ', h('bdi', null, words)], isProblem, button);
  button.setAttribute('aria-busy', 'true');
  try {
    const { status, body: found } = await send('POST', act.path, body);
    if (status === 202) await followCommand(found.command, tell);
    else tell(status === 200 ? found.outcome : explain(status, found), status !== 200);
    act.done?.();
  } catch (error) {
    tell(`${error.message}; check whether it was done before you try again`, true);
  } finally {
    button.removeAttribute('aria-busy');
  }
}

async function followCommand(command, tell) {
  tell('requested…');
  for (let heardAt = Date.now(); ;) {
    await new Promise((resolve) => setTimeout(resolve, COMMAND_PAUSE));
    let answer;
    try {
      answer = await send('GET', `commands/${encodeURIComponent(command)}`);
    } catch (error) {
      answer = { status: 503, body: { detail: error.message } };
    }
    const { status, body } = answer;
    if (status === 200) {
      if (body.outcome !== null) return tell(body.outcome);
      heardAt = Date.now();
    } else if (status < 500 || Date.now() - heardAt > COMMAND_SILENCE) {
      return tell(`requested, but the outcome is unknown: ${explain(status, body)}`, true);
    }
  }
}

// What came of it

let fading = 0;

/** Say what came of something that was begun somewhere; problems stay until they are closed. */
export function say(words, isProblem, begun) {
  const node = document.getElementById('outcome');
  clearTimeout(fading);
  const close = () => {
    const hadFocus = node.contains(document.activeElement);
    show(node);
    if (hadFocus && begun.isConnected) begun.focus({ preventScroll: true });
  };
  show(node, h('div', { class: isProblem ? 'problem' : 'done' }, h('span', null, words), h('button', { type: 'button', class: 'quiet', 'aria-label': 'Close', on: { click: close } }, '✕')));
  if (!isProblem) fading = setTimeout(close, 10_000);
}

// Asking again

function ask(label, { title: about, words, input, danger }) {
  const dialog = document.getElementById('asking');
  return new Promise((resolve) => {
    const close = (answer) => { dialog.returnValue = ''; dialog.close(); resolve(answer); };
    dialog.oncancel = () => resolve(null); // Escape
    show(dialog, h('form', {
      method: 'dialog',
      on: { submit: (event) => { event.preventDefault(); close(input ? dialog.querySelector('input').value.trim() : ''); } },
    },
    h('h2', { id: 'asking-title' }, label, about && [': ', h('bdi', null, about)]),
    h('p', null, words),
    input && h('label', { for: 'asking-input' }, 'Reason, shown to others'),
    input && h('input', { id: 'asking-input', autocomplete: 'off', maxlength: 200 }),
    h('div', { class: 'row end' },
      h('button', { type: 'button', on: { click: () => close(null) } }, 'Cancel'),
      h('button', { class: danger ? 'danger strong' : 'strong' }, label))));
    const field = dialog.querySelector('input');
    if (field) field.value = '';
    dialog.showModal();
    (field ?? dialog.querySelector('button')).focus();
  });
}
