"""How a study runs: the store, admission, the driver and its worker processes.

Importing this room does not import torch; only a worker does, in a process of its own.
"""
