// Peak memory against update time, with both thresholds as lines that are dragged.
//
// All figures, names and words come from Python (pages/_parts/plotted.py). What is decided here is only
// what must follow the hand at once: where the lines are and what follows for each point's gates.
// The hand is told as `{seq, peak, update, picked}`; Python answers with the `seq` it has seen, and an
// answer to an earlier one moves nothing, so that a rerun never fights the hand.

import { bar, hollow, marks, node, svg } from "./drawing.js";
import { place, textWidth } from "./labels.js";
import { gateOutcome, outcome } from "./outcome.js";
import { figure, megabytes, ticks, withLines } from "./scales.js";

const WORDS = { pass: "passes every gate", fail: "fails a gate", undecided: "undecided" };
const STEP = 0.01;
const LARGE = 0.1;
const PAUSE_MS = 120;
const GIVE_UP_MS = 1500;
const MOST_NAMES = 40;
const MOST_LINES = 8; // more of them are thin
const ROOMY = 500; // px
const TITLE = 24; // px that the title of the axis takes, with room beside it
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";

const pictures = new WeakMap();

export default function show({ data, parentElement, setStateValue }) {
  let picture = pictures.get(parentElement);
  if (!picture) {
    picture = new Picture(parentElement.querySelector(".picture"));
    pictures.set(parentElement, picture);
  }
  picture.tell = (hand) => setStateValue("hand", hand);
  picture.receive(data);
  return () => {
    if (parentElement.isConnected) return; // an earlier run of this function that was overtaken
    picture.close();
    pictures.delete(parentElement);
  };
}

class Picture {
  constructor(root) {
    this.root = root;
    this.seq = -1;
    this.held = null; // "peak" or "update" while a pointer holds that line
    this.waiting = false; // for an answer
    this.more = false; // the hand has moved on since
    this.saidAt = 0;
    this.timer = 0;
    this.focusAt = 0;
    this.build();
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(root);
    this.escape = (event) => this.onEscape(event);
    document.addEventListener("keydown", this.escape);
  }

  close() {
    this.sizes.disconnect();
    clearTimeout(this.timer);
    document.removeEventListener("keydown", this.escape);
  }

  // --- what Python says, and what it is told ---------------------------------------------------------

  receive(data) {
    const other = !this.data || this.data.study !== data.study;
    if (other) {
      this.seq = data.seq;
      this.held = null;
    }
    this.data = data;
    this.root.classList.toggle("still", Boolean(data.still)); // only to be looked at
    if (data.seq >= this.seq) this.waiting = false;
    if (other || (!this.held && !this.more && !this.waiting)) {
      this.seq = data.seq;
      this.limits = { ...data.limits };
      this.picked = new Set(data.picked);
    }
    if (this.more && !this.waiting) this.say();
    this.draw();
  }

  // Tells Python where the hand is: one word at a time while it moves, the last one always.
  say(last = false) {
    clearTimeout(this.timer);
    const now = performance.now();
    const since = now - this.saidAt;
    if (!last && ((this.waiting && since < GIVE_UP_MS) || since < PAUSE_MS)) {
      this.more = true;
      this.timer = setTimeout(() => this.say(), (this.waiting ? GIVE_UP_MS : PAUSE_MS) - since);
      return;
    }
    this.seq += 1;
    this.saidAt = now;
    this.waiting = true;
    this.more = false;
    this.tell({ seq: this.seq, ...this.limits, picked: [...this.picked] });
  }

  // --- the lines ---------------------------------------------------------------------------------------

  move(gate, value) {
    const [low, high] = this.data.ends[gate];
    const declared = this.data.declared[gate];
    let at = Math.min(high, Math.max(low, Number(value.toFixed(2))));
    if (Math.abs(at - declared) < STEP / 2) at = declared;
    if (at === this.limits[gate]) return false;
    this.limits[gate] = at;
    return true;
  }

