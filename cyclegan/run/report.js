"use strict";
const KINDS = ["input", "output", "cycle"];
const find = (selector) => document.querySelector(selector);
const { items } = JSON.parse(find("script[type='application/json']").textContent);
const list = find("ol"), dialog = find("dialog"), slider = find("#epoch"), sort = find("#sort"), direction = find("#direction");
const distinct = (values) => [...new Set(values)];
const epochs = distinct(items.flatMap((item) => item.frames.map((frame) => frame.epoch))).sort((a, b) => a - b);
let shown = []; // the items on the page, in order
let enlarged = null; // the item in the dialog
let kind = 0; // index in KINDS of the image in the dialog

// Return the frame of an item at the chosen epoch, or the last one before it.
function frameOf(item) {
  return item.frames.findLast((frame) => frame.epoch <= epochs[slider.value]) ?? item.frames[0];
}

function imagesOf(item) {
  const frame = frameOf(item);
  const suffix = frame.epoch ? `, epoch ${frame.epoch}` : "";
  return KINDS.map((kind) =>
    kind === "input"
      ? { src: item.input, alt: `input: ${item.name}` }
      : { src: frame[kind], alt: `${kind}: ${item.name}${suffix}` });
}

function update(item) {
  const elements = item.card.querySelectorAll("img");
  imagesOf(item).forEach(({ src, alt }, i) => {
    elements[i].closest("figure").hidden = !src;
    elements[i].alt = alt;
    if (src && elements[i].getAttribute("src") !== src) elements[i].src = src;
  });
  const scores = Object.entries(frameOf(item).scores).map(([name, score]) => `${name} ${Number(score.toPrecision(3))}`);
  item.card.querySelector(".scores").textContent = scores.join(" · ");
}

function build(item) {
  item.card = find("template").content.firstElementChild.cloneNode(true);
  item.card.querySelector("bdi").textContent = item.name;
  item.card.querySelector(".direction").textContent = item.direction;
}

// ---- Sorting and filtering

const collator = new Intl.Collator(undefined, { numeric: true });
const byScore = (name, sign) => (a, b) => {
  const [p, q] = [a, b].map((item) => frameOf(item).scores[name]);
  return (p === undefined) - (q === undefined) || sign * (p - q); // items without the score come last
};
const orders = new Map([
  ["order", () => 0],
  ["order, reversed", (a, b) => b.index - a.index],
  ["name, A to Z", (a, b) => collator.compare(a.name, b.name)],
  ["name, Z to A", (a, b) => collator.compare(b.name, a.name)],
]);
for (const name of distinct(items.flatMap((item) => item.frames.flatMap((frame) => Object.keys(frame.scores))))) {
  orders.set(`${name}, lowest first`, byScore(name, 1));
  orders.set(`${name}, highest first`, byScore(name, -1));
}

function arrange() {
  shown = items.filter((item) => [item.direction, ""].includes(direction.value)).sort(orders.get(sort.value));
  if (shown.length !== list.childElementCount || shown.some((item, i) => item.card !== list.children[i])) {
    list.replaceChildren(...shown.map((item) => item.card));
  }
  find("[role=status]").textContent = `${shown.length} of ${items.length} shown`;
}

function setEpoch() {
  const epoch = epochs[slider.value];
  find("output").textContent = epoch;
  slider.setAttribute("aria-valuetext", `epoch ${epoch}`);
  items.forEach(update);
  arrange(); // the scores have changed
  if (dialog.open) showEnlarged();
}

// ---- The enlarged image

function showEnlarged() {
  const { src, alt } = imagesOf(enlarged)[kind];
  Object.assign(dialog.querySelector("img"), { src, alt });
  find("#caption").textContent = `${alt} (${enlarged.direction})`;
}

function changeKind(by) {
  const available = imagesOf(enlarged).map((image) => Boolean(image.src));
  do kind = (kind + by + KINDS.length) % KINDS.length;
  while (!available[kind]);
  showEnlarged();
}

function changeItem(by) {
  enlarged = shown[shown.indexOf(enlarged) + by] ?? enlarged;
  if (!imagesOf(enlarged)[kind].src) kind = 0;
  showEnlarged();
}

// ---- Keys

const changeEpoch = (by) => () => {
  slider.value = Number(slider.value) + by;
  setEpoch();
};
const EVERYWHERE = { "-": changeEpoch(-1), "+": changeEpoch(1), "=": changeEpoch(1) }; // "=" is "+" without Shift
const IN_DIALOG = {
  ...EVERYWHERE,
  ArrowLeft: () => changeKind(-1), ArrowRight: () => changeKind(1), Escape: () => dialog.close(),
  ArrowUp: () => changeItem(-1), ArrowDown: () => changeItem(1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  const act = (dialog.open ? IN_DIALOG : EVERYWHERE)[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
list.addEventListener("click", (event) => {
  const figure = event.target.closest("figure");
  if (!figure) return;
  enlarged = shown.find(({ card }) => card.contains(figure));
  kind = [...enlarged.card.querySelectorAll("figure")].indexOf(figure);
  showEnlarged();
  dialog.showModal();
});
dialog.addEventListener("click", (event) => IN_DIALOG[event.target.dataset.key]?.());
slider.addEventListener("input", setEpoch);
sort.addEventListener("change", arrange);
direction.addEventListener("change", arrange);

// ---- Start

slider.max = Math.max(0, epochs.length - 1);
slider.value = slider.max;
find(".epochs").hidden = find("#epoch-keys").hidden = epochs.length < 2;
items.forEach((item, index) => { item.index = index; build(item); });
sort.append(...[...orders.keys()].map((name) => new Option(name)));
const directions = distinct(items.map((item) => item.direction));
direction.append(...directions.map((name) => new Option(name)));
direction.closest("label").hidden = directions.length < 2;
setEpoch();
find(".controls").hidden = find("main").hidden = false;
