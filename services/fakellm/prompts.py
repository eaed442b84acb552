"""What is done when no rule says otherwise: what the user's text asks for (services/models/script.py)."""

from services.fakellm.asked import Asked
from services.fakellm.scripts import Answer, Call, Failure, Part, Say, Script, Think
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
# Reasoning without one cannot be passed back to Anthropic.
_SIGNATURE = "c2lnbmVk"


def obey(asked: Asked) -> Script:
    """The script that the conversation asks for."""
    deeds = script.deeds(asked.situation)
    failed = next((deed for deed in deeds if isinstance(deed, script.Fail)), None)
    if failed is not None:
        return _FAILURES.get(failed.kind, Failure(500))
    pause = max((deed.pause for deed in deeds if isinstance(deed, script.Count)), default=0.0)
    return Answer(parts=tuple(_part(deed) for deed in deeds), token_delay=pause)


def _part(deed: script.Deed) -> Part:
    match deed:
        case script.Call(name=name, arguments=arguments):
            return Call(name, arguments)
        case script.Think(text=text):
            return Think(text, signature=_SIGNATURE)
        case script.Count(last=last):
            return Say(tokens=last)
        case script.Say(text=text):
            return Say(pieces=tuple(script.split(text)))
        case script.Fail():
            raise ValueError("a failure is no part of an answer")
