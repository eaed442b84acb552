"""`bridle fake-llm`: the fake provider as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import TYPE_CHECKING

import uvloop

from common import setting_parsers as parse
from common.startup import StartupError
from services.fakellm.rules import load
from services.fakellm.server import FakeLlm, fake_llm

if TYPE_CHECKING:
    from pathlib import Path


def main(address: str, rules: Path | None, *, insecure_bind: bool = False) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    if not insecure_bind and not parse.is_loopback(address):
        raise StartupError(f"{address} is not a loopback address; --insecure-bind allows it")
    uvloop.run(_serve(address, rules))


async def _serve(address: str, rules: Path | None) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with fake_llm(address, load(rules) if rules else ()) as fake:
        sys.stdout.write(_greeting(fake))
        sys.stdout.flush()
        await over.wait()


def _greeting(fake: FakeLlm) -> str:
    return f"""\
A fake LLM provider listens on {fake.address}. It answers for every model, takes every key, and costs nothing.

Point Bridle, or any program that uses the vendors' SDKs, at it:
  export OPENAI_BASE_URL={fake.openai_base_url} OPENAI_API_KEY=fake
  export ANTHROPIC_BASE_URL={fake.anthropic_base_url} ANTHROPIC_API_KEY=fake

What was asked, and how it ended: curl {fake.anthropic_base_url}/requests
"""
