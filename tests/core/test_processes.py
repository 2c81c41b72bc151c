"""Processes start wherever temporary files lie."""

import os
import subprocess
import sys
from pathlib import Path

_START = """
import os, tempfile
from recompute_core.processes import fork_server
started = fork_server().Process(target=os.getpid)
started.start()
started.join()
print(started.exitcode, tempfile.gettempdir() == os.environ["TMPDIR"])
"""


def test_a_temporary_folder_whose_path_is_too_long_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("a" * 120)
    deep.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _START],
        env={**os.environ, "TMPDIR": str(deep)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("0 True\n", "")
