"""What a call has cost when its provider did not say, or did not come to say all of it."""

from collections.abc import Iterable

from msgspec.structs import replace

from services.messages.model import Part
from services.models import tokens
from services.models.api import ModelRequest
from services.runs.model import Usage


def estimate(
    request: ModelRequest | None,
    written: Iterable[Part],
    told: Usage | None = None,
    measure: tokens.Measure = tokens.count,
) -> Usage:
    """What a call has probably cost; `told` is what the provider had said of it before it was cut."""
    if request is None:
        return Usage()
    output = tokens.of_parts(written, measure)
    if told is None:
        return Usage(input_tokens=tokens.of_request(request, measure), output_tokens=output, estimated=True)
    # The prompt is as the provider counted it. Of the answer it had told at most the beginning.
    return replace(told, output_tokens=max(told.output_tokens, output), estimated=True)


def at_once() -> tokens.Measure:
    """How to count for one who cannot wait: exactly if the tables for that are there, else roughly.

    Loading them would hold up every run of the process, in a thread too, and cost more memory than all else.
    """
    return tokens.count if tokens.loaded() else tokens.rough
