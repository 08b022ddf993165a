"""VGG16 for 32 px images, its convolutions from torchvision, with and without batch normalisation."""

from torch import nn

from sweetspot.lightning_modules.networks.split import Architecture, ShapeError, network, only_default_head

WIDTH = 512  # at 32 px the features end as 512 × 1 × 1, so ImageNet's 25,088 → 4,096 classifier shrinks to 512 → 512
DROPOUT = 0.5  # torchvision's default


def vgg(name: str, shape: tuple[int, ...], classes: int, head: str, batch_norm: bool) -> Architecture:
    """VGG16's layers under their names in the paper (conv1_1 … conv5_3); each block ends with its pooling layer."""
    from torchvision.models.vgg import cfgs, make_layers

    only_default_head(name, head)
    if len(shape) != 3 or min(shape[1:]) < 32:
        raise ShapeError(
            f"the network {name} takes images of at least 32 px; these inputs are {shape} (channels, height, width)"
        )
    net = Architecture()
    block, convolution = 1, 0
    for layer in make_layers(cfgs["D"], batch_norm=batch_norm):
        if isinstance(layer, nn.Conv2d):
            convolution += 1
            if block == convolution == 1 and shape[0] != layer.in_channels:
                layer = nn.Conv2d(shape[0], layer.out_channels, kernel_size=3, padding=1)
            net.add(f"conv{block}_{convolution}", layer)
        elif isinstance(layer, nn.BatchNorm2d):
            net.add(f"norm{block}_{convolution}", layer)
        elif isinstance(layer, nn.ReLU):
            # torchvision's ReLU works in place: cut before one, the head would overwrite z
            net.add(f"relu{block}_{convolution}", nn.ReLU())
        else:
            net.add(f"pool{block}", layer, ends_block=True)  # (B, 128, 8, 8) after block 2
            block, convolution = block + 1, 0
    net.add("average", nn.AdaptiveAvgPool2d(1))
    net.add("flatten", nn.Flatten())
    for number in (1, 2):
        net.add(f"fc{number}", nn.Linear(WIDTH, WIDTH))
        net.add(f"relu_fc{number}", nn.ReLU())
        net.add(f"dropout{number}", nn.Dropout(DROPOUT), ends_block=True)
    net.add("fc3", nn.Linear(WIDTH, classes))
    for layer in net.layers.values():
        if isinstance(layer, nn.Conv2d):  # as torchvision initialises them; PyTorch's default fades out over 13 layers
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]  # every layer here has a bias
    return net


@network("vgg16")
def vgg16(shape: tuple[int, ...], classes: int, head: str) -> Architecture:
    """VGG16 as published, without batch normalisation."""
    return vgg("vgg16", shape, classes, head, batch_norm=False)


@network("vgg16-bn")
def vgg16_bn(shape: tuple[int, ...], classes: int, head: str) -> Architecture:
    """VGG16 with batch normalisation after every convolution."""
    return vgg("vgg16-bn", shape, classes, head, batch_norm=True)
