"""Memory blocks as the model reads them."""

from collections.abc import Sequence
from html import escape

from services.blocks.model import Block

_ABOUT = (
    "These blocks are your memory. They are always up to date and always shown to you. A value has at most `limit` "
    "characters. What is marked read_only you cannot change."
)


def memory_section(blocks: Sequence[Block]) -> str:
    """The blocks in their order; empty if there are none.

    Everything about a block that is seldom changed comes before its value, and nothing is counted: what is cached of a
    prompt ends at its first change.
    """
    if not blocks:
        return ""
    return "\n".join(("# Memory", _ABOUT, "<memory_blocks>", *map(_rendered, blocks), "</memory_blocks>"))


def _rendered(block: Block) -> str:
    spec = block.spec
    mark = ' read_only="true"' if spec.read_only else ""
    lines = [f'<block label="{escape(block.label)}" limit="{spec.limit}"{mark}>']
    if spec.description:
        lines += ["<description>", spec.description, "</description>"]
    return "\n".join((*lines, "<value>", block.value, "</value>", "</block>"))