  onHold(gate, event) {
    if (event.button) return;
    event.preventDefault();
    const handle = this.handles[gate];
    handle.setPointerCapture(event.pointerId);
    handle.focus();
    this.hideTip();
    this.held = gate;
    this.heldAt = this.limits[gate];
    this.heldFrom = { x: event.clientX, y: event.clientY };
    this.pulling = false;
    // What is above may grow while a line moves: the hand is where it was when it took hold.
    this.heldIn = this.plot.getBoundingClientRect();
    this.root.classList.add("held");
  }

  onPull(gate, event) {
    if (this.held !== gate) return;
    const box = this.heldIn;
    const { left, right, top, bottom } = this.frame;
    const x = Math.min(right, Math.max(left, (event.clientX - box.left) / this.scale));
    const y = Math.min(bottom, Math.max(top, (event.clientY - box.top) / this.scale));
    if (this.move(gate, gate === "peak" ? this.peakAt(y) : this.updateAt(x))) {
      this.recolour();
      this.say();
    }
  }

  // Chromium knows no touch-action of what lies in an SVG. A finger that begins to move across a line pulls
  // it; one that moves along it scrolls the page, and the browser then takes it away.
  onFinger(gate, event) {
    const finger = event.touches[0];
    const [x, y] = [Math.abs(finger.clientX - this.heldFrom.x), Math.abs(finger.clientY - this.heldFrom.y)];
    if (this.held === gate && (this.pulling ||= gate === "peak" ? y > x : x > y)) event.preventDefault();
  }

  onRelease(gate) {
    if (this.held !== gate) return;
    this.held = null;
    this.root.classList.remove("held");
    this.say(true);
    this.draw();
  }

  // The browser has taken a finger away to scroll the page: the line was not meant.
  onCancel(gate) {
    if (this.held === gate) this.limits[gate] = this.heldAt;
    this.onRelease(gate);
  }

  onKey(gate, event) {
    const here = this.limits[gate];
    const step = event.shiftKey ? LARGE : STEP;
    const [low, high] = this.data.ends[gate];
    const to = {
      ArrowUp: here + step, ArrowRight: here + step, ArrowDown: here - step, ArrowLeft: here - step,
      PageUp: here + LARGE, PageDown: here - LARGE, Home: low, End: high,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    if (this.move(gate, to)) {
      this.draw();
      this.say();
    }
  }

  // --- the points ----------------------------------------------------------------------------------------

  pick(id, more) {
    if (this.data.still) return;
    const only = this.picked.size === 1 && this.picked.has(id);
    if (more) {
      if (!this.picked.delete(id)) this.picked.add(id);
    } else {
      this.picked = new Set(only ? [] : [id]);
    }
    this.say(true);
    this.fade();
  }

  onEscape(event) {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    this.hideTip();
    const at = event.target instanceof Element ? event.target : null;
    if (!this.picked?.size || at?.closest("input, textarea, [role=dialog], [role=combobox]")) return;
    this.picked.clear();
    this.say(true);
    this.fade();
  }

  // What the filters leave out fades and cannot be reached, but for what is picked.
  leftOut({ id, at, outcome: now }) {
    if (!id || this.picked.has(id)) return false;
    const { plans, marks: wanted } = this.data.filters;
    return (plans.length > 0 && !plans.includes(at.plan)) || (wanted.length > 0 && !wanted.includes(now));
  }

  onPointKey(event) {
    const spots = this.spots.filter((spot) => !spot.out || spot.node === event.target);
    const here = spots.findIndex((spot) => spot.node === event.target.closest("[data-spot]"));
    if (here < 0) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (spots[here].id) this.pick(spots[here].id, event.shiftKey || event.ctrlKey || event.metaKey);
      return;
    }
    const to = {
      ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here - 1, ArrowUp: here - 1,
      Home: 0, End: spots.length - 1,
    }[event.key];
    if (to === undefined || !spots[to]) return;
    event.preventDefault();
    spots[here].node.setAttribute("tabindex", "-1");
    spots[to].node.setAttribute("tabindex", "0");
    spots[to].node.focus();
    this.focusAt = this.spots.indexOf(spots[to]);
  }

