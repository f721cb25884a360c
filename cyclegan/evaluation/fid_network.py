"""The Inception network of 2015, whose features published FIDs compare, computed with the weights in its files.

Heusel et al. 2017 took the network from TensorFlow's `classify_image_graph_def.pb`; pytorch-fid has the same weights in
a file of PyTorch. TensorFlow 2 refuses the graph, so only its constants are read. Layers have the names of the graph.
"""

from __future__ import annotations

import pathlib
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from cyclegan.errors import UserError, first_line
from cyclegan.evaluation.options import GRAPH_URL
from cyclegan.interop.torch_networks import load_state_dict

SIDE = 299  # pixels of the images that Inception networks take
BATCHNORM_EPSILON = 0.001  # of the batch normalizations
# URL of pytorch-fid's file, kind of hash, hash; the file's name ends with the beginning of the hash.
PUBLISHED = (
    "https://github.com/mseitzer/pytorch-fid/releases/download/fid_weights/pt_inception-2015-12-05-6726825d.pth",
    "sha256",
    "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2",
)
GRAPH = "classify_image_graph_def.pb"  # in the archive
Weights = Mapping[str, tuple[tf.Tensor, tf.Tensor]]  # (kernel [H, W, in, out], bias [out]) of each convolution

# Modules in PyTorch of the convolutions conv, conv_1, conv_2, ... in each part of a block of the graph.
GRID_35 = {
    "": "branch1x1",
    "tower/": "branch5x5_1 branch5x5_2",
    "tower_1/": "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3",
    "tower_2/": "branch_pool",
}
TO_17 = {"": "branch3x3", "tower/": "branch3x3dbl_1 branch3x3dbl_2 branch3x3dbl_3"}
GRID_17 = {
    "": "branch1x1",
    "tower/": "branch7x7_1 branch7x7_2 branch7x7_3",
    "tower_1/": "branch7x7dbl_1 branch7x7dbl_2 branch7x7dbl_3 branch7x7dbl_4 branch7x7dbl_5",
    "tower_2/": "branch_pool",
}
TO_8 = {
    "tower/": "branch3x3_1 branch3x3_2",
    "tower_1/": "branch7x7x3_1 branch7x7x3_2 branch7x7x3_3 branch7x7x3_4",
}
GRID_8 = {
    "": "branch1x1",
    "tower/": "branch3x3_1",
    "tower/mixed/": "branch3x3_2a branch3x3_2b",
    "tower_1/": "branch3x3dbl_1 branch3x3dbl_2",
    "tower_1/mixed/": "branch3x3dbl_3a branch3x3dbl_3b",
    "tower_2/": "branch_pool",
}
GRAPH_BLOCKS = {
    "": ("", {"": "Conv2d_1a_3x3 Conv2d_2a_3x3 Conv2d_2b_3x3 Conv2d_3b_1x1 Conv2d_4a_3x3"}),
    "mixed/": ("Mixed_5b.", GRID_35),
    "mixed_1/": ("Mixed_5c.", GRID_35),
    "mixed_2/": ("Mixed_5d.", GRID_35),
    "mixed_3/": ("Mixed_6a.", TO_17),
    "mixed_4/": ("Mixed_6b.", GRID_17),
    "mixed_5/": ("Mixed_6c.", GRID_17),
    "mixed_6/": ("Mixed_6d.", GRID_17),
    "mixed_7/": ("Mixed_6e.", GRID_17),
    "mixed_8/": ("Mixed_7a.", TO_8),
    "mixed_9/": ("Mixed_7b.", GRID_8),
    "mixed_10/": ("Mixed_7c.", GRID_8),
}


# Modules in PyTorch of the 94 convolutions by their names in the graph.
MODULES = {
    f"{block}{part}conv_{number}".removesuffix("_0"): prefix + module
    for block, (prefix, parts) in GRAPH_BLOCKS.items()
    for part, modules in parts.items()
    for number, module in enumerate(modules.split())
}
# Tensors of a convolution and its batch normalization: names in the graph and in PyTorch.
TENSORS = {
    "conv2d_params": "conv.weight",
    "batchnorm/gamma": "bn.weight",
    "batchnorm/beta": "bn.bias",
    "batchnorm/moving_mean": "bn.running_mean",
    "batchnorm/moving_variance": "bn.running_var",
}


def read_weights(path: pathlib.Path) -> Weights:
    """Return the weights in pytorch-fid's file (.pth), in TensorFlow's graph, or in the archive with the graph.

    Raises:
        UserError: PyTorch is missing, or the file cannot be read or holds another network.
    """
    try:
        tensors = _read_torch(path) if path.suffix == ".pth" else _read_graph(path)
        return {name: _fold(*(tensors[f"{name}/{tensor}"] for tensor in TENSORS)) for name in MODULES}
    except UserError:
        raise
    except Exception as error:  # a damaged file may raise anything
        reason = f"it has no {error}" if isinstance(error, KeyError) else first_line(error)
        raise UserError(
            f"{path}: {reason}; expected the Inception network of 2015, the file {PUBLISHED[0]} or {GRAPH_URL}"
        ) from error


def _read_torch(path: pathlib.Path) -> dict[str, np.ndarray]:
    state = load_state_dict(str(path))
    names = {f"{name}/{ours}": f"{MODULES[name]}.{theirs}" for name in MODULES for ours, theirs in TENSORS.items()}
    tensors = {ours: state[theirs] for ours, theirs in names.items()}
    # Kernels are [out, in, H, W] in PyTorch.
    return {name: value.transpose(2, 3, 1, 0) if value.ndim == 4 else value for name, value in tensors.items()}


