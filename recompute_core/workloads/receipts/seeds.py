"""Random streams named by what they are for, the same in every process."""

import hashlib

import numpy as np


def stream(*name: str | int) -> np.random.Generator:
    """A generator seeded from the SHA-256 of `name`, such as `("photo", 17, 2)`."""
    text = "receipts/" + "/".join(str(part) for part in name)
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest(), "big"))
