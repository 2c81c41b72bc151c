// Where the names beside points go, so that none covers another, a point or a line. In pixels.
// Much as pages/_parts/labels.py, which places them for Plotly without knowing the width.

const LINE = 15;
const PLACES = [
  [1, -1], [1, 1], [-1, -1], [-1, 1], [1, 0], [-1, 0], [0, -1], [0, 1],
];

const canvas = document.createElement("canvas").getContext("2d");
const widths = new Map();

export function textWidth(text, font) {
  const key = `${font} ${text}`;
  if (!widths.has(key)) {
    canvas.font = font;
    widths.set(key, canvas.measureText(text).width);
  }
  return widths.get(key);
}

function boxAt([side, height], x, y, width) {
  const left = side > 0 ? x + 9 : side < 0 ? x - 9 - width : x - width / 2;
  const top = height < 0 ? y - 8 - LINE : height > 0 ? y + 7 : y - LINE / 2;
  return [left, top, left + width, top + LINE];
}

const overlap = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// `points`: {x, y, text}, most important first. `lines`, {x, y}, and `bars`, boxes, are kept clear of where
// that is possible, bars the sooner given up; `fixed` boxes always. Gives a box for each point, or null
// where there is no room.
export function place(points, frame, lines, bars, fixed, font) {
  const marks = points.map(({ x, y }) => [x - 7, y - 7, x + 7, y + 7]);
  const taken = [...fixed];
  return points.map((point, number) => {
    if (!point.text) return null;
    const width = textWidth(point.text, font);
    const crosses = (box) =>
      lines.some((line) => (box[0] < line.x && line.x < box[2]) || (box[1] < line.y && line.y < box[3]));
    const clear = (box, avoided, over) =>
      box[0] >= frame.left && box[2] <= frame.right && box[1] >= frame.top && box[3] <= frame.bottom &&
      (over || !crosses(box)) &&
      !marks.some((mark, other) => other !== number && overlap(box, mark)) &&
      !avoided.some((other) => overlap(box, other));
    for (const [avoided, over] of [[[...taken, ...bars], false], [taken, false], [taken, true]]) {
      const boxes = PLACES.map((at) => boxAt(at, point.x, point.y, width));
      const box = boxes.find((one) => clear(one, avoided, over));
      if (box) {
        taken.push(box);
        return box;
      }
    }
    return null;
  });
}
