"""What the model would be shown now, piece by piece, and what each piece weighs."""

import msgspec
from msgspec import Struct

from services.context.prompt import Kind, prompt_sections, shown
from services.context.situation import Situation
from services.context.window import window_size
from services.messages.model import Role, Text
from services.models import tokens
from services.models.api import ToolSpec
from services.runs import rules
from services.runs.config import settle
from services.runs.model import RunOptions


class Weighed(Struct, frozen=True):
    """A piece of the context."""

    kind: Kind
    text: str
    tokens: int


class Overview(Struct, frozen=True):
    """All pieces, in the order in which the model reads them."""

    # None: nobody knows.
    window: int | None
    sections: tuple[Weighed, ...]
    message_ids: tuple[str, ...]
    total: int


def overview(now: Situation, default_model: str) -> Overview:
    """The next call of the live run, or the first of a run that would start now. Counting takes its time."""
    options = now.live.run.request.options if now.live else RunOptions()
    state = now.live.state if now.live else None
    client_tools = (state.client_tools if state else ()) or options.client_tools
    config = settle(options, now.agent.spec, now.tools, client_tools, default_model)
    offer = rules.offer(config.rules, config.tool_names, state.history if state else ())
    tools = [config.tools[name] for name in offer.names]
    pieces = prompt_sections(now.agent, config.rules, now.blocks, options.system)
    sections = [Weighed(piece.kind, piece.text, tokens.count(piece.text)) for piece in pieces]
    sections += _tools([ToolSpec(tool.name, tool.description, tool.parameters) for tool in tools])
    return Overview(
        window=window_size(config.model, now.agent.spec.model_settings),
        sections=(*sections, *_said(now)),
        message_ids=tuple(each.id for each in now.log),
        total=now.total,
    )


def _tools(tools: list[ToolSpec]) -> list[Weighed]:
    if not tools:
        return []
    functions = [{"type": "function", "function": tool} for tool in tools]
    return [Weighed(Kind.TOOLS, msgspec.json.encode(functions).decode(), sum(map(tokens.of_tool, tools)))]


def _said(now: Situation) -> list[Weighed]:
    """The summary of what is no longer shown, and the messages; their texts are in the log."""
    weighed = []
    summaries = [each for each in now.log if each.role is Role.SUMMARY]
    for each in summaries:
        text = "\n".join(part.text for part in each.body.parts if isinstance(part, Text))
        weighed.append(Weighed(Kind.SUMMARY, text, sum(map(tokens.of_message, shown([(each.role, each.body)])))))
    rest = shown((each.role, each.body) for each in now.log if each.role is not Role.SUMMARY)
    if rest:
        weighed.append(Weighed(Kind.MESSAGES, "", sum(map(tokens.of_message, rest))))
    return weighed
