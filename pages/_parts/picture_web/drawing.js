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
