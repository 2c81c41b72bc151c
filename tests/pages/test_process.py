"""The process that serves the pages never loads torch, and the app's own additions to it."""

import asyncio
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from starlette.requests import Request

ROOT = Path(__file__).parents[2]

_EVERY_PAGE = """
import sys
from streamlit.testing.v1 import AppTest
app = AppTest.from_file("pages/_frame.py", default_timeout=60).run()
for page in ("setup", "live", "tradeoff", "reinvest", "decision", "verify", "studies"):
    app.switch_page(f"{page}.py").run()
    assert not app.exception, app.exception
import app as entry
loaded = sorted(name for name in sys.modules if name.split(".")[0] in ("torch", "kornia", "sklearn"))
print("loaded:", loaded)
"""


def test_no_page_imports_torch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EVERY_PAGE],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "RECOMPUTE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip().endswith("loaded: []"), done.stdout + done.stderr


def test_the_policy_allows_the_inline_scripts_of_streamlit_and_no_others() -> None:
    import app

    policy = app.content_security_policy()
    assert "'unsafe-eval'" not in policy
    assert "frame-src 'none'" in policy.split("; ") and "frame-ancestors 'none'" in policy.split("; ")
    assert policy.count("'sha256-") >= 1
    assert app.inline_script_hashes("<script>1</script><script src=x></script>") == [
        "'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='"
    ]


def test_healthz_tells_of_torch() -> None:
    import app

    # In a thread of its own: a browser driven earlier in this process leaves its event loop running.
    with ThreadPoolExecutor(1) as apart:
        answered = apart.submit(lambda: asyncio.run(app.healthz(Request({"type": "http"}))))
    answer = json.loads(answered.result().body)
    assert answer["status"] == "ok"
    assert answer["torch_loaded"] is ("torch" in sys.modules)
