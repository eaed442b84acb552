"""Readiness follows the database: without it a process should get no traffic, with it it should."""

import asyncio
import sqlite3
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.rpc.health import LIVENESS, READINESS
from common.settings import Settings
from services.app import running
from tests.helpers.wait import eventually

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def readyz(address: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}/readyz", timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


async def test_it_comes_and_goes_with_the_database(tmp_path: Path) -> None:
    path = tmp_path / "bridle.db"
    settings = Settings.from_env(
        {
            "BRIDLE_GRPC_ADDRESS": "127.0.0.1:0",
            "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0",
            "BRIDLE_DATABASE_URL": f"sqlite:///{path}",
            "BRIDLE_DATA_DIR": str(tmp_path),
        }
    )
    async with running(settings) as serving, grpc.aio.insecure_channel(serving.grpc_address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)

        async def seen() -> tuple[int, int, int]:
            checks = [
                await health.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
                for name in (LIVENESS, READINESS)
            ]
            return checks[0].status, checks[1].status, await asyncio.to_thread(readyz, serving.http_address)

        assert await seen() == (SERVING, SERVING, 200)
        somebody = sqlite3.connect(path, isolation_level=None)
        try:
            somebody.execute("BEGIN IMMEDIATE")
            await eventually(seen, timeout=15, until=lambda all: all == (SERVING, NOT_SERVING, 503))
            somebody.execute("ROLLBACK")
            await eventually(seen, timeout=15, until=lambda all: all == (SERVING, SERVING, 200))
        finally:
            somebody.close()
