"""How to recompute: a plan is a tuple of regions, each recomputed as one: a block, a part of one, or
several blocks, of which some ops' outputs may be kept.

`anatomy` knows a workload's modules by name, `names` turns a plan's name into regions, `custom` checks
plans that are given as data (no torch in these three); `apply` puts a plan on a model and takes it off
again.
"""
