"""Receives webhooks from dockbell and keeps a copy of their records."""

import asyncio
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from dockbell.subscriber import NotAnEvent, NotGenuine, RevisionGaps, Seen, State, SubscriberError, Verifier
from dockbell.subscriber.repair import PullFeeds

LARGEST = 1_000_000  # bytes; far more than `max_event_size` of the sink

verifier = Verifier(*os.environ["ERP_WEBHOOK_SECRET"].split())  # two of them while one replaces the other
seen = Seen()
state = State(gaps=RevisionGaps())  # the sink has neither `changes` nor `where`
lock = Lock()  # of both: one event at a time is taken in, however many come at once


async def mend():
    """Read from dockbell what events did not tell in full."""
    async with PullFeeds(os.environ["DOCKBELL_URL"], token=os.environ.get("DOCKBELL_WEB_TOKEN")) as feeds:
        await feeds.mend(state)


class Receiver(BaseHTTPRequestHandler):
    timeout = 10  # seconds for which a client may be silent; it delays no other

    def do_POST(self):
        size = self.headers["content-length"] or ""
        if not (size.isascii() and size.isdigit()):
            self.send_error(411)
            return
        if len(size) > len(str(LARGEST)) or int(size) > LARGEST:
            self.send_error(413)
            return
        body = self.rfile.read(int(size))
        try:
            event = verifier.open(self.headers, body)
        except (NotGenuine, NotAnEvent) as error:
            self.send_error(401 if isinstance(error, NotGenuine) else 400, explain=str(error))
            return
        with lock:
            if event.id not in seen:
                taken = state.apply(event)
                print(event.type, event.subject, taken.effect, taken.missing or "", flush=True)
                seen.add(event.id)
        self.send_response(204)
        self.end_headers()
        with lock:
            if state.stale or state.unread:
                try:
                    asyncio.run(mend())
                except SubscriberError as error:  # dockbell cannot be asked now: at the next event
                    print(error, flush=True)

    def log_request(self, *_):
        """Print no line for each request."""


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "8000"))), Receiver).serve_forever()
