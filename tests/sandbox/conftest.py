"""Two sandboxes: one with all the walls of this machine, one without namespaces, as in a restricted container."""

import os
from collections.abc import AsyncIterator

import pytest

from services.sandbox.model import MINIMUM, Wall
from services.sandbox.sandbox import Sandbox
from tests.helpers.missing import missing
from tests.helpers.wait import eventually
from tests.sandbox.leftovers import descendants, descriptors
from tests.sandbox.rig import LIMITS, Box


@pytest.fixture(scope="session", params=["namespaces", "plain"])
async def shared_box(request: pytest.FixtureRequest) -> AsyncIterator[Box]:
    """One sandbox for all attacks: each must leave it as good as new."""
    sandbox = Sandbox(LIMITS, namespaces=request.param == "namespaces")
    await sandbox.start()
    try:
        if request.param == "namespaces" and Wall.OWN_ROOT not in sandbox.walls().standing:
            missing(f"no namespaces here: {sandbox.walls().details}")
        if not sandbox.walls().standing >= MINIMUM:
            missing(f"not even the minimum here: {sandbox.walls()}")
        yield Box(sandbox, plain=request.param == "plain")
    finally:
        await sandbox.close()


@pytest.fixture
async def box(shared_box: Box) -> AsyncIterator[Box]:
    """The sandbox; afterwards it must still serve, and nothing may be left of the test."""
    await shared_box.serves()
    processes, open_files, files = descendants(os.getpid()), descriptors(), shared_box.files()
    yield shared_box
    await shared_box.serves()
    await eventually(lambda: descendants(os.getpid()), until=lambda found: found <= processes)
    assert shared_box.files() == files
    await eventually(descriptors, until=lambda count: count <= open_files)
