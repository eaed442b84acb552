"""What a summarising model is asked, and what becomes of its answer."""

import pytest

from services.agents.model import AgentSpec, CompactionSettings, ModelSettings
from services.context.compaction import Plan
from services.context.summary import PROMPT, SummaryCall, clip, summary_job, transcript
from services.messages.model import (
    Body,
    Decision,
    Deny,
    Image,
    InContext,
    Outcome,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolReturn,
)
from services.models import tokens
from services.models.api import Finish, Finished, ModelEvent, TextChunk
from services.models.errors import ModelError, ModelErrorType
from services.runs.model import Usage
from tests.helpers.models import ScriptedModels

MANY = 10_000


def entry(role: Role, *parts: Part, name: str = "") -> InContext:
    return InContext("message-1", 1, role, Body(parts, name=name))


def planned(*old: InContext, room: int = 100, before: int = 5_000) -> Plan:
    return Plan(old, 9, room, 12, 4, before, 300)


LOG = (
    entry(Role.SUMMARY, Text("Ada is here.")),
    entry(Role.USER, Text("roll"), Image(url="https://x/y.png"), name="Bob"),
    entry(Role.ASSISTANT, Reasoning("hm"), Text("I will."), ToolCall("c1", "roll_dice", '{"sides": 6}')),
    entry(Role.APPROVAL, Decision("c1", Deny())),
    entry(Role.TOOL, ToolReturn("c1", "roll_dice", Outcome.DENIED, (Text("no"),))),
)


def test_everything_that_was_said_is_told() -> None:
    assert transcript(LOG, MANY).splitlines() == [
        "Conversation to summarise:",
        "[summary of what came before] Ada is here.",
        "[Bob] roll",
        "[an image]",
        "[assistant] I will.",
        '(calls roll_dice {"sides": 6})',
        "[tool] (roll_dice denied: no)",
    ]


def test_long_messages_are_cut_first() -> None:
    long = entry(Role.TOOL, ToolReturn("c1", "look", Outcome.SUCCEEDED, (Text("word " * 5_000),)))
    text = transcript((*LOG, long, entry(Role.USER, Text("and then?"))), 800)
    assert tokens.count(text) <= 820
    assert "characters left out" in text
    assert "roll_dice denied" in text
    assert text.endswith("and then?")


def test_then_old_ones_are_left_out_and_the_summary_stays() -> None:
    text = transcript((LOG[0], *(entry(Role.USER, Text(f"{n} " + "word " * 40)) for n in range(100))), 500)
    assert tokens.count(text) <= 540
    assert text.splitlines()[1:3] == [
        "[summary of what came before] Ada is here.",
        f"[{100 - text.count('[user]')} older messages are left out here: they did not fit]",
    ]
    assert "[user] 99 word" in text


@pytest.mark.parametrize("text", ["word " * 500, "\u4f60\u597d" * 300, "1234567890" * 100 + "word " * 400])
def test_a_cut_says_how_much_it_cut(text: str) -> None:
    short = clip(text, 60)
    assert tokens.count(short) <= 66
    kept, _, rest = short.rpartition(" [... ")
    assert text.startswith(kept)
    assert rest == f"{len(text) - len(kept)} characters left out]"
    assert clip(text, MANY) == text


def test_the_agents_own_model_is_asked_with_its_settings() -> None:
    settings = ModelSettings(temperature=0.5, context_window=2_000, response_schema={"type": "object"})
    job = summary_job(planned(*LOG), AgentSpec(model_settings=settings), "openai/gpt-5")
    assert job.handle == "openai/gpt-5"
    assert job.request.system.startswith(PROMPT)
    assert "At most 75 words." in job.request.system
    assert (job.request.settings.temperature, job.request.settings.response_schema) == (0.5, None)
    assert not job.request.tools


def test_another_model_is_not_asked_with_them() -> None:
    compaction = CompactionSettings(model="anthropic/claude-x", prompt="Be brief.")
    settings = ModelSettings(temperature=0.5, context_window=2_000, call_timeout=9)
    job = summary_job(planned(*LOG), AgentSpec(model_settings=settings, compaction=compaction), "openai/gpt-5")
    assert job.handle == "anthropic/claude-x"
    assert job.request.system.startswith("Be brief.")
    assert job.request.settings == ModelSettings(call_timeout=9)


def test_the_question_fits_into_the_summarising_models_window() -> None:
    long = [entry(Role.USER, Text("word " * 700)) for _ in range(20)]
    weights = []
    for attempt in (1, 2, 3):
        settings = ModelSettings(context_window=4_000)
        job = summary_job(planned(*long), AgentSpec(model_settings=settings), "ollama/llama", attempt)
        weights.append(tokens.of_request(job.request))
    assert weights[0] <= 2_700
    assert weights == sorted(weights, reverse=True)
    assert weights[2] < weights[0] / 2


async def written(*events: ModelEvent, room: int = 100) -> tuple[str, Usage]:
    models = ScriptedModels()
    model = models.make()
    model.will(events)
    call = SummaryCall(summary_job(planned(*LOG, room=room), AgentSpec(), model.handle))
    return await call.run(models, ""), call.usage()


async def test_the_answer_is_the_summary() -> None:
    usage = Usage(input_tokens=5, output_tokens=2)
    assert await written(TextChunk(" They "), TextChunk("rolled.\n"), Finished(Finish.STOP, usage)) == (
        "They rolled.",
        usage,
    )


async def test_usage_that_nobody_tells_is_estimated() -> None:
    _, usage = await written(TextChunk("They rolled."), Finished(Finish.STOP))
    assert usage.estimated
    assert usage.input_tokens > 100


async def test_an_answer_that_is_too_long_is_cut() -> None:
    text, _ = await written(TextChunk("word " * 500), Finished(Finish.LENGTH))
    assert tokens.count(text) <= 100
    assert text.endswith("characters left out]")


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ((TextChunk("half"),), ModelErrorType.ERROR),
        ((TextChunk("no"), Finished(Finish.REFUSAL)), ModelErrorType.ERROR),
        ((TextChunk(" \n"), Finished(Finish.STOP)), ModelErrorType.EMPTY_RESPONSE),
        ((Finished(Finish.STOP),), ModelErrorType.EMPTY_RESPONSE),
    ],
)
async def test_what_is_no_summary_is_an_error(events: tuple[ModelEvent, ...], kind: ModelErrorType) -> None:
    with pytest.raises(ModelError) as caught:
        await written(*events)
    assert caught.value.kind is kind
