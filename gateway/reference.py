"""The reference page: the OpenAPI document as plain HTML that needs no script and nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

JSON = dict[str, Any]

_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1rem 1.5rem 6rem; }
h1 { margin-bottom: 0; } h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; text-transform: capitalize; }
code { font: 13px/1.4 ui-monospace, monospace; overflow-wrap: anywhere; }
a { color: inherit; } nav a { margin-right: .8rem; text-transform: capitalize; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; } summary code { font-weight: 600; } summary span { opacity: .75; margin-left: .6rem; }
.method { display: inline-block; min-width: 4.2rem; }
.get { color: #2b7de0; } .post { color: #1a9850; } .patch, .put { color: #c77700; } .delete { color: #d73027; }
table { border-collapse: collapse; margin: .3rem 0 .8rem; width: 100%; }
th, td { border-top: 1px solid var(--line); padding: .25rem .6rem .25rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; } h4 { margin: .8rem 0 0; } :target { background: var(--soft); }
"""


def page(document: JSON) -> str:
    """The whole page."""
    info = document["info"]
    tags = [tag["name"] for tag in document["tags"]]
    links = "".join(f'<a href="#tag-{escape(tag)}">{escape(tag)}</a>' for tag in tags)
    about = "".join(f"<p>{_text(part)}</p>" for part in info["description"].split("\n\n"))
    sections = "".join(_section(document, tag) for tag in tags)
    schemas = "".join(_schema(name, schema) for name, schema in sorted(document["components"]["schemas"].items()))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} API</h1>"
        f'<p>Version {escape(info["version"])} · <a href="openapi.json">OpenAPI</a></p>'
        f'{about}<nav>{links}<a href="#types">types</a></nav>{sections}<h2 id="types">types</h2>{schemas}</body></html>'
    )


def _section(document: JSON, tag: str) -> str:
    operations = "".join(
        _operation(path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag in operation["tags"]
    )
    return f'<h2 id="tag-{escape(tag)}">{escape(tag)}</h2>{operations}'


def _operation(path: str, method: str, operation: JSON) -> str:
    return (
        f'<details id="{operation["operationId"]}"><summary><code><b class="method {method}">{method.upper()}</b>'
        f"{escape(path)}</code><span>{_text(operation['summary'])}</span></summary><p>{_text(operation['description'])}</p>"
        f"{_parameters(operation['parameters'])}{_body(operation.get('requestBody'))}{_answers(operation['responses'])}"
        "</details>"
    )


def _parameters(parameters: list[JSON]) -> str:
    if not parameters:
        return ""
    rows = "".join(
        _row(each["name"], f"{each['in']}, {_type(each['schema'])}", required=each["required"], schema=each["schema"])
        for each in parameters
    )
    return f"<h4>Parameters</h4><table>{rows}</table>"


def _body(body: JSON | None) -> str:
    if body is None:
        return ""
    need = "" if body["required"] else " (may be left out)"
    return f"<h4>Body{need}</h4><p>{_content(body['content'])}</p>"


def _answers(responses: JSON) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{_text(found['description'])}</td>"
        f"<td>{_content(found['content'])}</td></tr>"
        for status, found in responses.items()
    )
    return f"<h4>Answers</h4><table>{rows}</table>"


def _content(content: JSON) -> str:
    return "<br>".join(f"<code>{escape(media)}</code> {_media(found)}" for media, found in content.items())


def _media(found: JSON) -> str:
    return _type(found["schema"]) if "schema" in found else f"<pre>{escape(found['example'].strip())}</pre>"


def _schema(name: str, schema: JSON) -> str:
    required = schema.get("required", ())
    rows = "".join(
        _row(field, _type(found), required=field in required, schema=found)
        for field, found in schema.get("properties", {}).items()
    )
    return (
        f'<details id="type-{escape(name)}" open><summary><code>{escape(name)}</code></summary>'
        f"<p>{_text(schema.get('description', ''))}</p><table>{rows}</table></details>"
    )


def _row(name: str, kind: str, *, required: bool, schema: JSON) -> str:
    notes = ["required"] if required else []
    default = schema.get("default")
    if default not in (None, [], {}):
        notes.append(f"default <code>{escape(str(default))}</code>")
    notes += [_text(schema["description"])] if "description" in schema else []
    return f"<tr><td><code>{escape(name)}</code></td><td>{kind}</td><td>{', '.join(notes)}</td></tr>"


def _type(schema: JSON) -> str:
    """A schema in a few words, with links to the types it names."""
    return " or ".join(dict.fromkeys(_types(schema))) or "anything"


def _types(schema: JSON) -> Iterator[str]:
    for each in schema.get("anyOf", ()):
        yield from _types(each)
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        yield f'<a href="#type-{name}">{name}</a>'
    elif "enum" in schema or "const" in schema:
        yield from (f"<code>{escape(str(value))}</code>" for value in schema.get("enum", [schema.get("const")]))
    elif schema.get("type") == "array":
        yield f"list of {_type(schema.get('items', {}))}"
    elif schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        yield f"map to {_type(schema['additionalProperties'])}"
    elif "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        yield from (escape(kind) + _bounds(schema) for kind in kinds)


_BOUNDS: Final = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "length at least",
    "maxLength": "length at most",
    "pattern": "like",
}


def _bounds(schema: JSON) -> str:
    found = [f"{words} <code>{escape(str(schema[key]))}</code>" for key, words in _BOUNDS.items() if key in schema]
    return f" ({', '.join(found)})" if found else ""


def _text(text: str) -> str:
    """Words, with `code` shown as such."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