  // --- drawing: once ---------------------------------------------------------------------------------------

  build() {
    this.legend = node("div", { class: "legend" });
    this.plot = svg("svg", { class: "plot", role: "group" });
    this.tip = node("div", { class: "tip", role: "tooltip", hidden: "" });
    this.aside = node("div", { class: "aside" });
    this.root.append(this.legend, this.plot, this.tip, this.aside);
    this.clip = svg("rect");
    const clip = svg("clipPath", { id: "inside" });
    clip.append(this.clip);
    this.layers = {};
    for (const name of ["grid", "region", "budget", "declared", "pareto", "lines", "handles", "out", "points", "names"]) {
      this.layers[name] = svg("g", { class: name });
    }
    this.plot.append(clip, ...Object.values(this.layers));
    this.layers.points.setAttribute("role", "listbox");
    this.layers.points.setAttribute("aria-label", "Candidates");
    this.layers.points.setAttribute("aria-multiselectable", "true");
    this.layers.out.setAttribute("aria-hidden", "true");
    // Points lie in groups that fade as a whole: a pile of them is not darker than one.
    this.piles = { out: this.layers.out };
    for (const name of ["dominated", "best", "picked"]) {
      this.piles[name] = svg("g", { class: `pile ${name}`, role: "none" });
      this.layers.points.append(this.piles[name]);
    }
    this.plain = svg("g", { class: "spot plain", "aria-hidden": "true" });
    this.plain.append(svg("path", { d: marks.plain }));
    this.layers.out.before(this.plain);
    this.region = svg("rect");
    this.regionName = svg("text", { class: "region-name" }, "adopt region");
    this.layers.region.append(this.region, this.regionName);
    this.handles = {};
    this.drawn = {};
    for (const gate of ["peak", "update"]) {
      const drawn = {
        declared: svg("line"), declaredName: svg("text"), line: svg("line"), name: svg("text"),
        grip: svg("rect", { class: "grip", rx: 3 }), catch: svg("rect", { class: "catch" }),
      };
      this.drawn[gate] = drawn;
      this.layers.declared.append(drawn.declared, drawn.declaredName);
      this.layers.lines.append(drawn.line, drawn.name);
      const handle = svg("g", {
        class: `handle ${gate}`, role: "slider", tabindex: 0, "data-gate": gate,
        "aria-label": gate === "peak" ? "Peak memory, at most" : "Update time, at most",
        "aria-orientation": gate === "peak" ? "vertical" : "horizontal",
      });
      handle.append(drawn.catch, drawn.grip);
      handle.addEventListener("pointerdown", (event) => this.onHold(gate, event));
      handle.addEventListener("pointermove", (event) => this.onPull(gate, event));
      handle.addEventListener("pointerup", () => this.onRelease(gate));
      handle.addEventListener("pointercancel", () => this.onCancel(gate));
      handle.addEventListener("touchmove", (event) => this.onFinger(gate, event), { passive: false });
      handle.addEventListener("keydown", (event) => this.onKey(gate, event));
      this.handles[gate] = handle;
      this.layers.handles.append(handle);
    }
    const points = this.layers.points;
    points.addEventListener("click", (event) => {
      const spot = this.spotOf(event.target);
      if (spot?.id) this.pick(spot.id, event.shiftKey || event.ctrlKey || event.metaKey);
    });
    points.addEventListener("keydown", (event) => this.onPointKey(event));
    for (const place of [points, this.aside]) {
      place.addEventListener("pointerover", (event) => this.showTip(this.spotOf(event.target)));
      place.addEventListener("pointerout", () => this.hideTip());
      place.addEventListener("focusin", (event) => this.showTip(this.spotOf(event.target)));
      place.addEventListener("focusout", () => this.hideTip());
    }
    this.aside.addEventListener("click", (event) => {
      const spot = this.spotOf(event.target);
      if (spot) this.pick(spot.id, event.shiftKey || event.ctrlKey || event.metaKey);
    });
  }

