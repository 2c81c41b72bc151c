"""What holds for every test of the core."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from recompute_core.studies.store import Store

# A busy machine makes an example slow, and that is no finding.
settings.register_profile(
    "core", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("core")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store, and a machine that no other test measures on."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    opened = Store(tmp_path)
    yield opened
    opened.close()
