// The networks, in a worker, so that the page answers while they run. Messages in: {network, image, runtime}, where
// `image` is {numbers, width, height, channels}, or missing to load the network only. Messages out: {running}, the kind
// of device; {image, device}, the translation; {error}.

const sessions = new Map(); // by URL of the network
let ort;
let devices;

let queue = Promise.resolve(); // messages are handled one after the other

self.onmessage = ({ data }) => { queue = queue.then(() => handle(data)); };

async function handle(message) {
  try {
    const image = await translate(message);
    if (image) self.postMessage({ image, device: devices[0] });
  } catch (error) { // of loading only: the translation that follows reports it
    if (message.image) self.postMessage({ error: String(error?.message ?? error) });
  }
}

async function start(runtime) {
  const loaded = await import(runtime);
  loaded.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.jsep.wasm", runtime).href };
  loaded.env.wasm.numThreads = 1; // more need headers that few static servers send
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  devices = adapter ? ["webgpu", "wasm"] : ["wasm"];
  ort = loaded;
}

async function translate({ network, image, runtime }) {
  if (!ort) await start(runtime);
  for (;;) {
    try {
      if (!sessions.has(network)) {
        sessions.set(network, await ort.InferenceSession.create(network, { executionProviders: [devices[0]] }));
      }
      return image && (await run(sessions.get(network), image));
    } catch (error) {
      if (devices.length === 1) throw error;
      devices.shift(); // WebGPU has failed
      sessions.clear();
    }
  }
}

async function run(network, { numbers, width, height, channels }) {
  self.postMessage({ running: devices[0] });
  const input = new ort.Tensor("float32", numbers, [1, height, width, channels]);
  const { translated } = await network.run({ picture: input });
  return { numbers: await translated.getData(), width, height, channels: translated.dims[3] };
}