  // --- drawing: whenever figures, lines or the width are others ----------------------------------------

  draw() {
    if (!this.data || !this.root.clientWidth || this.held) return;
    // Letters and marks are larger where the demo is read from afar, but not where there is no room.
    this.scale = Math.min(this.data.scale ?? 1, Math.max(1, this.root.clientWidth / ROOMY));
    this.root.style.setProperty("--scale", this.scale);
    const width = Math.floor(this.root.clientWidth / this.scale);
    const narrow = width < 560;
    const height = this.data.height ? this.data.height / this.scale : narrow ? 400 : 500;
    this.view = withLines(this.data.view, [this.limits, this.data.declared]);
    this.heights = this.ticksUp();
    const widest = Math.max(0, ...this.heights.map(({ mb }) => textWidth(mb, FONT)));
    const beside = Math.max(narrow && !this.data.absolute ? 64 : 78, TITLE + widest + 8);
    this.root.style.setProperty("--left", `${beside}px`);
    this.frame = { left: beside, right: width - 18, top: 26, bottom: height - 60 };
    this.edge = this.view.right - 0.012 * (this.view.right - this.view.left);
    this.plot.setAttribute("width", width * this.scale);
    this.plot.setAttribute("height", height * this.scale);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.plot.setAttribute("aria-label", this.data.words);
    const { left, right, top, bottom } = this.frame;
    const inside = { x: left, y: top, width: right - left, height: bottom - top };
    for (const [name, value] of Object.entries(inside)) this.clip.setAttribute(name, value);
    this.drawLegend();
    this.drawGrid();
    this.drawBudget();
    this.drawPareto();
    const hadFocus = this.drawPoints();
    this.drawAside();
    this.recolour();
    this.drawNames();
    this.fade();
    if (hadFocus) this.spots[this.focusAt]?.node.focus();
  }

  x(update) {
    const { left, right } = this.frame;
    return left + ((update - this.view.left) / (this.view.right - this.view.left)) * (right - left);
  }

  y(peak) {
    const { top, bottom } = this.frame;
    return top + ((this.view.top - peak) / (this.view.top - this.view.bottom)) * (bottom - top);
  }

  updateAt(x) {
    const { left, right } = this.frame;
    return this.view.left + ((x - left) / (right - left)) * (this.view.right - this.view.left);
  }

  peakAt(y) {
    const { top, bottom } = this.frame;
    return this.view.top - ((y - top) / (bottom - top)) * (this.view.top - this.view.bottom);
  }

  drawLegend() {
    const items = Object.entries(WORDS).map(([kind, words]) => [kind, marks[kind], words]);
    items.push(["plain", marks.plain, "plain"]);
    if (this.data.points.some((point) => !point.best)) {
      items.push(["dominated", marks.pass, this.data.hidden ? "dominated: hidden" : "dominated"]);
    }
    const { plans, marks: wanted } = this.data.filters;
    if (plans.length || wanted.length) items.push(["out", marks.pass, "left out by the filters"]);
    items.push(["pareto", "M-8 -1H8V1H-8Z", "Pareto line"]);
    if (this.data.rings.length) items.push(["ring", hollow, `estimated at ${this.data.rings[0].shape}`]);
    this.legend.replaceChildren(
      ...items.map(([kind, path, words]) => {
        const mark = svg("svg", { viewBox: "-8 -8 16 16", class: `mark ${kind}`, "aria-hidden": "true" });
        mark.append(svg("path", { d: path }));
        const item = node("span", {});
        item.append(mark, words);
        return item;
      }),
    );
  }

  // The ratios that have a line of their own, and what each is in MB where there is one shape alone.
  ticksUp() {
    const { absolute } = this.data;
    return ticks(this.view.bottom, this.view.top, 8).map((at) => {
      if (!absolute) return { at, mb: "" };
      return { at, mb: megabytes(at * absolute.plain_mb) };
    });
  }

