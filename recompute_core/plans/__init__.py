"""How to recompute: a plan names the blocks whose activations are thrown away and recomputed.

`names` turns a plan's name into block numbers (no torch); `apply` puts a plan on a model and takes
it off again. Plans below the level of blocks are not covered yet.
"""
