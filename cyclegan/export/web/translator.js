// Translations by the worker, one at a time.

const OUT_OF_MEMORY = /memory|alloc|\bOOM\b|^\d+$/i; // WebAssembly may throw a number when its memory is used up

let worker;
let running; // {resolve, reject, report} of the translation that runs

// Start the worker through a blob: URL, because then the Content-Security-Policy of the page holds in it, too.
function start() {
  const module = JSON.stringify(new URL("worker.js", import.meta.url).href);
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
export function prepare(network, runtime) {
  worker ??= start();
  worker.then((started) => started.postMessage({ network, runtime }), () => { worker = null; });
}

// End the worker if it translates, which is the only way to stop a translation; the next translation starts another.
export function stop() {
  if (!running) return;
  worker?.then((started) => started.terminate(), () => {});
  worker = null;
  running.reject(new DOMException("stopped", "AbortError"));
  running = null;
}

// Return {image, device}: the translation of an image, and the kind of device that computed it.
export async function translate(network, image, runtime, report) {
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
