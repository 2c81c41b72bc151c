// What part of the plane is shown, and its ticks.

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20];

export function ticks(low, high, most) {
  const step = STEPS.find((s) => (high - low) / s <= most) ?? STEPS[STEPS.length - 1];
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n++) {
    found.push(Number((n * step).toFixed(6)));
  }
  return found;
}

// The view of the points, made large enough for the lines: where they are and where they were declared.
export function withLines(view, lines) {
  const update = Math.max(...lines.map((line) => line.update));
  const peak = Math.min(...lines.map((line) => line.peak));
  const right = Math.max(view.right, 1 + (update - 1) * 1.18, 1.02);
  return {
    left: Math.min(view.left, 1 - (right - 1) * 0.05),
    right,
    top: view.top,
    bottom: Math.max(0, Math.min(view.bottom, peak - 0.12)),
  };
}

// A threshold: `0.82`, `2.00`, and as many digits as it has up to four.
export function figure(value) {
  const [short, exact] = [value.toFixed(2), Number(value.toFixed(4)).toString()];
  return short.length > exact.length ? short : exact;
}

// A tick's bytes, as `megabytes` of recompute_core/gates.py has them without decimals that a tick lacks room
// for: `42.3 MB`, `1,234 MB`, from 10,000 MB on `12.3 GB`.
export function megabytes(mb) {
  if (mb >= 10_000) return `${(mb / 1000).toFixed(1)} GB`;
  return `${mb >= 100 ? Math.round(mb).toLocaleString("en-US") : mb.toPrecision(3)} MB`;
}
