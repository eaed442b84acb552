"""The data folder: made when missing, refused when unusable, owned by one server at a time."""

import fcntl
from pathlib import Path

from common.startup import StartupError


class DataDirError(StartupError):
    """The data folder cannot be used."""


def make_folder(folder: Path) -> None:
    """Make the folder, readable by nobody else, or say in one line why not."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataDirError(f"cannot make the data folder {folder}: {error.strerror}") from error


class FolderLock:
    """An exclusive lock on a data folder. The kernel drops it with the process: kill -9 leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        try:
            self._file = (folder / "lock").open("a")
        except OSError as error:
            raise DataDirError(f"cannot write to the data folder {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise DataDirError(f"the data folder {folder} is in use by another server") from error

    def release(self) -> None:
        """Let another server have the folder. Once more does nothing."""
        self._file.close()