  drawGrid() {
    const { left, right, top, bottom } = this.frame;
    const found = [];
    const absolute = this.data.absolute;
    for (const at of ticks(this.view.left, this.view.right, Math.min(8, (right - left) / 70))) {
      const x = this.x(at);
      found.push(svg("line", { x1: x, x2: x, y1: top, y2: bottom }));
      found.push(svg("text", { x, y: bottom + 17, "text-anchor": "middle" }, at.toFixed(2)));
      if (absolute) {
        const ms = Math.round(at * absolute.plain_ms).toLocaleString("en-US");
        found.push(svg("text", { x, y: bottom + 32, "text-anchor": "middle", class: "soft" }, `${ms} ms`));
      }
    }
    for (const { at, mb } of this.heights) {
      const y = this.y(at);
      found.push(svg("line", { x1: left, x2: right, y1: y, y2: y }));
      found.push(svg("text", { x: left - 8, y: y + (absolute ? -1 : 4), "text-anchor": "end" }, at.toFixed(2)));
      if (mb) found.push(svg("text", { x: left - 8, y: y + 13, "text-anchor": "end", class: "soft" }, mb));
    }
    const across = "update time, ratio to plain";
    found.push(
      svg("text", { x: (left + right) / 2, y: bottom + (absolute ? 52 : 44), "text-anchor": "middle" }, across),
    );
    const middle = (top + bottom) / 2;
    const turned = { transform: `translate(13 ${middle}) rotate(-90)`, "text-anchor": "middle", class: "up" };
    found.push(svg("text", turned, "peak memory, ratio to plain"));
    this.layers.grid.replaceChildren(...found);
  }

  drawBudget() {
    const budget = this.data.budget;
    this.layers.budget.replaceChildren();
    if (!budget || budget.peak < this.view.bottom || budget.peak > this.view.top) return;
    const y = this.y(budget.peak);
    const { left, right } = this.frame;
    const below = budget.peak < this.limits.peak;
    this.layers.budget.append(
      svg("line", { x1: left, x2: right, y1: y, y2: y }),
      svg("text", { x: left + 8, y: below ? y + 14 : y - 5 }, budget.name),
    );
  }

  drawPareto() {
    const path = (line) => line.map(([u, p], i) => `${i ? "L" : "M"}${this.x(u)} ${this.y(p)}`).join("");
    this.layers.pareto.classList.toggle("many", this.data.pareto.length > MOST_LINES);
    this.layers.pareto.replaceChildren(
      ...this.data.pareto.map((line) => svg("path", { d: path(line), "clip-path": "url(#inside)" })),
    );
    if (this.data.rings.length) {
      const line = this.data.rings.map((ring) => [ring.update, ring.peak]);
      line.sort((a, b) => a[0] - b[0]);
      this.layers.pareto.append(
        svg("path", { d: path([[1, 1], ...line]), class: "found", "clip-path": "url(#inside)" }),
      );
    }
  }

  drawPoints() {
    const shown = this.data.points.filter((point) => point.best || !this.data.hidden);
    this.spots = [
      ...shown.map((point) => this.spot(point, point.id)),
      ...this.data.rings.map((ring) => this.spot(ring, null)),
    ];
    this.spots.sort((a, b) => a.at.update - b.at.update || a.at.peak - b.at.peak);
    // Whoever came to a point by other ways than the arrow keys stays there, too.
    const again = this.plot.getRootNode().activeElement?.dataset?.spot;
    this.focusAt = Math.min(Number(again ?? this.focusAt), Math.max(0, this.spots.length - 1));
    this.plain.setAttribute("transform", `translate(${this.x(1)} ${this.y(1)})`);
    this.spots.forEach((spot, number) => {
      spot.node.setAttribute("data-spot", number);
      spot.node.setAttribute("tabindex", number === this.focusAt ? 0 : -1);
    });
    for (const pile of Object.values(this.piles)) pile.replaceChildren();
    for (const spot of this.spots) if (!spot.id) this.seat(spot); // the others as soon as they are judged
    return again !== undefined;
  }

