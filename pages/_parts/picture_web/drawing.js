// Elements, and the shapes of marks in a box from -8 to 8: disc, cross, diamond, square, ring.

export function svg(tag, attributes = {}, text = null) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, text);
}

export function node(tag, attributes) {
  return filled(document.createElement(tag), attributes, null);
}

function filled(element, attributes, text) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

export const hollow = "M0 -5.5A5.5 5.5 0 1 1 0 5.5A5.5 5.5 0 1 1 0 -5.5Z";

export const marks = {
  pass: "M0 -6A6 6 0 1 1 0 6A6 6 0 1 1 0 -6Z",
  fail: "M-6 -3.4L-3.4 -6L0 -2.6L3.4 -6L6 -3.4L2.6 0L6 3.4L3.4 6L0 2.6L-3.4 6L-6 3.4L-2.6 0Z",
  undecided: "M0 -7L7 0L0 7L-7 0Z",
  plain: "M-5 -5H5V5H-5Z",
};

// An interval from `from` to `to`, across or `up` and down, with a cap at each end; an end that lies beyond
// `first` or `last`, where the picture ends, is an arrow there.
export function bar(from, to, first, last, up = false) {
  if (to - from <= 1) return "";
  const move = (along, aside) => (up ? `${aside} ${along}` : `${along} ${aside}`);
  const cap = (at) => `M${move(at, -3)}L${move(at, 3)}`;
  const arrow = (at, back) => `M${move(at + back, -4)}L${move(at, 0)}L${move(at + back, 4)}`;
  const start = from < first ? arrow(first, 6) : cap(from);
  const end = to > last ? arrow(last, -6) : cap(to);
  return `M${move(Math.max(from, first), 0)}L${move(Math.min(to, last), 0)}${start}${end}`;
}
