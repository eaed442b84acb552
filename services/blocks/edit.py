"""How an agent changes the text of a block. Pure: the old text in, the new one out, or what is wrong in clear words."""

_END = -1


class EditRefused(Exception):
    """Told to the model, which can do better."""


def inserted(value: str, text: str, after_line: int = _END) -> str:
    """The value with a text after this line; 0: before everything, -1: at the end."""
    if not value:
        if after_line not in (0, _END):
            raise EditRefused(f"insert_line is {after_line}, but the block is empty: it must be 0 or -1")
        return text
    lines = value.split("\n")
    if not _END <= after_line <= len(lines):
        raise EditRefused(
            f"insert_line is {after_line}, but the block has {len(lines)} lines: it must be 0 to that, or -1"
        )
    place = len(lines) if after_line == _END else after_line
    return "\n".join((*lines[:place], text, *lines[place:]))


def replaced(value: str, old: str, new: str) -> str:
    """The value with the one place where the old text stands changed."""
    if not old:
        raise EditRefused("old_str is empty: it must be the exact text to change. Use memory_insert to add text")
    found = value.count(old)
    if not found:
        raise EditRefused(
            "old_str was not found in the block: it must be exactly as it stands there, with its line breaks"
        )
    if found > 1:
        lines = ", ".join(str(number) for number in _lines_of(value, old))
        raise EditRefused(f"old_str occurs {found} times, on lines {lines}: add text around it so that it is unique")
    return value.replace(old, new)


def _lines_of(value: str, text: str) -> list[int]:
    """Where the text begins, by line numbers from 1."""
    numbers, place = [], value.find(text)
    while place >= 0:
        numbers.append(value.count("\n", 0, place) + 1)
        place = value.find(text, place + len(text))
    return numbers


def require_room(value: str, limit: int) -> None:
    """Refuse a value that is over its block's limit."""
    if len(value) > limit:
        raise EditRefused(
            f"the block would have {len(value):,} characters, and its limit is {limit:,}: say it shorter, or remove "
            "something first"
        )
