"""Keeps a copy of a feed up to date by reading it: no webhook, no broker, nothing that can be lost on the way."""

import asyncio
import os
from datetime import timedelta

from dockbell.subscriber import PositionLost, PullUnavailable, State
from dockbell.subscriber.repair import PullFeeds

FEED = "main/shipments"


async def main():
    state, position = State(), None
    async with PullFeeds(os.environ["DOCKBELL_URL"], token=os.environ.get("DOCKBELL_WEB_TOKEN")) as feeds:
        while True:
            try:
                position = await feeds.catch_up(state, FEED, position)
                print(f"{len(state)} records at {position}", flush=True)
                async for batch in feeds.follow(FEED, position, wait=timedelta(seconds=30)):
                    for event in batch.events:
                        state.apply(event)
                        print(event.type, event.subject, flush=True)
                    await feeds.mend(state)  # only needed after the read settings of a feed changed
                    position = batch.position  # to begin from after a restart, save it together with the records
            except PositionLost:
                pass  # catch_up reads all records again
            except PullUnavailable as error:
                print(error, flush=True)
                await asyncio.sleep(5)


asyncio.run(main())
