"""The Inception network of published FIDs in PyTorch, with random weights, and its names in TensorFlow's graph.

The layers are those of torchvision's `inception_v3`, but for the poolings that pytorch-fid changes.
"""

import numpy as np
import tensorflow as tf

DIVISOR = 8  # of the numbers of channels
# Names of the convolutions in the blocks of `classify_image_graph_def.pb`, in the order of PyTorch's modules.
GRID_35 = "conv tower/conv tower/conv_1 tower_1/conv tower_1/conv_1 tower_1/conv_2 tower_2/conv"
GRID_17 = (
    "conv tower/conv tower/conv_1 tower/conv_2"
    " tower_1/conv tower_1/conv_1 tower_1/conv_2 tower_1/conv_3 tower_1/conv_4 tower_2/conv"
)
GRID_8 = (
    "conv tower/conv tower/mixed/conv tower/mixed/conv_1"
    " tower_1/conv tower_1/conv_1 tower_1/mixed/conv tower_1/mixed/conv_1 tower_2/conv"
)
GRAPH_BLOCKS = {
    **dict.fromkeys(("mixed", "mixed_1", "mixed_2"), GRID_35),
    "mixed_3": "conv tower/conv tower/conv_1 tower/conv_2",
    **dict.fromkeys(("mixed_4", "mixed_5", "mixed_6", "mixed_7"), GRID_17),
    "mixed_8": "tower/conv tower/conv_1 tower_1/conv tower_1/conv_1 tower_1/conv_2 tower_1/conv_3",
    **dict.fromkeys(("mixed_9", "mixed_10"), GRID_8),
}
GRAPH_NAMES = [f"conv_{number}" if number else "conv" for number in range(5)]
GRAPH_NAMES += [f"{block}/{name}" for block, names in GRAPH_BLOCKS.items() for name in names.split()]
TENSORS = {
    **{"conv.weight": "conv2d_params", "bn.weight": "batchnorm/gamma", "bn.bias": "batchnorm/beta"},
    **{"bn.running_mean": "batchnorm/moving_mean", "bn.running_var": "batchnorm/moving_variance"},
}


