"""Is it safe to recompute? Reference update, noise floor, legality, canary and parity."""
