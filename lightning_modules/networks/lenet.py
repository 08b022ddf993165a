"""LeNet5 for 28 or 32 px images with 1 or 3 channels: MixCon's network for MNIST, Fashion-MNIST and SVHN."""

from torch import nn

from sweetspot.lightning_modules.networks.split import Architecture, ShapeError, network, only_default_head

PADDING = {28: 2, 32: 0}  # 28 px are padded to LeCun's 32, so the feature maps are 16 × 5 × 5 either way


@network("lenet")
def lenet(shape: tuple[int, ...], classes: int, head: str) -> Architecture:
    """LeNet5's layers, with ReLU and max pooling; block 2 ends with `pool2`, z ∈ R^{16×5×5}."""
    only_default_head("lenet", head)
    if len(shape) != 3 or shape[0] not in (1, 3) or shape[1] != shape[2] or shape[1] not in PADDING:
        raise ShapeError(
            f"the network lenet takes square images of 28 or 32 px with 1 or 3 channels; these inputs are {shape} "
            f"(channels, height, width)"
        )
    net = Architecture()
    net.add("conv1", nn.Conv2d(shape[0], 6, kernel_size=5, padding=PADDING[shape[1]]))  # (B, 6, 28, 28)
    net.add("relu1", nn.ReLU())
    net.add("pool1", nn.MaxPool2d(2), ends_block=True)  # (B, 6, 14, 14)
    net.add("conv2", nn.Conv2d(6, 16, kernel_size=5))  # (B, 16, 10, 10)
    net.add("relu2", nn.ReLU())
    net.add("pool2", nn.MaxPool2d(2), ends_block=True)  # (B, 16, 5, 5)
    net.add("flatten", nn.Flatten())
    net.add("fc1", nn.Linear(400, 120))
    net.add("relu3", nn.ReLU(), ends_block=True)
    net.add("fc2", nn.Linear(120, 84))
    net.add("relu4", nn.ReLU(), ends_block=True)
    net.add("fc3", nn.Linear(84, classes))
    return net
