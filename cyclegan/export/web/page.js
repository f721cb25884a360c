// The page: choose an image, translate it there and back, show the images.

const find = (selector) => document.querySelector(selector);
const settings = await (await fetch("networks.json")).json();
const runtime = new URL(settings.runtime, location.href).href;
const DEVICES = { webgpu: "WebGPU", wasm: "WebAssembly" };
const LARGEST = 2 ** 27; // pixels to decode: 0.5 GB
const SMALLEST = 16; // pixels: smaller images leave the network nothing to see
const OUT_OF_MEMORY = /memory|alloc|\bOOM\b|^\d+$/i; // WebAssembly may throw a number when its memory is used up
const [fileInput, direction, side, divider, bar] = ["#file", "#direction", "#side", "#divider", "#bar"].map(find);
let chosen = null; // {file, name}
let latest = 0; // number of the latest translation; earlier ones show nothing
let worker;
let running; // {resolve, reject, report} of the translation that runs

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
    else fail(sentence(error));
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

async function openCamera() {
  find("#camera").disabled = true; // a second stream would never stop
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    viewfinder.returnValue = "";
    viewfinder.showModal();
  } catch (error) {
    fail(`The camera can't be used: ${sentence(error)}`);
  } finally {
    find("#camera").disabled = false;
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

// ---- Images as numbers: decoding, resizing, padding, and conversion between pixels and [-1, 1]

// Decode a file and resize it so that its longer side has `side` pixels; return a canvas. Transparent pixels become white.
async function decode(file, name, side) {
  const image = new Image();
  image.src = URL.createObjectURL(file);
  try {
    await new Promise((resolve, reject) => Object.assign(image, { onload: resolve, onerror: reject })).catch(() => {
      throw new Error(`${name} can't be read; expected an image that this browser shows, such as JPEG, PNG or WebP.`);
    });
    const [width, height] = [image.naturalWidth || side, image.naturalHeight || side];
    const size = `${name}: ${width} × ${height} pixels`;
    if (width * height > LARGEST) {
      throw new Error(`${size} are too many for memory; expected at most ${Math.floor(LARGEST / 1e6)} million.`);
    }
    await image.decode().catch(() => {
      throw new Error(`${size} can't be decoded: the file is damaged, or memory is too small.`);
    });
    return resize(image, width, height, side);
  } finally {
    URL.revokeObjectURL(image.src);
  }
}

function resize(image, width, height, side) {
  const scale = side / Math.max(width, height);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

// Return the sides of the padded image, multiples of `multiple`, and the padding before the image.
function padding(side, multiple) {
  const padded = Math.ceil(Math.max(side, SMALLEST) / multiple) * multiple;
  return [padded, Math.floor((padded - side) / 2)];
}

// Return the index in [0, side) that a reflected index stands for.
function reflect(index, side) {
  const period = Math.max(1, 2 * side - 2);
  const rest = ((index % period) + period) % period;
  return Math.min(rest, period - rest);
}

// Return ImageData as {numbers, width, height, channels}: float32 in [-1, 1], reflected at the borders.
function toNumbers({ data, width, height }, channels, multiple) {
  const [paddedWidth, left] = padding(width, multiple);
  const [paddedHeight, top] = padding(height, multiple);
  const numbers = new Float32Array(paddedWidth * paddedHeight * channels);
  let to = 0;
  for (let row = 0; row < paddedHeight; row++) {
    for (let column = 0; column < paddedWidth; column++) {
      const from = 4 * (reflect(row - top, height) * width + reflect(column - left, width));
      if (channels === 1) { // Pillow's weights, as in training
        const gray = (data[from] * 19595 + data[from + 1] * 38470 + data[from + 2] * 7471 + 0x8000) >>> 16;
        numbers[to++] = gray / 127.5 - 1;
      } else {
        for (let channel = 0; channel < 3; channel++) numbers[to++] = data[from + channel] / 127.5 - 1;
      }
    }
  }
  return { numbers, width: paddedWidth, height: paddedHeight, channels };
}

// Return the ImageData of an image of `width` x `height` pixels inside the padding of a translation.
function toImageData(translated, width, height, multiple) {
  const { numbers, channels } = translated;
  const [, left] = padding(width, multiple);
  const [, top] = padding(height, multiple);
  const image = new ImageData(width, height);
  let to = 0;
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      const from = ((row + top) * translated.width + column + left) * channels;
      for (let channel = 0; channel < 3; channel++) { // the array rounds and clamps
        image.data[to++] = (numbers[from + (channels === 1 ? 0 : channel)] + 1) * 127.5;
      }
      image.data[to++] = 255;
    }
  }
  return image;
}

// ---- Translations by the worker, one at a time

// Start the worker through a blob: URL, because then the Content-Security-Policy of the page holds in it, too.
function start() {
  const module = JSON.stringify(new URL("worker.js", location.href).href);
  const code = `await import(${module}); self.postMessage({ ready: true });`;
  const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
  const started = new Worker(url, { type: "module" });
  return new Promise((resolve, reject) => {
    started.onmessage = ({ data }) => (data.ready ? resolve(started) : receive(data));
    started.onerror = (event) => {
      event.preventDefault();
      const error = new Error(event.message || "the worker did not start");
      reject(error);
      running?.reject(error);
    };
  });
}

function receive(message) {
  if (message.image) running?.resolve(message);
  else if (message.error) running?.reject(new Error(message.error));
  else running?.report(message);
}

// Load a network while the user chooses an image.
function prepare(network, runtime) {
  worker ??= start();
  worker.then((started) => started.postMessage({ network, runtime }), () => { worker = null; });
}

// End the worker if it translates, which is the only way to stop a translation; the next translation starts another.
function stop() {
  if (!running) return;
  worker?.then((started) => started.terminate(), () => {});
  worker = null;
  running.reject(new DOMException("stopped", "AbortError"));
  running = null;
}

// Return {image, device}: the translation of an image, and the kind of device that computed it.
async function translate(network, image, runtime, report) {
  worker ??= start();
  try {
    const answer = await new Promise((resolve, reject) => {
      running = { resolve, reject, report };
      worker.then((started) => started.postMessage({ network, image, runtime }), reject);
    });
    running = null;
    return answer;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    stop(); // its memory may be damaged
    const size = `${image.width} × ${image.height} pixels`;
    if (!OUT_OF_MEMORY.test(error.message)) throw new Error(`The translation of ${size} failed: ${error.message}`);
    throw new Error(`Memory is too small for ${size}; choose a shorter side.`);
  }
}

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
