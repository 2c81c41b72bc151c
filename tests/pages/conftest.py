"""A store of its own for each test, and the app run from its main script."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from recompute_core.errors import StoreError
from recompute_core.studies.store import Store

FRAME = Path(__file__).parents[2] / "pages" / "_frame.py"
OpenPage = Callable[..., AppTest]


@contextlib.contextmanager
def store_at(home: Path) -> Iterator[Store]:
    """A store that the pages find through RECOMPUTE_HOME, on a machine with nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RECOMPUTE_HOME", str(home))
        patch.setattr(tempfile, "tempdir", str(home))
        opened = Store(home)
        yield opened
        opened.close()
        from pages._parts.data import get_store

        with contextlib.suppress(StoreError):
            get_store().close()
        st.cache_resource.clear()
        st.cache_data.clear()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    with store_at(tmp_path) as opened:
        yield opened


@pytest.fixture
def open_page(store: Store) -> OpenPage:
    """Opens a page, optionally with parameters in its address; fails on any exception."""

    def open_(page: str = "home", **params: str) -> AppTest:
        app = AppTest.from_file(str(FRAME), default_timeout=30)
        app.query_params.update(params)
        app.run()
        if page != "home":
            app.switch_page(f"{page}.py").run()
        assert not app.exception, [e.value for e in app.exception]
        return app

    return open_


@pytest.fixture
def secrets(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes a file that Streamlit reads its secrets from."""
    before = st.get_option("secrets.files")
    path = tmp_path / "secrets.toml"

    def write(text: str) -> Path:
        path.write_text(text)
        st.config.set_option("secrets.files", [str(path)])
        st.secrets._reset()  # it keeps what it has read
        return path

    yield write
    st.config.set_option("secrets.files", before)
    st.secrets._reset()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Studies that a page started; none of them gets a driver."""
    started: list[str] = []

    def resume(store: Store, study: str) -> None:
        started.append(study)

    monkeypatch.setattr("recompute_core.studies.launch.resume", resume)
    return started
