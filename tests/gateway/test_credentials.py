"""What a request says of who is asking (WIRE 1), and that it reaches the services."""

import pytest

from gateway.http.credentials import metadata
from gateway.http.problems import Problem
from tests.gateway.client import Gateway


@pytest.mark.parametrize(
    ("headers", "credential"),
    [
        ({}, None),
        ({"authorization": "Bearer key"}, "Bearer key"),
        ({"x-bare-password": "password key"}, "Bearer key"),
        ({"authorization": "Bearer key", "x-bare-password": "password other"}, "Bearer key"),
        ({"user_id": "user-123e4567-e89b-42d3-8456-426614174000"}, None),
    ],
)
def test_the_credential_becomes_metadata(headers: dict[str, str], credential: str | None) -> None:
    found = dict(metadata(headers, "request-1"))
    assert found["x-request-id"] == "request-1"
    assert found.get("authorization") == credential


@pytest.mark.parametrize(("headers", "status"), [({"authorization": "Bearer \xff"}, 401), ({"user_id": "me"}, 400)])
def test_what_cannot_be_meant_is_refused(headers: dict[str, str], status: int) -> None:
    with pytest.raises(Problem) as caught:
        metadata(headers, "request-1")
    assert caught.value.status == status


async def test_the_services_see_credential_and_request_id(gateway: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="bridle.access")
    await gateway.http.get("/v1/runs/", headers={"x-request-id": "mine", "authorization": "Bearer key"})
    lines = [record.__dict__["fields"] for record in caplog.records if record.name == "bridle.access"]
    called = [line for line in lines if line["request_id"] == "mine"]
    assert [line.get("route") or line["method"] for line in called] == ["/bridle.v1.RunService/ListRuns", "/v1/runs"]
    assert "key" not in str(lines)
