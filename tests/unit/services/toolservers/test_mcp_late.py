"""services/toolservers/mcp_late.py: who needs no MCP does not pay for it."""

import subprocess
import sys

from tests.helpers.server import ROOT, environment

_CODE = "import sys, services.app; print({'mcp', 'mcp_types'} & set(sys.modules))"


def test_a_server_starts_without_the_package() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _CODE], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