def make_inception(torch, seed=0):
    """Return the network with random weights; it takes [N, 3, 299, 299] and returns [N, 2048 / DIVISOR]."""
    nn, F = torch.nn, torch.nn.functional

    class Conv(nn.Module):
        def __init__(self, inputs, outputs, kernel, stride=1, padding=0):
            super().__init__()
            self.conv = nn.Conv2d(inputs, outputs // DIVISOR, kernel, stride, padding, bias=False)
            self.bn = nn.BatchNorm2d(outputs // DIVISOR, eps=0.001)

        def forward(self, x):
            return F.relu(self.bn(self.conv(x)))

    def average(x):
        return F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)

    class Block(nn.Module):
        """Convolutions by name, each after another one or after the input, whose outputs are concatenated."""

        def __init__(self, inputs, outputs, pool=average, **convolutions):
            super().__init__()
            self.outputs, self.pool, self.after = outputs.split(), pool, {}
            channels = {"input": inputs // DIVISOR, "pool": inputs // DIVISOR}
            for name, (after, *settings) in convolutions.items():
                self.after[name] = after
                self.add_module(name, Conv(channels[after], *settings))
                channels[name] = settings[0] // DIVISOR

        def forward(self, x):
            found = {"input": x, "pool": self.pool(x)}
            for name, after in self.after.items():
                found[name] = getattr(self, name)(found[after])
            return torch.cat([found[name] for name in self.outputs], 1)

    def halve(x):
        return F.max_pool2d(x, 3, 2)

    def grid_35(inputs, pooled):
        return Block(
            inputs,
            "branch1x1 branch5x5_2 branch3x3dbl_3 branch_pool",
            branch1x1=("input", 64, 1),
            branch5x5_1=("input", 48, 1),
            branch5x5_2=("branch5x5_1", 64, 5, 1, 2),
            branch3x3dbl_1=("input", 64, 1),
            branch3x3dbl_2=("branch3x3dbl_1", 96, 3, 1, 1),
            branch3x3dbl_3=("branch3x3dbl_2", 96, 3, 1, 1),
            branch_pool=("pool", pooled, 1),
        )

    def grid_17(c):
        row, column = ((1, 7), 1, (0, 3)), ((7, 1), 1, (3, 0))
        return Block(
            768,
            "branch1x1 branch7x7_3 branch7x7dbl_5 branch_pool",
            branch1x1=("input", 192, 1),
            branch7x7_1=("input", c, 1),
            branch7x7_2=("branch7x7_1", c, *row),
            branch7x7_3=("branch7x7_2", 192, *column),
            branch7x7dbl_1=("input", c, 1),
            branch7x7dbl_2=("branch7x7dbl_1", c, *column),
            branch7x7dbl_3=("branch7x7dbl_2", c, *row),
            branch7x7dbl_4=("branch7x7dbl_3", c, *column),
            branch7x7dbl_5=("branch7x7dbl_4", 192, *row),
            branch_pool=("pool", 192, 1),
        )

    def grid_8(inputs, pool):
        row, column = (384, (1, 3), 1, (0, 1)), (384, (3, 1), 1, (1, 0))
        return Block(
            inputs,
            "branch1x1 branch3x3_2a branch3x3_2b branch3x3dbl_3a branch3x3dbl_3b branch_pool",
            pool,
            branch1x1=("input", 320, 1),
            branch3x3_1=("input", 384, 1),
            branch3x3_2a=("branch3x3_1", *row),
            branch3x3_2b=("branch3x3_1", *column),
            branch3x3dbl_1=("input", 448, 1),
            branch3x3dbl_2=("branch3x3dbl_1", 384, 3, 1, 1),
            branch3x3dbl_3a=("branch3x3dbl_2", *row),
            branch3x3dbl_3b=("branch3x3dbl_2", *column),
            branch_pool=("pool", 192, 1),
        )

    class Inception(nn.Module):
        def __init__(self):
            super().__init__()
            self.Conv2d_1a_3x3 = Conv(3, 32, 3, 2)
            self.Conv2d_2a_3x3 = Conv(32 // DIVISOR, 32, 3)
            self.Conv2d_2b_3x3 = Conv(32 // DIVISOR, 64, 3, 1, 1)
            self.Conv2d_3b_1x1 = Conv(64 // DIVISOR, 80, 1)
            self.Conv2d_4a_3x3 = Conv(80 // DIVISOR, 192, 3)
            self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = grid_35(192, 32), grid_35(256, 64), grid_35(288, 64)
            self.Mixed_6a = Block(
                288,
                "branch3x3 branch3x3dbl_3 pool",
                halve,
                branch3x3=("input", 384, 3, 2),
                branch3x3dbl_1=("input", 64, 1),
                branch3x3dbl_2=("branch3x3dbl_1", 96, 3, 1, 1),
                branch3x3dbl_3=("branch3x3dbl_2", 96, 3, 2),
            )
            self.Mixed_6b, self.Mixed_6c, self.Mixed_6d, self.Mixed_6e = map(grid_17, (128, 160, 160, 192))
            self.Mixed_7a = Block(
                768,
                "branch3x3_2 branch7x7x3_4 pool",
                halve,
                branch3x3_1=("input", 192, 1),
                branch3x3_2=("branch3x3_1", 320, 3, 2),
                branch7x7x3_1=("input", 192, 1),
                branch7x7x3_2=("branch7x7x3_1", 192, (1, 7), 1, (0, 3)),
                branch7x7x3_3=("branch7x7x3_2", 192, (7, 1), 1, (3, 0)),
                branch7x7x3_4=("branch7x7x3_3", 192, 3, 2),
            )
            self.Mixed_7b = grid_8(1280, average)
            self.Mixed_7c = grid_8(2048, lambda x: F.max_pool2d(x, 3, 1, 1))

        def forward(self, x):
            for number, layer in enumerate(self.children()):
                x = layer(x)
                if number in (2, 4):
                    x = halve(x)
            return x.mean((2, 3))

    torch.manual_seed(seed)
    network = Inception().eval()
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
        if isinstance(layer, nn.BatchNorm2d):
            for tensor, low, high in ((layer.weight, 0.8, 1.2), (layer.bias, -0.2, 0.2)):
                nn.init.uniform_(tensor, low, high)
            layer.running_mean.uniform_(-0.2, 0.2)
            layer.running_var.uniform_(0.5, 1.5)
    return network


def graph_of(state):
    """Return the content of a graph with the weights of a state dict as constants, as TensorFlow froze it in 2015."""
    modules = dict.fromkeys(name.rsplit(".", 2)[0] for name in state)
    assert len(modules) == len(GRAPH_NAMES) == 94
    graph = tf.compat.v1.GraphDef()
    graph.node.add(name="ExpandDims", op="ExpandDims")
    for module, name in zip(modules, GRAPH_NAMES):
        for theirs, ours in TENSORS.items():
            value = state[f"{module}.{theirs}"].numpy()
            node = graph.node.add(name=f"{name}/{ours}", op="Const")
            kernel = value.transpose(2, 3, 1, 0) if value.ndim == 4 else value
            node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(np.ascontiguousarray(kernel)))
        graph.node.add(name=f"{name}/batchnorm", op="BatchNormWithGlobalNormalization")
    return graph.SerializeToString()