def _read_graph(path: pathlib.Path) -> dict[str, np.ndarray]:
    content = path.read_bytes()
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as archive:
            member = archive.extractfile(GRAPH)
            content = member.read() if member else b""
    nodes = tf.compat.v1.GraphDef.FromString(content).node
    return {node.name: tf.make_ndarray(node.attr["value"].tensor) for node in nodes if node.op == "Const"}


def _fold(
    kernel: np.ndarray, gamma: np.ndarray, beta: np.ndarray, mean: np.ndarray, variance: np.ndarray
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the kernel and the bias of a convolution with the batch normalization behind it."""
    scale = gamma / np.sqrt(variance + BATCHNORM_EPSILON)
    return tf.constant(kernel * scale), tf.constant(beta - mean * scale)


def inception(weights: Weights, images: tf.Tensor) -> tf.Tensor:
    """Return the 2048 features of each image after the last pooling, for images [N, H, W, 3]."""

    def conv(x: tf.Tensor, name: str, stride: int = 1, padding: str = "SAME") -> tf.Tensor:
        kernel, bias = weights[name]
        return tf.nn.relu(tf.nn.conv2d(x, kernel, stride, padding) + bias)

    def tower(x: tf.Tensor, name: str, *last: Any) -> tf.Tensor:
        names = [each for each in MODULES if each.startswith(f"{name}/conv")]
        for each in names[:-1]:
            x = conv(x, each)
        return conv(x, names[-1], *last)

    def fork(x: tf.Tensor, name: str) -> tf.Tensor:
        x = tower(x, name)
        return tf.concat([conv(x, f"{name}/mixed/conv"), conv(x, f"{name}/mixed/conv_1")], axis=-1)

    def mixed(x: tf.Tensor, block: str, part: Callable = tower, pool: Callable = tf.nn.avg_pool2d) -> tf.Tensor:
        towers = [part(x, f"{block}/tower"), part(x, f"{block}/tower_1")]
        pooled = pool(x, 3, 1, "SAME")  # TensorFlow's averages leave the padding out
        return tf.concat([conv(x, f"{block}/conv"), *towers, conv(pooled, f"{block}/tower_2/conv")], axis=-1)

    def halve(x: tf.Tensor) -> tf.Tensor:
        return tf.nn.max_pool2d(x, 3, 2, "VALID")

    x = conv(conv(images, "conv", 2, "VALID"), "conv_1", 1, "VALID")
    x = halve(conv(x, "conv_2"))
    x = halve(conv(conv(x, "conv_3"), "conv_4", 1, "VALID"))
    for block in ("mixed", "mixed_1", "mixed_2"):
        x = mixed(x, block)
    x = tf.concat([conv(x, "mixed_3/conv", 2, "VALID"), tower(x, "mixed_3/tower", 2, "VALID"), halve(x)], axis=-1)
    for block in ("mixed_4", "mixed_5", "mixed_6", "mixed_7"):
        x = mixed(x, block)
    towers = [tower(x, name, 2, "VALID") for name in ("mixed_8/tower", "mixed_8/tower_1")]
    x = tf.concat([*towers, halve(x)], axis=-1)
    x = mixed(x, "mixed_9", fork)
    x = mixed(x, "mixed_10", fork, tf.nn.max_pool2d)  # as in the graph; the paper has averages here, too
    return tf.reduce_mean(x, axis=[1, 2])


def _scaled(levels: tf.Tensor) -> tf.Tensor:
    return (levels - 128) / 128  # as in the graph: 255 is not quite 1


def _resize_bicubic(images: tf.Tensor) -> tf.Tensor:
    """Resize images as Pillow resizes bands of floats; tf.image.resize is off by up to 0.01 gray levels."""
    rows, columns = (tf.constant(_bicubic_weights(size), tf.float32) for size in images.shape[1:3])
    return tf.einsum("ih,nhwc,jw->nijc", rows, images, columns)


def _bicubic_weights(size: int) -> np.ndarray:
    """Return the weight of each of `size` pixels for each of `SIDE` pixels: [SIDE, size]."""
    scale = size / SIDE
    centres = (np.arange(SIDE)[:, np.newaxis] + 0.5) * scale
    x = np.abs(np.arange(size) + 0.5 - centres) / max(scale, 1)
    weights = np.where(x < 1, 1.5 * x**3 - 2.5 * x**2 + 1, np.where(x < 2, -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2, 0))
    return weights / weights.sum(axis=1, keepdims=True)


# Ways to prepare images in [0, 255] for the network, by the name of the features: description, function.
RESIZES: dict[str, tuple[str, Callable[[tf.Tensor], tf.Tensor]]] = {
    "fid": (
        "bilinear without antialiasing, as in pytorch-fid",
        lambda images: tf.image.resize(images, (SIDE, SIDE)) / 127.5 - 1,
    ),
    "fid-tf1": (
        "bilinear without half-pixel centres, as in TensorFlow's graph and torch-fidelity",
        lambda images: _scaled(tf.raw_ops.ResizeBilinear(images=images, size=(SIDE, SIDE))),
    ),
    "fid-clean": ("bicubic by Pillow's filter, as in clean-fid", lambda images: _scaled(_resize_bicubic(images))),
}
