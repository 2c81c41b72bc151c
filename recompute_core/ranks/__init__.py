"""Training over several ranks: what it must compute, and what it costs, on this machine.

`reference` computes in one process, without any distributed code, what data parallel training computes.
`launch` runs the phases that involve updates in fresh processes, one a rank, under torch's elastic
launcher; `member` is such a process, `team` what the ranks tell each other, `wrapped` the model inside
DDP or FSDP2. Covers one machine; no pipeline, tensor or context parallelism, no mixed precision of
FSDP2's own, and no join of ranks with unequal work.
"""
