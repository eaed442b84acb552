"""Finding messages by what was said in them: what is stored for that, and what is looked for."""

from services.messages.model import Body, Text, ToolReturn


def said(body: Body) -> str:
    """What was said: texts, and what tools returned. Reasoning and arguments are nobody's words."""
    return "\n".join(part.text for part in body.parts if isinstance(part, Text | ToolReturn))


def search_text(body: Body) -> str:
    """What was said, without case. Folded here, because SQLite folds only ASCII; and Postgres cannot store a NUL."""
    return said(body).casefold().replace("\0", " ")


def words(query: str) -> list[str]:
    """The words that must occur, each once."""
    return list(dict.fromkeys(query.casefold().split()))
