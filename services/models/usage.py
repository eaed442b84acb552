"""What a call has cost when its provider did not say."""

from collections.abc import Iterable

from services.messages.model import Part
from services.models import tokens
from services.models.api import ModelRequest
from services.runs.model import Usage


def estimate(request: ModelRequest | None, written: Iterable[Part]) -> Usage:
    """What a call has probably cost."""
    if request is None:
        return Usage()
    return Usage(input_tokens=tokens.of_request(request), output_tokens=tokens.of_parts(written), estimated=True)
