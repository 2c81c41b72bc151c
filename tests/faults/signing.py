"""SIGTERM and SIGKILL at a random moment of signing: there is a whole report or none."""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

from .ledger import Count
from .scene import VERDICTS, Said, Scene, ended, scene


def interrupted(chance: random.Random, times: int) -> Count:
    """One finished study, signed `times` times, each time stopped at another moment."""
    count = Count("stopped while signing")
    with scene() as here:
        assert ended(here.start_study()).code in VERDICTS
        before, study, key = here.finished(), here.study(), here.folder / "signer.key"
        assert study is not None
        here.extra = {"RECOMPUTE_KEY_PASSPHRASE": "correct horse battery"}
        made = json.loads(here.run("keys", "new", "--out", str(key), "--json", "-").out)
        trust = ("--name", "ann", "--yes", made["fingerprint"])
        assert here.run("keys", "trust", f"{key}.pub.pem", *trust).code == 0
        begun = time.monotonic()
        assert _signed(here, study, key, "whole").code in VERDICTS
        takes_s = time.monotonic() - begun
        for number in range(times):
            count.runs += 1
            out = here.folder / f"report-{number}"
            started = _start(here, study, key, out.name)
            time.sleep(chance.uniform(0.3, 1.0) * takes_s)
            count.injected += started.poll() is None
            started.send_signal(signal.SIGTERM if number % 2 else signal.SIGKILL)
            said = ended(started)
            count.tracebacks += not said.is_plain
            if out.exists():
                count.broken += here.run("verify", str(out)).code != 0
            if number % 2:  # who is asked to end tidies up
                count.broken += any(here.folder.glob(".*.part"))
        count.broken += _signed(here, study, key, "again").code not in VERDICTS
        count.lost += here.finished() != before
        count.orphans += here.orphans()
    return count


def _start(here: Scene, study: str, key: Path, out: str) -> "subprocess.Popen[str]":
    return here.start(
        *("report", study, "--candidate", "every-block"),
        *("--key", str(key), "--out", str(here.folder / out)),
    )


def _signed(here: Scene, study: str, key: Path, out: str) -> Said:
    return ended(_start(here, study, key, out))
