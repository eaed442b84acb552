"""The data folder and its lock."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from common.db.folder import DataDirError, FolderLock, make_folder


def test_a_missing_folder_is_made_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    FolderLock(folder).release()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirError, match=r"cannot make the data folder .*file/data: Not a directory"):
        make_folder(tmp_path / "file" / "data")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    # A lock that is a folder stands for missing permission, which root never misses.
    (tmp_path / "lock").mkdir()
    with pytest.raises(DataDirError, match="cannot write to the data folder"):
        FolderLock(tmp_path)


def test_the_second_owner_is_refused_until_the_first_lets_go(tmp_path: Path) -> None:
    first = FolderLock(tmp_path)
    with pytest.raises(DataDirError, match="in use by another server"):
        FolderLock(tmp_path)
    first.release()
    first.release()
    FolderLock(tmp_path).release()


def test_a_killed_owner_leaves_no_lock(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from common.db.folder import FolderLock\n"
        "lock = FolderLock(Path(sys.argv[1])); print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"locked\n"
        with pytest.raises(DataDirError):
            FolderLock(tmp_path)
        owner.kill()
    FolderLock(tmp_path).release()