  spot(at, id) {
    const far = at.update > this.edge;
    const x = this.x(Math.min(at.update, this.edge));
    const y = this.y(at.peak);
    const group = svg("g", { role: "option", transform: `translate(${x} ${y})` });
    if (id) {
      const path = [];
      const { left, right, top, bottom } = this.frame;
      if (!far) path.push(bar(this.x(at.update_low) - x, this.x(at.update_high) - x, left - x, right - x));
      path.push(bar(this.y(at.peak_high) - y, this.y(at.peak_low) - y, top - y, bottom - y, true));
      if (path.join("")) group.append(svg("path", { d: path.join(""), class: "bars" }));
      group.append(svg("circle", { r: 11, class: "halo" }), svg("path", { class: "shape" }));
    } else {
      group.append(svg("circle", { r: 11, class: "halo" }), svg("path", { class: "shape", d: hollow }));
      group.setAttribute("class", "spot ring");
      group.setAttribute("aria-label", `${at.tip.join("; ")}`);
    }
    return { at, id, x, y, far, node: group, outcome: null };
  }

  drawAside() {
    const { aside, more } = this.data;
    if (!aside.length) {
      this.aside.replaceChildren();
      this.asides = [];
      return;
    }
    const list = node("ul", {});
    this.asides = aside.map((one, number) => {
      const mark = svg("svg", { viewBox: "-8 -8 16 16", class: `mark ${one.mark}`, "aria-hidden": "true" });
      mark.append(svg("path", { d: marks[one.mark] }));
      const name = node("b", {});
      name.textContent = one.name;
      const why = node("span", { class: "why" });
      why.textContent = one.why;
      const button = node("button", { type: "button", "data-aside": number });
      button.append(mark, name, why);
      const item = node("li", {});
      item.append(button);
      list.append(item);
      return { at: { name: one.name, tip: [one.name, one.sentence] }, id: one.id, node: button };
    });
    const head = node("div", { class: "head" });
    head.textContent = "Not in the picture: not measured in full";
    this.aside.replaceChildren(head, list);
    if (more) {
      const rest = node("div", { class: "head" });
      rest.textContent = `and ${more} more, in the table`;
      this.aside.append(rest);
    }
  }

  // --- drawing: while a line moves ---------------------------------------------------------------------

  recolour() {
    const { left, right, top, bottom } = this.frame;
    const { limits, data } = this;
    const x = Math.min(right, this.x(limits.update));
    const y = Math.min(bottom, this.y(limits.peak));
    const region = { x: left, y, width: Math.max(0, x - left), height: Math.max(0, bottom - y) };
    for (const [name, value] of Object.entries(region)) this.region.setAttribute(name, value);
    set(this.regionName, { x: left + 8, y: bottom - 8 });
    this.drawLine("update", x, { x1: x, x2: x, y1: top, y2: bottom });
    this.drawLine("peak", y, { x1: left, x2: right, y1: y, y2: y });
    for (const spot of this.spots) {
      if (!spot.id) continue;
      const now = outcome(spot.at, limits);
      if (spot.outcome !== now) {
        spot.outcome = now;
        const picked = this.picked.has(spot.id) ? " picked" : "";
        spot.node.setAttribute("class", `spot ${now}${picked}`);
        this.seat(spot);
        spot.node.setAttribute("data-outcome", now);
        spot.node.setAttribute("data-id", spot.id);
        spot.node.lastChild.setAttribute("d", marks[now]);
        spot.node.setAttribute("aria-label", `${spot.at.tip[0]}: ${WORDS[now]}; ${spot.at.tip.slice(1).join("; ")}`);
      }
    }
    this.root.classList.toggle("what-if", limits.peak !== data.declared.peak || limits.update !== data.declared.update);
  }

