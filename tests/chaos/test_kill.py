"""kill -9 at random moments: nothing that was acknowledged is lost, nothing is stuck, nothing is done twice.

`make chaos ROUNDS=200` does the same for longer.
"""

import random
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign


@pytest.mark.timeout(120)
async def test_everything_acknowledged_survives_a_killed_server(tmp_path: Path) -> None:
    report = await Campaign(tmp_path, seed=str(random.randrange(10**6))).run(rounds=8)
    assert report.violations == [], f"python -m tests.chaos --rounds {report.rounds} --seed {report.seed}"
    assert report.rounds == 8
    assert report.totals["message"]
