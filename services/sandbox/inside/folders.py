"""Folders that untrusted code has filled: how much is in them, and how to get rid of them."""

import os
import stat


def within(folder: str, most_bytes: int, most_files: int) -> bool:
    """Whether a folder holds no more than this. Looks at no more than it has to."""
    files = size = 0
    waiting = [folder]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except OSError:
            continue  # gone meanwhile, or made unreadable: what is below it cannot be counted
        with entries:
            for entry in entries:
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                files += 1
                size += found.st_blocks * 512
                if size > most_bytes or files > most_files:
                    return False
                if stat.S_ISDIR(found.st_mode):
                    waiting.append(entry.path)
    return True


def remove(folder: str) -> None:
    """Remove a folder however deep, whatever its modes.

    What is deep is first moved up: no path gets longer, and nothing recurses.
    """
    moved = 0
    top = [folder]
    while top:
        current = top[-1]
        os.chmod(current, 0o700)
        below = []
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    moved += 1
                    up = f"{folder}.{moved}"
                    # The owner must be able to write into a folder to move it.
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, up)
                    below.append(up)
                else:
                    os.unlink(entry.path)
        os.rmdir(current)
        top.pop()
        top.extend(below)
