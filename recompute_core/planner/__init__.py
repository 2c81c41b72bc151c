"""Which plan is best: what ops cost, what a block may do, how a chain of blocks shares its memory."""
