"""What every sink promises, as tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from time import monotonic
from typing import ClassVar, Final

import anyio
import anyio.lowlevel
import pytest
from pydantic import ValidationError

from dockbell.config import SinkSettings
from dockbell.core import key as keys
from dockbell.errors import SinkRejected, SinkUnavailable
from dockbell.sinks import SinkType
from dockbell.testing.outbox import SHIPMENTS, STOCK
from dockbell.testing.receiver import Ability, Receiver
from dockbell.testing.rig import Rig, open_rig, until

_EIGHT: Final = tuple(f"key_{number}" for number in range(8))
_UNICODE: Final = ("zürich", "日本/倉庫", "a b+c#d", "🚚,🚚", "%2F", "..", "Ω" * 60)
_GOODBYE: Final = 5.0  # the relay cuts a sink off so many seconds after the end of its stream
_AT_ONCE: Final = 1.0
_BEHIND_MOST: Final = 500  # events that a slow receiver has not taken yet, when it is given no more
_SAVED_EVERY: Final = 2.0  # saving is due each second; a machine that is busy may be late


@pytest.mark.anyio
class SinkConformance(ABC):
    """Subclass it in a test module, name the sink and its receiver, and pytest runs all of it.

    The sink runs under the real relay on a real store, against your receiver. After each test these must hold too: what
    arrived is what is in the outbox; the events of a key came in order, repeats apart; two of one key were never in
    flight at once; each delivery was settled exactly once.

    Attributes:
        sink_type: The class that the entry point names.
        lacks: What the receiver cannot do, each with the reason; the tests about it are skipped with that reason.
    """

    sink_type: ClassVar[SinkType]
    lacks: ClassVar[Mapping[Ability, str]] = {}

    @abstractmethod
    def make_receiver(self, folder: Path) -> Receiver:
        """Return the receiver that the sink is tried against, not started yet; it may keep files in the folder."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[Rig]:
        """Yield the sink, its receiver, which is there, and an empty store."""
        receiver = self.make_receiver(tmp_path)
        await receiver.start()
        try:
            async with open_rig(tmp_path, self.sink_type, receiver) as rig:
                yield rig
                await rig.assert_sound()
        finally:
            await receiver.stop()

    def need(self, ability: Ability) -> None:
        """Skip the test where the receiver is declared to lack what it is about."""
        if ability in self.lacks:
            pytest.skip(f"the receiver cannot {ability}: {self.lacks[ability]}")

    # Settings and probe -----------------------------------------------------------------------------------------------

    async def test_its_settings_hold_what_every_sink_has_and_refuse_unknown_keys(self, rig: Rig) -> None:
        settings = rig.read_settings(changes=["created"], resources=["stock"])
        assert isinstance(settings, SinkSettings)
        assert (settings.changes, settings.resources) == (("created",), ("stock",))
        with pytest.raises(ValidationError, match="no_such_key"):
            rig.read_settings(no_such_key=1)

    async def test_its_settings_are_for_one_type_only(self, rig: Rig) -> None:
        with pytest.raises(ValidationError, match="type"):
            rig.read_settings(type=f"no-{rig.receiver.settings['type']}")

    async def test_it_bears_the_name_of_its_table_and_has_a_window(self, rig: Rig) -> None:
        sink = rig.make_sink()
        assert sink.name == "tried"
        assert sink.window >= 1

    async def test_a_probe_says_what_it_found_and_delivers_nothing(self, rig: Rig) -> None:
        await rig.outbox.change("a")
        assert await rig.make_sink().probe()
        assert rig.arrivals == []

    async def test_a_probe_says_when_nobody_answers(self, rig: Rig) -> None:
        await rig.receiver.stop()
        with pytest.raises(SinkUnavailable):
            await rig.make_sink().probe()

    async def test_a_probe_says_when_the_receiver_refuses_the_sink(self, rig: Rig) -> None:
        self.need(Ability.REJECT)
        await rig.receiver.reject()
        with pytest.raises(SinkRejected):
            await rig.make_sink().probe()

    # Delivery ---------------------------------------------------------------------------------------------------------

    async def test_each_event_arrives_once_and_those_of_a_key_in_order(self, rig: Rig) -> None:
        for _ in range(6):
            await rig.outbox.change(*_EIGHT)
            await rig.outbox.change(*_EIGHT, feed=STOCK)
        await rig.outbox.state_gap()
        async with rig.living() as life:
            await rig.until_all_arrived()
            await until(lambda: not life.unsettled, "all is settled")
        assert rig.repeats == 0
        assert sorted(each.sequence for each in rig.arrivals if each.feed == str(SHIPMENTS)) == list(range(1, 66))

    async def test_what_was_settled_is_not_delivered_again(self, rig: Rig) -> None:
        for count in range(2):
            await rig.outbox.change(*_EIGHT)
            async with rig.living() as life:
                await rig.until_all_arrived()
                await until(lambda life=life: not life.unsettled, "all is settled")  # type: ignore[misc]
            assert len(rig.arrivals) == len(_EIGHT) * (count + 1)

    async def test_what_happens_while_it_runs_arrives_at_once(self, rig: Rig) -> None:
        async with rig.living():
            for count in range(1, 6):
                await rig.outbox.change("a", first=10)
                await until(lambda count=count: len(rig.arrivals) >= count, "the change arrives")  # type: ignore[misc]

    async def test_keys_may_hold_any_text(self, rig: Rig) -> None:
        await rig.outbox.change(*_UNICODE)
        async with rig.living():
            await rig.until_all_arrived()
        assert {each.key for each in rig.arrivals} == {keys.encode([key]) for key in _UNICODE}

    async def test_events_may_be_large(self, rig: Rig) -> None:
        await rig.outbox.change(*_EIGHT[:4], size=25_000)
        await rig.outbox.change(*_EIGHT[:4], size=25_000)
        async with rig.living():
            await rig.until_all_arrived()

    # Misfortune -------------------------------------------------------------------------------------------------------

    async def test_a_key_that_is_refused_leaves_dead_letters_and_the_others_go_on(self, rig: Rig) -> None:
        self.need(Ability.REFUSE)
        await rig.receiver.refuse("key_1")
        for _ in range(2):
            await rig.outbox.change(*_EIGHT[:4])
        async with rig.living() as life:
            await until(lambda: len(rig.dead) == 2, "both events of the key are dead letters")
            await until(lambda: len(rig.firsts) == 6 and not life.unsettled, "the other keys go on")
            await rig.receiver.accept("key_1")
            await rig.outbox.change(*_EIGHT[:4])
            await rig.until_all_arrived(but=2)
        assert [letter.key for letter in rig.dead] == ["key_1"] * 2
        assert rig.sequences("key_1") == [11, 12]

    async def test_a_receiver_that_refuses_everything_for_a_while_gets_everything(self, rig: Rig) -> None:
        self.need(Ability.REFUSE)
        for key in _EIGHT:
            await rig.receiver.refuse(key)
        for _ in range(2):
            await rig.outbox.change(*_EIGHT)
        async with rig.living() as life:
            # If an event that is in flight is accepted, the refused one before it stays a dead letter.
            refused = "it is told that the receiver is to blame, not the events, and nothing is in flight any more"
            await until(lambda: rig.troubles and not life.unsettled, refused)
            for key in _EIGHT:
                await rig.receiver.accept(key)
            await rig.until_all_arrived()

    async def test_a_key_that_fails_waits_and_the_others_go_on(self, rig: Rig) -> None:
        self.need(Ability.FAIL)
        await rig.receiver.fail("key_1")
        for _ in range(3):
            await rig.outbox.change(*_EIGHT[:4])
        async with rig.living():
            # Three versions of three keys, and the named events that follow each third version.
            await until(lambda: len(rig.firsts) == 12, "the other keys go on")
            assert rig.sequences("key_1") == []
            await rig.receiver.accept("key_1")
            await rig.until_all_arrived()
        assert rig.dead == []

    async def test_a_receiver_that_hangs_for_a_while_gets_everything_in_order(self, rig: Rig) -> None:
        self.need(Ability.HANG)
        async with rig.living() as life:
            await rig.outbox.change(*_EIGHT)
            await rig.until_all_arrived()
            await rig.receiver.hang()
            for _ in range(5):
                await rig.outbox.change(*_EIGHT)
            before = len(life.handed)
            await until(lambda: len(life.handed) > before or life.unsettled, "something is handed over")
            await anyio.sleep(1.5)  # longer than the sink waits for an answer
            await rig.receiver.resume()
            await rig.until_all_arrived()
        assert rig.dead == []

    async def test_connections_that_break_again_and_again_lose_nothing(self, rig: Rig) -> None:
        self.need(Ability.DROP)
        async with rig.living():
            for _ in range(8):
                await rig.outbox.change(*_EIGHT)
                await rig.receiver.drop()
            await rig.until_all_arrived()
        assert rig.dead == []

    async def test_a_receiver_that_was_away_gets_everything(self, rig: Rig) -> None:
        async with rig.living():
            for count in range(1, 3):
                await rig.outbox.change(*_EIGHT)
                await rig.until_all_arrived()
                await rig.receiver.stop()
                await rig.outbox.change(*_EIGHT)
                await until(lambda count=count: len(rig.troubles) >= count, "the sink reports its receiver")  # type: ignore[misc]
                await rig.outbox.change(*_EIGHT)
                await rig.receiver.start()
                await rig.until_all_arrived()
        assert rig.dead == []

    # The end ----------------------------------------------------------------------------------------------------------

    async def test_it_ends_when_its_stream_ends(self, rig: Rig) -> None:
        async with rig.living() as life:
            await rig.outbox.change(*_EIGHT)
            await until(lambda: life.handed, "something is handed over")
            begin = monotonic()
        assert life.is_ended
        assert monotonic() - begin < _GOODBYE

    async def test_it_ends_when_it_has_delivered_nothing(self, rig: Rig) -> None:
        async with rig.living() as life:
            await anyio.wait_all_tasks_blocked()
        assert life.is_ended
        assert rig.arrivals == []

    async def test_it_ends_when_nobody_answers_and_nothing_is_lost(self, rig: Rig) -> None:
        await rig.receiver.stop()
        await rig.outbox.change(*_EIGHT)
        async with rig.living() as life:
            await until(lambda: life.handed, "something is handed over")
        assert life.is_ended
        assert rig.arrivals == []
        await rig.receiver.start()
        async with rig.living():
            await rig.until_all_arrived()
        assert rig.dead == []

    async def test_it_can_be_cut_off_while_the_receiver_hangs(self, rig: Rig) -> None:
        self.need(Ability.HANG)
        await rig.receiver.hang()
        await rig.outbox.change(*_EIGHT)
        async with rig.living() as life:
            await until(lambda: life.handed, "something is handed over")
            begin = monotonic()
            life.kill()
        assert monotonic() - begin < _AT_ONCE
        await rig.receiver.resume()
        async with rig.living():
            await rig.until_all_arrived()

    # Crashes ----------------------------------------------------------------------------------------------------------

    async def test_nothing_is_lost_wherever_it_is_killed(self, rig: Rig) -> None:
        for _ in range(3):
            await rig.outbox.change(*_EIGHT[:3])
        point = 1
        while (await rig.drain(dies_at=point)).is_dead:
            point += 1
            assert rig.crashes == [], "an error left the sink"
        assert point > 12, "each delivery has several points at which it can be killed"
        async with rig.living():  # on a busy machine the last one may have given up: a receiver seemed to be away
            await rig.until_all_arrived()

    async def test_a_crash_repeats_no_more_than_the_last_seconds(self, rig: Rig) -> None:
        async with rig.living() as life:
            await rig.outbox.change(*_EIGHT)
            await until(lambda: rig.arrivals, "the first event has arrived")  # some sinks take long to begin
            began_at, count = monotonic(), 8
            while len(life.saves) < 2 or monotonic() < life.saves[1] + 0.2:
                assert monotonic() < began_at + 2 * _SAVED_EVERY, "what was settled is not saved each second"
                if count - len(rig.arrivals) > _BEHIND_MOST:
                    await anyio.lowlevel.checkpoint()
                    continue
                await rig.outbox.change(*(f"key_{count + number}" for number in range(8)))
                count += 8
            life.kill()
        assert rig.repeats == 0
        # What was in flight at the last saving was not yet, or holds up what had overtaken it, at the last but one.
        at_risk = sum(each.at >= life.saves[-2] for each in rig.arrivals)
        async with rig.living():
            await rig.until_all_arrived()
        assert rig.repeats <= at_risk + rig.make_sink().window
