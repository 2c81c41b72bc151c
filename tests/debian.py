"""Programs that the tests need and pip does not bring, from Debian's packages when run as root.

`python -m tests.debian`: all of them, or one line on what to install.
"""

import os
import shutil
import subprocess
import sys

_PACKAGES = {"openssl": "openssl", "node": "nodejs"}
"""Program -> the Debian package that holds it."""
_WELCOME = {"faketime": "faketime"}
"""The same, of what tests do without."""


def install(*packages: str) -> bool:
    """Install Debian packages; False where this machine or this user cannot. Never fails by itself."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=False, env=quiet)
    subprocess.run(["apt-get", "install", "-y", "-qq", *packages], check=False, env=quiet)
    return True


def main() -> None:
    """Make sure of OpenSSL and Node, with which the tests verify reports as strangers would, and of
    libfaketime, with which one puts a clock back, if it can be had."""
    wanted = _PACKAGES | _WELCOME
    missing = [package for program, package in wanted.items() if not shutil.which(program)]
    if missing:
        install(*missing)
    if still := [package for program, package in _PACKAGES.items() if not shutil.which(program)]:
        sys.exit(f"Missing for the tests of signed reports: install {' and '.join(still)}.")


if __name__ == "__main__":
    main()
