// Images as the network takes them: decoding, resizing, padding, and conversion between pixels and numbers in [-1, 1].

const LARGEST = 2 ** 27; // pixels to decode: 0.5 GB
const SMALLEST = 16; // pixels: smaller images leave the network nothing to see

export class ImageError extends Error {}

// Decode a file and resize it so that its longer side has `side` pixels; return a canvas. Transparent pixels become white.
export async function decode(file, name, side) {
  const image = new Image();
  image.src = URL.createObjectURL(file);
  try {
    await new Promise((resolve, reject) => Object.assign(image, { onload: resolve, onerror: reject })).catch(() => {
      throw new ImageError(`${name} can't be read; expected an image that this browser shows, such as JPEG, PNG or WebP.`);
    });
    const [width, height] = [image.naturalWidth || side, image.naturalHeight || side];
    const size = `${name}: ${width} × ${height} pixels`;
    if (width * height > LARGEST) {
      throw new ImageError(`${size} are too many for memory; expected at most ${Math.floor(LARGEST / 1e6)} million.`);
    }
    await image.decode().catch(() => {
      throw new ImageError(`${size} can't be decoded: the file is damaged, or memory is too small.`);
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
export function toNumbers({ data, width, height }, channels, multiple) {
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
export function toImageData(translated, width, height, multiple) {
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
