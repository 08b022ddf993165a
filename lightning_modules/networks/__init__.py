"""Split networks by registry name: lenet, vgg16, vgg16-bn, mlp; `foreign` has all others."""

from sweetspot.lightning_modules.networks import lenet, mlp, vgg
from sweetspot.lightning_modules.networks.split import NETWORKS, Architecture, SplitNetwork, build_network, network

__all__ = ["NETWORKS", "Architecture", "SplitNetwork", "build_network", "lenet", "mlp", "network", "vgg"]