  drawLine(gate, at, line) {
    const { left, right, top, bottom } = this.frame;
    const drawn = this.drawn[gate];
    const value = this.limits[gate];
    const declared = this.data.declared[gate];
    const away = value !== declared;
    const vertical = gate === "update";
    set(drawn.line, { ...line, class: away ? "limit away" : "limit" });
    const words = `${away ? "what-if " : ""}${gate} ${figure(value)}`;
    drawn.name.textContent = words;
    drawn.name.setAttribute("class", away ? "away" : "");
    const flip = vertical && at + 12 + textWidth(words, `600 ${FONT}`) > right;
    const span = textWidth(words, `600 ${FONT}`) + 16;
    if (vertical) set(drawn.name, { x: flip ? at - 12 : at + 12, y: top + 11, "text-anchor": flip ? "end" : "start" });
    else {
      const end = this.besideTheOther(right - 14, span);
      const below = this.isTaken(end - span, end, at - 22, at - 2) && !this.isTaken(end - span, end, at + 2, at + 22);
      set(drawn.name, { x: end, y: below ? at + 16 : at - 7, "text-anchor": "end" });
    }
    const there = vertical ? this.x(declared) : this.y(declared);
    drawn.declared.style.display = drawn.declaredName.style.display = away ? "" : "none";
    set(drawn.declared, vertical
      ? { x1: there, x2: there, y1: top, y2: bottom } : { x1: left, x2: right, y1: there, y2: there });
    drawn.declaredName.textContent = `declared ${figure(declared)}`;
    if (vertical) {
      const side = there > at ? 1 : -1;
      set(drawn.declaredName, { x: there + 6 * side, y: top + 27, "text-anchor": side > 0 ? "start" : "end" });
    } else {
      const close = Math.abs(there - at) < 18;
      const x = this.besideTheOther(right - (close ? 160 : 14), 90);
      set(drawn.declaredName, { x, y: there > at ? there + 14 : there - 6, "text-anchor": "end" });
    }
    set(drawn.catch, vertical
      ? { x: at - 9, y: top - 20, width: 18, height: bottom - top + 20 }
      : { x: left, y: at - 9, width: right - left + 16, height: 18 });
    set(drawn.grip, vertical
      ? { x: at - 9, y: top - 20, width: 18, height: 14 } : { x: right + 2, y: at - 9, width: 14, height: 18 });
    const [low, high] = this.data.ends[gate];
    set(this.handles[gate], {
      class: `handle ${gate}${away ? " away" : ""}`,
      "aria-valuemin": low, "aria-valuemax": high, "aria-valuenow": value,
      "aria-valuetext": `${figure(value)} of plain, ${away ? `what-if; declared ${figure(declared)}` : "declared"}`,
    });
  }

  // Where words that end at `x` end instead, so that the line of the update time does not cross them.
  besideTheOther(x, width) {
    const line = this.x(this.limits.update);
    return x - width < line && line < x + 6 ? line - 8 : x;
  }

  // Whether a point or its interval lies there.
  isTaken(left, right, top, bottom) {
    return this.spots.some((spot) => {
      if (spot.y <= top || spot.y >= bottom) return false;
      const [from, to] = spot.id && !spot.far
        ? [this.x(spot.at.update_low), this.x(spot.at.update_high)] : [spot.x - 7, spot.x + 7];
      return from < right && to > left;
    });
  }

  seat(spot) {
    spot.out = this.leftOut(spot);
    const chosen = this.picked.has(spot.id) ? "picked" : spot.at.best === false ? "dominated" : "best";
    const pile = this.piles[spot.out ? "out" : chosen];
    if (spot.node.parentNode === pile) return;
    const focused = spot.node.getRootNode().activeElement === spot.node;
    pile.append(spot.node);
    if (focused && !spot.out) spot.node.focus();
    this.names?.find((one) => one.id === spot.id)?.node.classList.toggle("out", spot.out);
  }

