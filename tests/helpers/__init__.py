"""What several suites share: waiting, servers, databases."""

from tests.helpers.wait import eventually

__all__ = ["eventually"]
