"use strict";
const KINDS = ["input", "output", "cycle"];
const find = (selector) => document.querySelector(selector);
const { items, run } = JSON.parse(find("script[type='application/json']").textContent);
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

// ---- The run

const MIN_SPAN = 0.05; // of an axis, as a share of its largest value
const SVG = find("svg").namespaceURI;
const SPLITS = { steps: "training steps", train: "training", test: "held-out" };
const GROUPS = {
  errors: "errors: mean absolute difference of images in [-1, 1]",
  losses: "losses (no unit)",
  scores: "scores: FID, KID",
};

// Return a new element with a text and attributes.
function element(name, text = "", attributes = {}, namespace = document.body.namespaceURI) {
  const made = document.createElementNS(namespace, name);
  made.textContent = text;
  Object.entries(attributes).forEach((pair) => made.setAttribute(...pair));
  return made;
}

const short = (value) => String(value && Math.abs(value) < 1e-3 ? value.toExponential(0) : Number(value.toPrecision(3)));

// Draw the curves of a metric over the epochs; the axis leaves out the highest values of a long curve, and marks them.
function panel({ title, lines }, changes) {
  const points = Object.values(lines).flat(), width = 300, height = 150, left = 50, bottom = 20;
  const sorted = points.map(([, y]) => y).sort((a, b) => a - b);
  const least = sorted[0], top = sorted[Math.ceil(0.98 * (sorted.length - 1))];
  const span = MIN_SPAN * Math.max(Math.abs(least), Math.abs(top)) || 1e-3; // noise that is small must not look steep
  const added = Math.max(0, span - (top - least)) / 2, low = least - added, high = top + added;
  const last = Math.max(1, ...points.map(([x]) => x));
  const x = (epoch) => left + (epoch / last) * (width - left - 8);
  const y = (value) => 8 + (1 - Math.max(0, Math.min(1.05, (value - low) / (high - low)))) * (height - bottom - 8);
  const drawn = element("svg", "", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title }, SVG);
  const add = (...parts) => drawn.append(element(...parts, SVG));
  for (const value of [low, (low + high) / 2, high]) {
    add("path", "", { class: "grid", d: `M${left} ${y(value)}H${width - 8}` });
    add("text", short(value), { x: left - 5, y: y(value) + 4, "text-anchor": "end" });
  }
  for (const share of [0, 0.5, 1]) {
    add("text", short(share * last), { x: x(share * last), y: height - 5, "text-anchor": share === 1 ? "end" : "middle" });
  }
  add("text", "epoch", { x: x(last / 4), y: height - 5, "text-anchor": "middle" });
  for (const [epoch] of changes.filter(([epoch]) => epoch > 0 && epoch <= last)) {
    add("path", "", { class: "change", d: `M${x(epoch).toFixed(1)} 8V${height - bottom}` });
  }
  for (const split of Object.keys(SPLITS)) {
    const path = lines[split].map(([epoch, value], i) => `${i ? "L" : "M"}${x(epoch).toFixed(1)} ${y(value).toFixed(1)}`);
    add("path", "", { class: split, d: path.length === 1 ? `${path[0]}h2` : path.join("") });
    const peaks = lines[split].filter(([, value]) => value > high);
    add("path", "", { class: `peak ${split}`, d: peaks.map(([epoch]) => `M${x(epoch).toFixed(1)} 0l3 5h-6z`).join("") });
  }
  const figure = element("figure"), caption = element("figcaption", `${title} `);
  for (const [split, name] of Object.entries(SPLITS)) {
    if (lines[split].length) {
      caption.append(element("span", `${name} ${short(lines[split].at(-1)[1])} `, { class: `key ${split}` }));
    }
  }
  const highest = sorted[sorted.length - 1];
  if (highest > high) caption.append(element("span", `▲ above the axis, up to ${short(highest)}`));
  figure.append(caption, drawn);
  return figure;
}

function showRun() {
  const { progress, curves, changes = [], settings, changed, log, warnings = [] } = run;
  const { state, epoch, epochs, step, left, speed, time } = progress;
  const written = () => {
    const age = Math.max(0, Math.round(Date.now() / 1000 - time));
    return age < 900 ? `written ${age} s ago` : `not written for ${Math.round(age / 60)} minutes: was it killed?`;
  };
  const parts = [state, `epoch ${epoch} of ${epochs}`, `step ${step}`, left && `${left} left`, speed].filter(Boolean);
  const say = () => { find("#state").textContent = [...parts, state === "training" ? written() : ""].filter(Boolean).join(" · "); };
  say();
  Object.assign(find("progress"), { max: epochs, value: epoch });
  find("#warnings").append(...warnings.map((text) => element("li", text)));
  find("#warnings").hidden = !warnings.length;
  for (const group of distinct(curves.map((curve) => curve.group))) {
    const panels = element("div", "", { class: "panels" }), details = element("details");
    panels.append(...curves.filter((curve) => curve.group === group).map((curve) => panel(curve, changes)));
    details.append(element("summary", GROUPS[group]), panels);
    if (group === "scores") panels.before(element("p", run.scores));
    details.open = group === "errors" || !curves.some((curve) => curve.group === "errors");
    find("#curves").append(details);
  }
  find("#changes ul").append(...changes.map(([, text]) => element("li", text)));
  find("#changes").hidden = !changes.length;
  find("#log").textContent = log.join("\n");
  for (const [i, [name, value]] of Object.entries(settings).entries()) {
    const row = element("div", "", { class: i < changed ? "changed" : "" });
    row.append(element("dt", `${name} `), element("dd", value));
    find("#settings").append(row);
  }
  find("#run").hidden = false;
  if (state === "training") {
    setInterval(say, 1000);
    setInterval(reload, 20000);
  }
}

// Load the page again with the same choices, unless somebody looks at an enlarged image, or nobody looks.
function reload() {
  if (dialog.open || document.hidden) return;
  const opened = [...document.querySelectorAll("details")].map((each) => each.open);
  const epoch = slider.value === slider.max ? "" : slider.value;
  history.replaceState([sort.value, direction.value, epoch, ...opened], "");
  location.reload();
}

// ---- Start

slider.max = Math.max(0, epochs.length - 1);
slider.value = slider.max;
find(".epochs").hidden = find("#epoch-keys").hidden = epochs.length < 2;
items.forEach((item, index) => { item.index = index; build(item); });
sort.append(...[...orders.keys()].map((name) => new Option(name)));
const directions = distinct(items.map((item) => item.direction));
direction.append(...directions.map((name) => new Option(name)));
direction.closest("label").hidden = directions.length < 2;
if (run) showRun();
if (history.state) {
  const [order, way, epoch, ...opened] = history.state;
  Object.assign(sort, { value: order }), Object.assign(direction, { value: way });
  if (epoch) slider.value = epoch;
  document.querySelectorAll("details").forEach((each, i) => { each.open = opened[i]; });
}
setEpoch();
find(".controls").hidden = find("main").hidden = false;