  drawNames() {
    const { frame, limits, data } = this;
    const order = (spot) => (this.picked.has(spot.id) ? 0 : spot.far ? 1 : spot.id ? (spot.at.best ? 2 : 3) : 4);
    const spots = this.spots.filter((spot) => !spot.out).sort((a, b) => order(a) - order(b)).slice(0, MOST_NAMES);
    const points = spots.map((spot) => ({
      x: spot.x, y: spot.y,
      text: spot.far ? `${spot.at.name} ${spot.at.update.toFixed(2)} →`.trim() : spot.at.name,
    }));
    points.unshift({ x: this.x(1), y: this.y(1), text: "plain" });
    const bars = this.spots.filter((spot) => spot.id && !spot.far).map((spot) => [
      this.x(spot.at.update_low), spot.y - 2, this.x(spot.at.update_high), spot.y + 2,
    ]);
    if (data.budget) bars.push([frame.left, this.y(data.budget.peak) - 16, frame.left + 220, this.y(data.budget.peak) + 16]);
    const lines = [limits, data.declared].map((line) => ({ x: this.x(line.update), y: this.y(line.peak) }));
    const said = Object.values(this.drawn).flatMap((drawn) => [drawn.name, drawn.declaredName]);
    const fixed = [this.regionName, ...said].map((text) => text.getBBox());
    const kept = fixed.filter((box) => box.width).map((box) => [box.x, box.y, box.x + box.width, box.y + box.height]);
    const boxes = place(points, { ...frame, top: frame.top + 16 }, lines, bars, kept, FONT);
    this.names = boxes.flatMap((box, number) =>
      box ? [{ id: number ? spots[number - 1].id : null, node: svg("text", { x: box[0], y: box[1] + 12 }, points[number].text) }] : []);
    this.layers.names.replaceChildren(...this.names.map((name) => name.node));
  }

  fade() {
    const any = this.picked.size > 0;
    this.root.classList.toggle("picking", any);
    for (const spot of [...this.spots, ...this.asides]) {
      const picked = spot.id !== null && this.picked.has(spot.id);
      spot.node.classList.toggle("picked", picked);
      spot.node.setAttribute(spot.node.tagName === "BUTTON" ? "aria-pressed" : "aria-selected", picked);
    }
    for (const name of this.names) name.node.classList.toggle("picked", this.picked.has(name.id));
    for (const spot of this.spots) this.seat(spot);
    this.oneInTheTabOrder();
  }

  // The arrow keys lead to all others.
  oneInTheTabOrder() {
    const focused = this.plot.getRootNode().activeElement;
    if (focused?.dataset?.spot !== undefined) return; // a hand on a point stays where it is
    if (this.spots[this.focusAt]?.out) this.focusAt = Math.max(0, this.spots.findIndex((spot) => !spot.out));
    this.spots.forEach((spot, number) => {
      spot.node.setAttribute("tabindex", number === this.focusAt && !spot.out ? 0 : -1);
    });
  }

  // --- the words at a point ------------------------------------------------------------------------------

  spotOf(target) {
    const found = target.closest?.("[data-spot], [data-aside]");
    if (!found) return null;
    return found.dataset.aside === undefined ? this.spots[found.dataset.spot] : this.asides[found.dataset.aside];
  }

  showTip(spot) {
    if (!spot || this.held) return;
    const lines = [...spot.at.tip];
    if (spot.outcome) {
      const { at } = spot;
      const memory = gateOutcome(at.peak_low, at.peak_high, this.limits.peak);
      const latency = gateOutcome(at.update_low, at.update_high, this.limits.update);
      lines.splice(lines.length - 1, 0,
        `gradient parity: ${at.parity}, memory saving: ${memory}, update latency: ${latency}`);
    }
    this.tip.replaceChildren(...lines.map((line, number) => {
      const item = node(number ? "div" : "b", {});
      item.textContent = line;
      return item;
    }));
    this.tip.hidden = false;
    const box = spot.node.getBoundingClientRect();
    const home = this.root.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const middle = box.left + box.width / 2 - home.left;
    const left = middle + 14 + width < home.width ? middle + 14 : Math.max(0, middle - 14 - width);
    const under = box.top - home.top - height - 6;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${under > 0 ? under : box.bottom - home.top + 6}px`;
  }

  hideTip() {
    this.tip.hidden = true;
  }
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}
