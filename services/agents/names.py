"""Names for agents that came without one."""

from uuid import UUID

_ADJECTIVES = (
    "amber brave bright calm clever crisp curious daring eager early fair gentle golden happy honest humble keen kind "
    "lively lucky mellow nimble patient polite quick quiet ready silver steady sunny swift wise"
)
_NOUNS = (
    "badger beacon bramble brook cedar comet condor coral cricket dolphin ember falcon fern gecko harbor heron island "
    "juniper lantern lark maple meadow otter pebble pine raven river robin sparrow tiger willow wren"
)


def made_up_name(agent_id: str) -> str:
    """An adjective and a noun that follow from the id."""
    adjectives, nouns = _ADJECTIVES.split(), _NOUNS.split()
    number = UUID(agent_id.partition("-")[2]).int
    # The lowest bits of a random uuid are random.
    rest, noun = divmod(number, len(nouns))
    return f"{adjectives[rest % len(adjectives)]}-{nouns[noun]}"
