"""Which addresses a server may be sent to by its users. They must not reach what only the server can reach."""

import asyncio
import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

_MAX_URL = 2_000


class ForbiddenAddress(Exception):
    """The text says why, for the one who gave the address."""


def check_url(url: str, *, private: bool) -> SplitResult:
    """The parts of a URL that may be called. A name is only looked up when it is called: see `resolve`."""
    if len(url) > _MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise ForbiddenAddress(f"must be a URL of at most {_MAX_URL:,} printable ASCII characters")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ForbiddenAddress("is not a URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ForbiddenAddress("must begin with http:// or https:// and a host")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddress("must not contain credentials")
    if not private and (host == "localhost" or ((literal := _literal(host)) is not None and not _is_public(literal))):
        raise ForbiddenAddress("is a private address, which this server does not call")
    return parts


async def resolve(host: str, port: int, *, private: bool) -> str:
    """The address to connect to. Whoever connects must use it: asked again, a name may say something else."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise ForbiddenAddress(f"the name {host} could not be looked up") from None
    addresses = [str(each[4][0]) for each in found]
    if not private and not all(_is_public(ip_address(address)) for address in addresses):
        raise ForbiddenAddress(f"{host} is a private address, which this server does not call")
    return addresses[0]


def _literal(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    inner = getattr(address, "ipv4_mapped", None) or getattr(address, "sixtofour", None)
    return (inner or address).is_global and not address.is_multicast
