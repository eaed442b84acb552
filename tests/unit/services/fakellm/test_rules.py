"""Which request gets which script."""

from pathlib import Path

import pytest

from common.startup import StartupError
from services.fakellm.asked import Asked
from services.fakellm.rules import Rule, Rules, load
from services.fakellm.scripts import Answer, Api, Call, Failure, Fault, FaultKind, Say, say
from services.models.script import Situation
from tests.helpers.fakellm import fake_llm
from tests.helpers.server import ROOT
from tests.unit.services.fakellm.clients import client_of

A, B = say("a"), say("b")


def asked(api: Api = Api.CHAT, model: str = "gpt-5", said: str = "hi", tokens: int = 10) -> Asked:
    return Asked(api=api, model=model, stream=True, situation=Situation(said), moments=(), input_tokens=tokens)


def test_the_first_that_matches_wins() -> None:
    rules = Rules([Rule(A, model="gpt-*"), Rule(B)])
    assert rules.choose(asked()) is A
    assert rules.choose(asked(model="claude")) is B


def test_by_api() -> None:
    rules = Rules([Rule(A, api=Api.MESSAGES)])
    assert rules.choose(asked()) is None
    assert rules.choose(asked(Api.MESSAGES)) is A


def test_by_text() -> None:
    rules = Rules([Rule(A, text="^(?i:weather) in")])
    assert rules.choose(asked(said="Weather in Oslo")) is A
    assert rules.choose(asked(said="the Weather in Oslo")) is None


def test_by_size() -> None:
    rules = Rules([Rule(A, over_tokens=10)])
    assert [rules.choose(asked(tokens=tokens)) for tokens in (10, 11)] == [None, A]


def test_the_nth_of_those_that_match() -> None:
    rules = Rules([Rule(A, model="gpt-*", nth=2), Rule(B)])
    models = ("gpt-5", "claude", "gpt-5", "gpt-5")
    assert [rules.choose(asked(model=model)) for model in models] == [B, B, A, B]


def test_only_so_many_times() -> None:
    rules = Rules([Rule(A, times=2)])
    assert [rules.choose(asked()) for _ in range(3)] == [A, A, None]


def test_a_new_rule_comes_first_and_all_can_be_dropped() -> None:
    rules = Rules([Rule(A)])
    rules.add(Rule(B))
    assert rules.choose(asked()) is B
    rules.clear()
    assert rules.choose(asked()) is None


TOML = """
[[rules]]
api = "chat"
model = "gpt-*"
text = "weather"
[rules.script]
type = "answer"
first_delay = 0.5
fault = { kind = "reset", after = 3 }
parts = [{ do = "say", text = "Let me see." }, { do = "call", name = "get_weather", arguments = { city = "Oslo" } }]

[[rules]]
times = 2
script = { type = "failure", status = 429, retry_after = 1 }
"""
JSON = """
{"rules": [
  {"api": "chat", "model": "gpt-*", "text": "weather", "script": {
    "type": "answer", "first_delay": 0.5, "fault": {"kind": "reset", "after": 3}, "parts": [
      {"do": "say", "text": "Let me see."}, {"do": "call", "name": "get_weather", "arguments": {"city": "Oslo"}}]}},
  {"times": 2, "script": {"type": "failure", "status": 429, "retry_after": 1}}]}
"""


@pytest.mark.parametrize(("name", "text"), [("r.toml", TOML), ("r.json", JSON)])
def test_a_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    answer = Answer(
        parts=(Say("Let me see."), Call("get_weather", {"city": "Oslo"})),
        first_delay=0.5,
        fault=Fault(FaultKind.RESET, after=3),
    )
    assert load(tmp_path / name) == [
        Rule(answer, api=Api.CHAT, model="gpt-*", text="weather"),
        Rule(Failure(429, retry_after=1), times=2),
    ]


def test_the_example_in_the_docs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "fake-llm.md").read_text()
    path = tmp_path / "rules.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert [type(rule.script) for rule in load(path)] == [Failure, Answer]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "rules.json: "),
        ('{"rules": [{"script": {"type": "answer"}, "modle": "x"}]}', "modle"),
        ('{"rules": [{"script": {"type": "poem"}}]}', "poem"),
        ('{"rules": [{"script": {"type": "answer"}, "text": "("}]}', "unterminated"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(text)
    with pytest.raises(StartupError, match=said) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="No such file"):
        load(tmp_path / "rules.json")


async def test_scripts_then_rules_then_the_prompt(api: Api) -> None:
    async with fake_llm(rules=[Rule(say("by rule"), model="gpt-*")]) as fake, client_of(api, fake) as ask:
        fake.will(say("as told"))
        texts = [(await ask("hi", stream=True, model=model)).text for model in ("gpt-5", "gpt-5", "claude-sonnet-5-5")]
        fake.forget()
        texts.append((await ask("hi", stream=True, model="gpt-5")).text)
    assert texts == ["as told", "by rule", "You said: hi", "You said: hi"]
