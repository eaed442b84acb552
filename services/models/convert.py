"""Models and providers between protobuf and the domain, and the rules of model.proto."""

import re
from datetime import datetime
from urllib.parse import urlsplit

from google.protobuf.timestamp_pb2 import Timestamp

from common.errors import FieldViolation
from common.pb.bridle.v1 import model_pb2
from services.models.catalog import ModelInfo
from services.models.demo import PREFIX as DEMO
from services.models.store import StoredProvider
from services.wire import checks
from services.wire.checks import Found
from services.wire.wellknown import enum_number, enum_text

_API = (model_pb2.Provider.Api, "API_")
_NAME = re.compile(r"[a-z0-9-]{1,32}")
_MOST_URL = 2_000
_MOST_KEY = 8_000


def name_problems(field: str, name: str) -> Found:
    """What is wrong with a provider's name."""
    if not name:
        yield FieldViolation(field, "is required")
    elif not _NAME.fullmatch(name):
        yield FieldViolation(field, "must be 1 to 32 lower-case letters, digits and dashes")


def provider_problems(pb: model_pb2.Provider) -> Found:
    """What is wrong with a provider."""
    yield from name_problems("provider.name", pb.name)
    if pb.name == DEMO:
        yield FieldViolation("provider.name", f"must not be '{DEMO}', which is built in")
    if not pb.api:
        yield FieldViolation("provider.api", "is required")
    yield from checks.enum("provider.api", model_pb2.Provider.Api, pb.api)
    yield from _url_problems("provider.base_url", pb.base_url)
    yield from checks.text("provider.api_key", pb.api_key, most=_MOST_KEY)
    # It goes into a header.
    if pb.api_key and not (pb.api_key.isascii() and pb.api_key.isprintable() and " " not in pb.api_key):
        yield FieldViolation("provider.api_key", "must be printable ASCII without spaces")


def api_from_pb(pb: model_pb2.Provider) -> str:
    """Which API it speaks, as it is stored."""
    return enum_text(*_API, pb.api)


def provider_to_pb(provider: StoredProvider) -> model_pb2.Provider:
    """A provider as callers see it: without its key."""
    return model_pb2.Provider(
        name=provider.name,
        api=enum_number(*_API, provider.api),
        base_url=provider.base_url,
        has_api_key=provider.sealed_key is not None,
        create_time=_timestamp(provider.created_at),
        update_time=_timestamp(provider.updated_at),
    )


def model_to_pb(handle: str, model: ModelInfo) -> model_pb2.Model:
    """A model as callers see it."""
    return model_pb2.Model(
        handle=handle,
        provider=handle.partition("/")[0],
        name=model.name,
        context_window=model.context_window,
        supports_tools=model.tools,
        supports_images=model.images,
        supports_reasoning=model.reasoning,
    )


def _url_problems(field: str, url: str) -> Found:
    if not url:
        return
    yield from checks.text(field, url, most=_MOST_URL)
    try:
        parts = urlsplit(url)
        # Reading it is what checks it.
        port = parts.port
    except ValueError:
        yield FieldViolation(field, "is not a URL")
        return
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        yield FieldViolation(field, "must look like 'https://host/path'")
    if not url.isascii() or not url.isprintable() or " " in url:
        yield FieldViolation(field, "must be printable ASCII without spaces")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        yield FieldViolation(field, "must have no user, password, query or fragment; a key belongs into api_key")


def _timestamp(moment: datetime) -> Timestamp:
    stamp = Timestamp()
    stamp.FromDatetime(moment)
    return stamp
