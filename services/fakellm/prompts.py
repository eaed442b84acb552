"""What is done when no rule says otherwise: what the user's text asks for (services/models/script.py)."""

from services.fakellm.asked import Asked
from services.fakellm.scripts import Answer, Call, Failure, Say, Script
from services.models import script

_FAILURES: dict[str, Script] = {
    "llm_timeout": Failure(408),
    "llm_rate_limit": Failure(429),
    "llm_authentication": Failure(401),
    "llm_bad_request": Failure(400),
    "llm_insufficient_credits": Failure(429, kind="quota"),
    "llm_empty_response": Answer(),
    "context_window_exceeded": Failure(400, kind="overflow"),
}


def obey(asked: Asked) -> Script:
    """The script that the conversation asks for."""
    told = script.failure(asked.said)
    if told:
        return _FAILURES.get(told, Failure(500))
    calls = script.calls(asked.situation)
    if calls:
        return Answer(parts=tuple(Call(name, arguments) for name, arguments in calls))
    last = script.counts_to(asked.situation)
    if last is not None:
        return Answer(parts=(Say(tokens=last),))
    return Answer(parts=(Say(pieces=tuple(script.words(asked.situation))),))
