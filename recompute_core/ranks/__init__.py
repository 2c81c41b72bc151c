"""Training over several ranks: what it must compute, and what it costs, on this machine.

`reference` computes in one process, without any distributed code, what data parallel training computes.
`launch` runs a module of ours in fresh processes, one a rank, under torch's elastic launcher, of which a
study's is `studies.rank_member`; `team` what the ranks tell each other, `wrapped` the model inside
DDP or FSDP2. Covers one machine; no pipeline, tensor or context parallelism, no mixed precision of
FSDP2's own, and no join of ranks with unequal work.
"""
