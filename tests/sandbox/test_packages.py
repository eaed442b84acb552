"""Requirements: real pip, real wheels from a local folder."""

import asyncio
import base64
import hashlib
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.sandbox.model import Job, Mode, Reason
from services.sandbox.packages import Packages, RequirementsRefused
from services.sandbox.sandbox import Sandbox
from tests.sandbox.rig import LIMITS

_USE = "import greeting\ndef f(): return greeting.WORD"


def _wheel(folder: Path, version: str, word: str) -> None:
    """A wheel that pip accepts, with one module."""
    info = f"greeting-{version}.dist-info"
    files = {
        "greeting.py": f"WORD = {word!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(folder / f"greeting-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    """Packages from a folder of wheels instead of an index."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    _wheel(wheels, "1.0", "hello")
    _wheel(wheels, "2.0", "good day")
    environ = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "OPENAI_API_KEY": "the server's"}
    made = Packages(tmp_path / "packages", environ)
    made.prepare()
    return made


@pytest.fixture(params=[True, False], ids=["namespaces", "plain"])
async def sandbox(request: pytest.FixtureRequest, packages: Packages) -> AsyncIterator[Sandbox]:
    """A sandbox that installs requirements."""
    made = Sandbox(LIMITS, mode=Mode.OFF, namespaces=request.param, packages=packages)
    await made.start()
    yield made
    await made.close()


async def test_versions_side_by_side(sandbox: Sandbox, packages: Packages) -> None:
    jobs = [Job(_USE, "f", requirements=(f"greeting=={version}",)) for version in ("1.0", "2.0", "1.0")]
    values = [result.value for result in await asyncio.gather(*map(sandbox.run, jobs))]
    assert values == ['"hello"', '"good day"', '"hello"']
    installed = [each for each in packages.folder.iterdir() if each.is_dir()]
    assert len(installed) == 2
    without = await sandbox.run(Job(_USE, "f"))
    assert "No module named 'greeting'" in without.error


async def test_code_cannot_change_what_is_installed(sandbox: Sandbox) -> None:
    source = "import greeting\ndef f(): open(greeting.__file__, 'w').write('x')"
    result = await sandbox.run(Job(source, "f", requirements=("greeting==1.0",)))
    assert result.reason is Reason.RAISED, result


async def test_a_package_that_is_not_there(sandbox: Sandbox, packages: Packages) -> None:
    result = await sandbox.run(Job(_USE, "f", requirements=("greeting==9.9",)))
    assert result.reason is Reason.REFUSED
    assert "cannot be installed" in result.error
    assert "9.9" in result.error
    assert not [each for each in packages.folder.iterdir() if each.is_dir()]


@pytest.mark.parametrize(
    "requirement",
    [
        "greeting",
        "greeting>=1",
        "--index-url=http://evil",
        "git+https://x/y",
        "./local==1",
        "a==1 --hash=x",
        "a==1\nb",
        "",
    ],
)
async def test_requirements_must_be_exact(packages: Packages, requirement: str) -> None:
    with pytest.raises(RequirementsRefused, match="name==version"):
        await packages.folder_of((requirement,))


async def test_an_install_that_takes_too_long(tmp_path: Path) -> None:
    packages = Packages(tmp_path / "packages", {"PIP_NO_INDEX": "1"}, seconds=0.01)
    packages.prepare()
    with pytest.raises(RequirementsRefused, match="longer than"):
        await packages.folder_of(("greeting==1.0",))
    assert not [each for each in packages.folder.iterdir() if each.is_dir()]


async def test_a_cancelled_caller_does_not_stop_the_installation(packages: Packages) -> None:
    first = asyncio.ensure_future(packages.folder_of(("greeting==1.0",)))
    await asyncio.sleep(0)
    second = asyncio.ensure_future(packages.folder_of(("greeting==1.0",)))
    await asyncio.sleep(0.05)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (Path(await second) / "greeting.py").exists()


async def test_closing_stops_it(packages: Packages) -> None:
    call = asyncio.ensure_future(packages.folder_of(("greeting==1.0",)))
    await asyncio.sleep(0.05)
    await packages.close()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not [each for each in packages.folder.iterdir() if each.is_dir()]
