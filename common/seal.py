"""Seals what must never be read from the database: provider keys, agents' secrets, headers of tool servers.

AES-GCM with one key for all nodes. What is sealed is bound to its place (`where`), so that a row copied over another
one does not open.
"""

import base64
import hashlib
import hmac
import os
import stat
from pathlib import Path
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from common.errors import SecretKeyMissing, SecretKeyWrong
from common.startup import StartupError

_VERSION: Final = b"\x01"
_NONCE: Final = 12


class Seal(Protocol):
    """Makes texts unreadable, and readable again."""

    def seal(self, text: str, where: str) -> bytes:
        """What may be stored."""
        ...

    def open(self, sealed: bytes, where: str) -> str:
        """What was sealed for this place."""
        ...

    def derive(self, purpose: str) -> bytes:
        """Another key, always the same for one purpose, from which this one cannot be found."""
        ...


class KeySeal:
    """With a key. Any text is a key; a long random one is a good key."""

    def __init__(self, key: str) -> None:
        self._key = hashlib.sha256(key.encode()).digest()
        self._cipher = AESGCM(self._key)

    def seal(self, text: str, where: str) -> bytes:
        """What may be stored: version, nonce, ciphertext."""
        nonce = os.urandom(_NONCE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, text.encode(), where.encode())

    def open(self, sealed: bytes, where: str) -> str:
        """What was sealed for this place. SecretKeyWrong if it was sealed with another key."""
        nonce, box = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
        try:
            return self._cipher.decrypt(nonce, box, where.encode()).decode()
        except (InvalidTag, ValueError):
            raise SecretKeyWrong(where) from None

    def derive(self, purpose: str) -> bytes:
        """Another key for one purpose."""
        return hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()


class NoSeal:
    """Without a key nothing secret is stored, and nothing stored can be read."""

    def seal(self, text: str, where: str) -> bytes:
        """Refuses."""
        raise SecretKeyMissing

    def open(self, sealed: bytes, where: str) -> str:
        """Refuses."""
        raise SecretKeyMissing

    def derive(self, purpose: str) -> bytes:
        """Refuses."""
        raise SecretKeyMissing


def seal_for(key: str, folder: Path | None) -> Seal:
    """With the key that is set; else with one that is kept in the folder, where that folder is the whole server's."""
    if key:
        return KeySeal(key)
    return NoSeal() if folder is None else KeySeal(_kept_key(folder / "secret.key"))


def _kept_key(path: Path) -> str:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = base64.b64encode(os.urandom(32))
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR), "wb") as file:
                file.write(made)
        except FileExistsError:
            pass
        key = path.read_text().strip()
    except OSError as error:
        raise StartupError(f"{path}: {error.strerror}; this file keeps the key of stored secrets") from None
    if not key:
        raise StartupError(
            f"{path} is empty; it keeps the key of stored secrets. Put the key back, or remove the file."
        )
    return key
