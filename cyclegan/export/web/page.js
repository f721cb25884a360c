// The page: choose an image, translate it there and back, show the images.
import { ImageError, decode, toImageData, toNumbers } from "./image.js";
import { prepare, stop, translate } from "./translator.js";

const find = (selector) => document.querySelector(selector);
const settings = await (await fetch("networks.json")).json();
const runtime = new URL(settings.runtime, location.href).href;
const DEVICES = { webgpu: "WebGPU", wasm: "WebAssembly" };
const [fileInput, direction, side, divider, bar] = ["#file", "#direction", "#side", "#divider", "#bar"].map(find);
let chosen = null; // {file, name}
let latest = 0; // number of the latest translation; earlier ones show nothing

// ---- Translating

async function show() {
  if (!chosen) return;
  const number = ++latest;
  stop();
  setBusy(true);
  find("#error").textContent = "";
  try {
    await translateChosen(() => number === latest);
  } catch (error) {
    if (number !== latest) return;
    if (error.name === "AbortError") setStatus("Stopped.");
    else fail(error instanceof ImageError ? error.message : sentence(error));
  } finally {
    if (number === latest) setBusy(false);
  }
}

function sentence(error) {
  return /[.!?]$/.test(error.message) ? error.message : `${error.message}.`;
}

async function translateChosen(isLatest) {
  const { file, name } = chosen;
  const there = settings.directions[direction.value];
  const back = settings.directions.find((other) => other !== there);
  setStatus("Reading the image");
  find("#result").hidden = true;
  const canvas = await decode(file, name, Number(side.value));
  if (!isLatest()) return;
  const original = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const started = performance.now();
  const forth = await step(original, there, "Translating", 0, back ? 2 : 1);
  const seconds = (performance.now() - started) / 1000;
  if (!isLatest()) return;
  draw(original, ["#input", "#over"]);
  draw(forth.image, ["#output", "#under"]);
  find("#name").textContent = name;
  find("#back").hidden = true;
  await offerDownload(name, there.name);
  find("#result").hidden = false;
  const done = `Translated ${original.width} × ${original.height} pixels in ${seconds.toFixed(1)} s with ${DEVICES[forth.device]}.`;
  if (back) {
    const cycle = await step(forth.image, back, "Translating back", 1, 2);
    if (!isLatest()) return;
    draw(cycle.image, ["#cycle"]);
    find("#back").hidden = false;
  }
  setStatus(done);
}

// Translate ImageData with one network; `index` of `count` says how far the bar is.
async function step(image, network, text, index, count) {
  const url = new URL(network.file, location.href).href;
  setStatus(`${text}: preparing the network`, index / count);
  const input = toNumbers(image, network.inputs, settings.multiple);
  const { image: translated, device } = await translate(url, input, runtime, ({ loaded, running }) => {
    if (running) setStatus(`${text} with ${DEVICES[running]}`, (index + 0.5) / count);
    else bar.value = (index + 0.5 * loaded) / count;
  });
  return { image: toImageData(translated, image.width, image.height, settings.multiple), device };
}

function draw(image, selectors) {
  for (const canvas of selectors.map(find)) {
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}

async function offerDownload(name, suffix) {
  const blob = await new Promise((resolve) => find("#output").toBlob(resolve));
  const link = find("#download");
  URL.revokeObjectURL(link.href);
  link.href = URL.createObjectURL(blob);
  link.download = `${name.replace(/\.[^.]*$/, "")}-${suffix}.png`;
}

// ---- Progress and errors

let timer = 0;

function setBusy(busy) {
  find("main").setAttribute("aria-busy", busy);
  if (!busy && document.activeElement === find("#stop")) fileInput.focus(); // a hidden button loses the focus
  bar.hidden = find("#stop").hidden = !busy;
  clearInterval(timer);
  find("#seconds").textContent = "";
  const started = performance.now();
  const tick = () => { find("#seconds").textContent = `${((performance.now() - started) / 1000).toFixed(1)} s`; };
  if (busy) timer = setInterval(tick, 100);
}

function setStatus(text, share = 0) {
  find("#status").textContent = text;
  bar.value = share;
}

function fail(text) {
  setStatus("");
  find("#error").textContent = text;
}

// ---- Images: from a file, dropped, or from the camera

function choose(file, name = file.name) {
  chosen = { file, name };
  show();
}

fileInput.addEventListener("click", () => { fileInput.value = ""; }); // the same file may be chosen again
fileInput.addEventListener("change", () => fileInput.files.length && choose(fileInput.files[0]));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const [file] = event.dataTransfer.files;
  if (file) choose(file);
  else fail("Nothing that was dropped is a file; expected an image file.");
});

const viewfinder = find("#viewfinder"), video = find("video");
let isOpening = false;

async function openCamera() {
  if (isOpening) return; // a second stream would never stop
  isOpening = true;
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    viewfinder.returnValue = "";
    viewfinder.showModal();
  } catch (error) {
    fail(`The camera can't be used: ${sentence(error)}`);
  } finally {
    isOpening = false;
  }
}

viewfinder.addEventListener("close", () => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  if (viewfinder.returnValue === "take" && !canvas.width) {
    fail("The camera has not sent an image yet; try again.");
  } else if (viewfinder.returnValue === "take") {
    canvas.getContext("2d").drawImage(video, 0, 0);
    canvas.toBlob((blob) => choose(blob, "camera.png"));
  }
  video.srcObject?.getTracks().forEach((track) => track.stop());
  video.srcObject = null;
});

// ---- Start

settings.directions.forEach(({ label }, index) => direction.append(new Option(label, index)));
settings.sides.forEach((pixels) => side.append(new Option(`${pixels} pixels`, pixels, pixels === settings.side)));
side.value = settings.side;
find("#directions").hidden = settings.directions.length < 2;
find("#camera").hidden = !navigator.mediaDevices?.getUserMedia;
find("#camera").addEventListener("click", openCamera);
find("#stop").addEventListener("click", stop);
direction.addEventListener("change", show);
side.addEventListener("change", show);
const setDivider = () => {
  find(".stage").style.setProperty("--divider", `${divider.value}%`);
  divider.setAttribute("aria-valuetext", `${divider.value} % input`);
};
divider.addEventListener("input", setDivider);
setDivider(); // browsers restore it after a reload
find("#waiting").hidden = true;
find("main").hidden = false;
prepare(new URL(settings.directions[0].file, location.href).href, runtime);
