// A button that copies the address it was given. Where the browser refuses, on a page without https or by
// its user's wish, the address is shown, selected, to be copied by hand.

const COPIED_MS = 2500;
const timers = new WeakMap();

export default function show({ data, parentElement }) {
  const [button, said, box] = parentElement.querySelector(".rs-copy").children;
  box.value = data.link;
  button.onclick = async () => {
    clearTimeout(timers.get(button));
    const copied = await copy(data.link);
    box.hidden = copied;
    button.textContent = copied ? "Copied" : "Copy link";
    said.textContent = copied ? "Copied" : "Not copied: the address is beside the button.";
    if (copied) timers.set(button, setTimeout(() => { button.textContent = "Copy link"; }, COPIED_MS));
    else box.select();
  };
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
