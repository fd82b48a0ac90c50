"""What happens in the sandbox and how often: orders live, goods move, records are edited, deleted and return."""

from __future__ import annotations

from typing import Final

import anyio

from dockbell.sandbox.goods import Goods
from dockbell.sandbox.orders import Orders
from dockbell.sandbox.records import Author
from dockbell.sandbox.world import World

_REST, _PAUSE = 0.001, 0.05
_BEHIND_MOST: Final = 0.1
_TRIES: Final = 20


class Activity:
    """Makes changes, by chance but not without sense.

    Attributes:
        rate: Changes a second that :meth:`live` makes; it may be set at any time.
        orders: The business steps with orders.
    """

    def __init__(self, world: World, author: Author, rate: float) -> None:
        self.rate = rate
        self.orders = Orders(world, author)
        self._author = author
        goods = Goods(world, author)
        weighted = (
            (20, self.orders.arrive),
            (92, self.orders.advance),
            (24, self.orders.scan),
            (20, goods.receive),
            (16, goods.count),
            (8, goods.move),
            (16, goods.edit_item),
            (6, goods.change_item_status),
            (2, goods.introduce_item),
            (2, goods.edit_warehouse),
            (4, self.orders.delete),
            (2, goods.delete_item),
            (1, world.restore),
        )
        self._steps = [step for weight, step in weighted for _ in range(weight)]
        self._always = goods.introduce_item

    def step(self, changes: int = 1) -> int:
        """Make business steps until at least so many records have changed; return how many have.

        A business step is never cut short, so it may be a few more.
        """
        made = 0
        while made < changes:
            made += self._step()
        return made

    async def live(self) -> None:
        """Go on making changes at the set rate, at times as random as those of real events, until cancelled.

        ``ahead`` is by how many changes the steps made so far are ahead of the rate. After the process slept, a moment
        of it is made up for, not more.
        """
        ahead, last = 0.0, anyio.current_time()
        while True:
            now = anyio.current_time()
            ahead = max(ahead - (now - last) * self.rate, -self.rate * _BEHIND_MOST)
            last = now
            while self.rate and ahead <= 0:
                ahead += self._step() * self._author.dice.expovariate(1)
            await anyio.sleep(min(max(ahead / self.rate, _REST), _PAUSE) if self.rate else _PAUSE)

    def _step(self) -> int:
        for _ in range(_TRIES):
            made = self._author.pick(self._steps)()
            if made:
                return made
        return self._always()
