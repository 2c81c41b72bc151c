"""What the launching process hears of rank 0, without ranks."""

import os
from pathlib import Path
from typing import Any

from recompute_core.ranks import launch, meeting


def test_who_keeps_rank_0s_pipe_open_keeps_nobody_waiting(tmp_path: Path) -> None:
    """As a process does that rank 0 forked. Of a line that it died in the middle of nothing is said."""
    heard: list[tuple[str, dict[str, Any]]] = []
    with launch._heard(tmp_path, lambda kind, **data: heard.append((kind, data))):
        kept = os.open(meeting.said(tmp_path), os.O_WRONLY)
        os.write(kept, b'{"kind": "start", "phase": "noise"}\n{"kind": "do')
    os.close(kept)
    assert heard == [("start", {"phase": "noise"})]
