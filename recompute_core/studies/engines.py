"""Which engine a study asks for, and whether it can be had here. Ray is imported only by its own."""

import os
import socket
from importlib.util import find_spec
from pathlib import Path

from ..errors import EngineError, InputError
from ..spec import StudySpec
from .engine import Engine
from .local_engine import LocalEngine

ADDRESS = "RAY_ADDRESS"
"""Ray's own variable: the cluster's address, HOST:PORT or `auto` for the one that this machine is of."""
_FOR_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_py_gcs_connect_timeout_s": "5",
}
_PATIENCE_S = 3.0


def engine_for(spec: StudySpec, log: Path) -> Engine:
    """What a study's cells are started with; raises EngineError where it cannot be had."""
    if spec.engine == "local":
        return LocalEngine(log)
    try:
        address = check_engine(spec)
    except InputError as error:
        raise EngineError(str(error)) from None
    os.environ.update(_FOR_RAY)  # it reads them as it is imported
    from .ray_engine import RayEngine

    return RayEngine(address or "auto", spec.device, spec.ranks.count if spec.ranks else 1, log)


def is_configured() -> bool:
    """Whether the operator has named a Ray cluster, and Ray is installed."""
    return bool(os.environ.get(ADDRESS)) and find_spec("ray") is not None


def check_engine(spec: StudySpec) -> str | None:
    """Raises InputError when a study's engine cannot be used from here; the cluster's address, if any.

    Connects to HOST:PORT once, and to nothing else: whether a cluster answers there is found out by
    whoever drives the study.
    """
    if spec.engine == "local":
        return None
    if find_spec("ray") is None:
        raise InputError("engine ray: Ray is not installed; pip install -r requirements-ray.txt")
    if spec.device == "mps":
        raise InputError("engine ray: a cluster has no mps; choose auto, cpu, cuda or xpu as device")
    address = os.environ.get(ADDRESS, "")
    if not address:
        raise InputError(
            "engine ray: which cluster? Give --address HOST:PORT, or auto for the one that this machine "
            f"is of, or set {ADDRESS}"
        )
    if address == "auto":
        return address
    host, _, port = address.rpartition(":")
    if "/" in address or not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise InputError(
            f"engine ray: the address {address[:80]!r} is neither HOST:PORT nor auto (a driver runs on "
            "a machine of the cluster, so ray:// is not for it)"
        )
    if why := answers(address):
        raise InputError(f"engine ray: no cluster answers at {address}: {why}")
    return address


def answers(address: str) -> str | None:
    """None where something answers at HOST:PORT, or else why it does not."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
