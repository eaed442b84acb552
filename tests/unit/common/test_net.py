"""common/net.py: users cannot send the server to what only the server can reach."""

import pytest

from common.net import ForbiddenAddress, check_url, resolve


@pytest.mark.parametrize("url", ["https://example.com/hook?x=1", "http://8.8.8.8:8080/", "https://[2606:4700::1111]/"])
def test_public_addresses_may_be_called(url: str) -> None:
    assert check_url(url, private=False).geturl() == url


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/",
        "http://127.0.0.1:8283/",
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[fd00::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://0.0.0.0/",
        "http://224.0.0.1/",
    ],
)
def test_private_addresses_may_not_unless_allowed(url: str) -> None:
    with pytest.raises(ForbiddenAddress, match="private"):
        check_url(url, private=False)
    check_url(url, private=True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/hook",
        "ftp://example.com/",
        "file:///etc/passwd",
        "http://",
        "http://user:secret@example.com/",
        "http://example.com:99999/",
        "http://[::1/",
        "http://exa mple.com/",
        "http://example.com/\nX: y",
        "http://ex\u00e4mple.com/",
        "http://example.com/" + "x" * 2_000,
    ],
)
def test_what_is_no_address_is_refused_in_any_case(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        check_url(url, private=True)


async def test_a_name_for_a_private_address_is_found_out_when_it_is_looked_up() -> None:
    with pytest.raises(ForbiddenAddress, match="private"):
        await resolve("localhost", 80, private=False)
    assert await resolve("localhost", 80, private=True) in ("127.0.0.1", "::1")


async def test_numbers_in_other_spellings_are_found_out_too() -> None:
    check_url("http://2130706433/", private=False)  # a name, as far as a URL goes
    with pytest.raises(ForbiddenAddress, match="private"):
        await resolve("2130706433", 80, private=False)


async def test_an_unknown_name_is_said_so() -> None:
    with pytest.raises(ForbiddenAddress, match="could not be looked up"):
        await resolve("nowhere.invalid", 80, private=True)
