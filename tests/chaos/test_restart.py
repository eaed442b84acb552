"""A rolling restart (SIGTERM) and a server that is frozen for a while (SIGSTOP), both under load."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign
from tests.chaos.effects import read_effects
from tests.helpers.server import free_address


@pytest.mark.timeout(120)
async def test_a_rolling_restart_under_load_fails_no_run(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=str(random.randrange(10**6)))
    victim = campaign.victim
    try:
        await victim.ready()
        async with campaign.clients() as crew:
            for _ in range(3):
                await crew.ledger.next("tool started")
                assert await victim.server.terminate() == 0
                victim.start_again()
                await victim.ready()
    finally:
        await victim.kill()
    # A run that failed would be a violation, and so would a stream that was cut with anything but UNAVAILABLE.
    assert campaign.report.violations == [], campaign.report.seed
    starts = Counter(effect.token for effect in read_effects(victim.marks) if not effect.finished)
    assert campaign.report.totals["unknown outcomes"] == 0
    assert set(starts.values()) == {1}
    assert any(watch.cuts for watch in crew.watches.values())


@pytest.mark.timeout(120)
async def test_a_frozen_server_goes_on_where_it_was(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed=str(random.randrange(10**6)))
    victim = campaign.victim
    try:
        await victim.ready()
        async with campaign.clients() as crew:
            await crew.ledger.next("tool started")
            victim.signal(signal.SIGSTOP)
            # Longer than a node may be silent before others think it dead.
            await asyncio.sleep(3)
            intruder = victim.spawn(BRIDLE_GRPC_ADDRESS=free_address())
            assert await intruder.wait() != 0
            assert "in use by another server" in victim.log_file.read_text()
            await asyncio.sleep(3)
            victim.signal(signal.SIGCONT)
            await crew.ledger.next("tool started")
    finally:
        victim.signal(signal.SIGCONT)
        await victim.kill()
    assert campaign.report.violations == [], campaign.report.seed
    assert not any(watch.cuts for watch in crew.watches.values())
