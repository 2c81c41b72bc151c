"""What recomputing saves and costs: saved bytes, peak, timeline, step time, FLOPs."""
