"""Fixtures for every suite."""

import os

import pytest


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see no BRIDLE_ variable of the machine they run on."""
    for name in list(os.environ):
        if name.startswith("BRIDLE_"):
            monkeypatch.delenv(name)
