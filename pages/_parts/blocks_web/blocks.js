// The block map under the hand: a click, Space or Enter takes a block in or out of the plan by hand, with
// Shift all from the one before. The arrow keys go from block to block: the map is one stop of the Tab key.
//
// The table comes from Python (pages/_parts/blocks.py), escaped, and is drawn anew after each choice.

const last = new WeakMap();

export default function show({ data, parentElement, setTriggerValue }) {
  const root = parentElement.querySelector(".rs-block-map");
  const picks = () => [...root.querySelectorAll("button[data-block]")];
  const held = root.contains(document.activeElement) ? document.activeElement.dataset.block : undefined;
  const top = root.firstElementChild?.scrollTop ?? 0;
  const left = root.firstElementChild?.scrollLeft ?? 0;
  if (root.rsMarkup !== data.markup) {
    root.rsMarkup = data.markup;
    root.innerHTML = data.markup;
    root.firstElementChild.scrollTop = top;
    root.firstElementChild.scrollLeft = left;
  }
  const reach = (pick, focus) => {
    for (const one of picks()) one.tabIndex = one === pick ? 0 : -1;
    if (focus) pick.focus({ preventScroll: false });
  };
  const at = picks().find((one) => one.dataset.block === (held ?? last.get(root)));
  if (at) reach(at, held !== undefined);

  const choose = (pick, several) => {
    const on = pick.getAttribute("aria-pressed") !== "true";
    const all = picks();
    const [here, before] = [all.indexOf(pick), all.findIndex((one) => one.dataset.block === last.get(root))];
    const [from, to] = several && before >= 0 ? [Math.min(here, before), Math.max(here, before)] : [here, here];
    const chosen = all.slice(from, to + 1);
    for (const one of chosen) {
      one.setAttribute("aria-pressed", String(on));
      one.closest("tr").classList.toggle("rs-picked", on);
    }
    root.rsMarkup = null; // what is seen is ahead of what Python has drawn
    last.set(root, pick.dataset.block);
    setTriggerValue("chosen", { blocks: chosen.map((one) => Number(one.dataset.block)), on });
  };
  root.onmousedown = (event) => {
    if (event.shiftKey) event.preventDefault(); // no text is marked
  };
  root.onclick = (event) => {
    const pick = event.target.closest("tr[data-block]")?.querySelector("button[data-block]");
    if (!pick) return;
    reach(pick, true);
    choose(pick, event.shiftKey);
  };
  root.onkeydown = (event) => {
    const all = picks();
    const here = all.indexOf(event.target);
    if (here < 0) return;
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined || !all[next]) return;
    event.preventDefault();
    reach(all[next], true);
  };
}
