// What recompute_core/gates.py says of measured points, for the moments in which a line moves.
// Agrees with it on every point: tests/browser/test_tradeoff.py.

export function gateOutcome(low, high, limit) {
  return high <= limit ? "pass" : low > limit ? "fail" : "undecided";
}

// `parity` is the outcome of the gate that no line moves.
export function outcome(point, limits) {
  const gates = [
    point.parity,
    gateOutcome(point.peak_low, point.peak_high, limits.peak),
    gateOutcome(point.update_low, point.update_high, limits.update),
  ];
  if (gates.includes("fail")) return "fail";
  return gates.every((gate) => gate === "pass") ? "pass" : "undecided";
}
