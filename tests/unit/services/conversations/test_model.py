"""The agent as it is in a conversation."""

from services.agents.model import AgentSpec, ModelSettings
from services.conversations.model import ConversationSpec

AGENT = AgentSpec(system="s", model="demo/echo", model_settings=ModelSettings(temperature=1))


def test_what_is_not_set_is_the_agents() -> None:
    assert ConversationSpec(summary="x").over(AGENT) == AGENT


def test_what_is_set_comes_first_and_as_a_whole() -> None:
    spec = ConversationSpec(model="demo/slow", model_settings=ModelSettings(context_window=9000)).over(AGENT)
    assert (spec.model, spec.model_settings, spec.system) == ("demo/slow", ModelSettings(context_window=9000), "s")


def test_settings_that_say_nothing_leave_the_choice_to_the_provider() -> None:
    assert ConversationSpec(model_settings=ModelSettings()).over(AGENT).model_settings == ModelSettings()
