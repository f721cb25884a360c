// The page: choose an image, translate it there and back, show the images.

const find = (selector) => document.querySelector(selector);
const settings = await (await fetch("networks.json")).json();
const absolute = (path) => new URL(path, location.href).href;
const DEVICES = { webgpu: "WebGPU", wasm: "WebAssembly", server: "the server" };
const LARGEST = 2 ** 27; // pixels to decode: 0.5 GB
const SMALLEST = 16; // pixels: smaller images leave the network nothing to see
const OUT_OF_MEMORY = /memory|alloc|\bOOM\b|^\d+$/i; // WebAssembly may throw a number when its memory is used up
const [fileInput, direction, side, divider] = ["#file", "#direction", "#side", "#divider"].map(find);
let chosen = null; // File whose translation is shown, or is being made
let latest = 0; // number of the latest translation; earlier ones show nothing
let worker = null;
let running = null; // {resolve, reject, report} of the translation that runs

// ---- Translating

async function show(file = chosen) {
  if (!file) return;
  const number = ++latest;
  stop();
  setBusy(true);
  find("#error").textContent = "";
  setStatus("Reading the image");
  try {
    const canvas = await decode(file, Number(side.value));
    if (number !== latest) return;
    chosen = file;
    find("#result").hidden = true;
    await translateCanvas(canvas, file.name);
  } catch (error) {
    if (number !== latest) return;
    if (error.name === "AbortError") setStatus("Stopped.");
    else fail(error.message);
  } finally {
    if (number === latest) {
      setBusy(false);
      showChosen();
    }
  }
}

// Show the name of the chosen file in the input, also if it was dropped, or if another file could not be read.
function showChosen() {
  const files = new DataTransfer();
  if (chosen) files.items.add(chosen);
  fileInput.files = files.files;
}

async function translateCanvas(canvas, name) {
  const there = settings.directions[direction.value];
  const back = settings.directions.find((other) => other !== there);
  const original = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const started = performance.now();
  const forth = await step(original, there, "Translating");
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const size = `${original.width} × ${original.height} pixels`;
  draw(original, ["#input", "#over"]);
  draw(forth.image, ["#output", "#under"]);
  find("#name").textContent = name;
  await offerDownload(`${name.replace(/\.[^.]*$/, "")}-${there.name}.png`);
  find("#back").hidden = true;
  find("#result").hidden = false;
  if (back) {
    draw((await step(forth.image, back, "Translating back")).image, ["#cycle"]);
    find("#back").hidden = false;
  }
  setStatus(`Translated ${size} in ${seconds} s with ${DEVICES[forth.device]}.`);
}

// Translate ImageData with one network; return {image, device}.
async function step(image, network, text) {
  if (settings.server) {
    setStatus(`${text} on the server`);
    return { image: await translateOnServer(image, network), device: "server" };
  }
  setStatus(`${text}: preparing the network`);
  const input = toNumbers(image, network.inputs, settings.multiple);
  const report = (device) => setStatus(`${text} with ${DEVICES[device]}`);
  const { image: translated, device } = await translate(network, input, report);
  return { image: toImageData(translated, image.width, image.height, settings.multiple), device };
}

function draw(image, selectors) {
  for (const canvas of selectors.map(find)) {
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").putImageData(image, 0, 0);
  }
}

async function offerDownload(name) {
  const blob = await new Promise((done) => find("#output").toBlob(done));
  const link = find("#download");
  URL.revokeObjectURL(link.href);
  Object.assign(link, { href: URL.createObjectURL(blob), download: name });
}

// ---- Progress and errors

function setBusy(busy) {
  find("main").setAttribute("aria-busy", busy);
  if (!busy && document.activeElement === find("#stop")) fileInput.focus(); // a hidden button loses the focus
  find("#bar").hidden = find("#stop").hidden = !busy;
}

function setStatus(text) {
  find("#status").textContent = text;
}

function fail(text) {
  setStatus("");
  find("#error").textContent = text;
}

// ---- Images: from a file, dropped, or from the camera

