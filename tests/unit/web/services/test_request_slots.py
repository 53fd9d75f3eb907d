"""Slots of costly requests: each caller's share, turns, and refusals."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from dmls_core.testing.stores import run_coroutine
from dmls_core.web.services.request_slots import BusyServerError, Slots


async def _answers(slots: Slots, callers: str) -> tuple[str, int, dict[str, int]]:
    """Send a request of each caller at once; return who ran in which order, and the most at a time."""
    order, running, most = [], [], {}

    async def request(caller: str) -> None:
        async with slots.hold(caller):
            running.append(caller)
            order.append(caller)
            for one in {*running}:
                most[one] = max(most.get(one, 0), running.count(one))
            most[""] = max(most.get("", 0), len(running))
            await asyncio.sleep(0.001)
            running.remove(caller)

    await asyncio.gather(*map(request, callers))
    total = most.pop("")
    return "".join(order), total, most


@pytest.mark.parametrize(
    ("total", "share", "callers", "order"),
    [
        (2, 1, "aaaab", "abaaa"),  # another caller finds a slot
        (1, 1, "aaaabbcc", "aabcabca"),  # callers take turns
        (4, 2, "aaaaaa", "aaaaaa"),
    ],
)
def test_a_caller_gets_its_share_and_its_turn(total: int, share: int, callers: str, order: str):
    slots = Slots(total, share)
    ran, most, of_one = run_coroutine(_answers(slots, callers))
    assert ran == order
    assert most == min(total, share * len({*callers}))
    assert max(of_one.values()) == share
    assert not slots._waiting
    assert not slots._running


def test_what_waits_too_long_or_in_too_long_a_queue_is_refused():
    async def refusals() -> list[bool]:
        slots, refused = Slots(1, 1, waiting=1, seconds=0.01), []
        async with slots.hold("a"):
            waiting = asyncio.create_task(slots.hold("b").__aenter__())
            await asyncio.sleep(0)
            for caller in ("b", "a", "c"):
                try:
                    await slots.hold(caller).__aenter__()
                except BusyServerError as error:
                    refused.append(error.by_caller)
            with suppress(BusyServerError):
                await waiting
        async with slots.hold("c"):
            pass
        assert not slots._waiting
        assert not slots._running
        return refused

    assert run_coroutine(refusals()) == [True, True, False]


def test_a_request_whose_client_has_gone_leaves_its_place():
    async def gone() -> None:
        slots = Slots(1, 1)
        async with slots.hold("a"):
            waiting = asyncio.create_task(slots.hold("a").__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        async with asyncio.timeout(1), slots.hold("b"):
            assert slots._running.total() == 1

    run_coroutine(gone())