fileInput.addEventListener("click", () => { fileInput.value = ""; }); // the same file may be chosen again
fileInput.addEventListener("cancel", showChosen);
fileInput.addEventListener("change", () => fileInput.files.length && show(fileInput.files[0]));
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
document.addEventListener("dragleave", () => document.body.classList.remove("dropping"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  const [file] = event.dataTransfer.files;
  if (file) show(file);
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
    fail(`The camera can't be used: ${error.message}`);
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
    canvas.toBlob((blob) => show(new File([blob], "camera.png")));
  }
  video.srcObject?.getTracks().forEach((track) => track.stop());
  video.srcObject = null;
});

// ---- Images as numbers: decoding, resizing, padding, and conversion between pixels and [-1, 1]

// Decode a file and resize it to `side` pixels on its longer side; return a canvas. Transparent pixels become white.
async function decode(file, side) {
  const { name } = file;
  const image = new Image();
  image.src = URL.createObjectURL(file);
  try {
    await new Promise((onload, onerror) => Object.assign(image, { onload, onerror })).catch(() => {
      throw new Error(`${name} can't be read; expected an image that this browser shows, such as JPEG, PNG or WebP.`);
    });
    const [width, height] = [image.naturalWidth, image.naturalHeight];
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

// Send a message to the worker. It starts through a blob: URL, because then the Content-Security-Policy of the page
// holds in it, too; that policy wants a dynamic import, and messages have to wait for it.
function post(network, image) {
  if (!worker) {
    const code = `const early = []; self.onmessage = (event) => early.push(event);
      await import(${JSON.stringify(absolute("worker.js"))}); early.forEach(self.onmessage);`;
    const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    worker = new Worker(url, { type: "module" });
    worker.onmessage = ({ data }) => {
      if (data.image) running?.resolve(data);
      else if (data.error) running?.reject(new Error(data.error));
      else running?.report(data.running);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      worker = null;
      running?.reject(new Error(event.message || "the worker did not start"));
    };
  }
  worker.postMessage({ network: absolute(network.file), image, runtime: absolute(settings.runtime) });
}

// End the worker if it translates, which is the only way to stop a translation; the next one starts another worker.
function stop() {
  if (!running) return;
  worker?.terminate();
  worker = null;
  running.reject(new DOMException("stopped", "AbortError"));
}

// Return {image, device}: the translation of an image, and the kind of device that computed it.
async function translate(network, image, report) {
  try {
    return await new Promise((resolve, reject) => {
      running = { resolve, reject, report };
      post(network, image);
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    stop(); // the memory of the worker may be damaged
    const size = `${image.width} × ${image.height} pixels`;
    if (!OUT_OF_MEMORY.test(error.message)) throw new Error(`The translation of ${size} failed: ${error.message}.`);
    throw new Error(`Memory is too small for ${size}; choose a shorter side.`);
  } finally {
    running = null;
  }
}

// Return the ImageData of a translation by the server.
async function translateOnServer(image, network) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.putImageData(image, 0, 0);
  const body = await new Promise((done) => canvas.toBlob(done));
  const controller = new AbortController();
  running = { reject: () => controller.abort() };
  try {
    const url = `${settings.server}?direction=${network.name}`;
    const response = await fetch(url, { method: "POST", body, signal: controller.signal });
    if (!response.ok) throw new Error((await response.json()).detail);
    context.drawImage(await createImageBitmap(await response.blob()), 0, 0);
    return context.getImageData(0, 0, image.width, image.height);
  } finally {
    running = null;
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
direction.addEventListener("change", () => show());
side.addEventListener("change", () => show());
const setDivider = () => {
  find(".stage").style.setProperty("--divider", `${divider.value}%`);
  divider.setAttribute("aria-valuetext", `${divider.value} % input`);
};
divider.addEventListener("input", setDivider);
setDivider(); // browsers restore it after a reload
find("#waiting").hidden = true;
find("main").hidden = false;
if (!settings.server) post(settings.directions[0]); // loads a network while the user chooses an image
