"""The source of a network as users write one: a skip connection, functional and in-place ReLUs, batch norm."""

OWN_NETWORK = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, shape):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(shape[0], 4, 5, stride=4), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.skip = nn.Conv2d(4, 4, 1)
        self.fc = nn.Linear(4 * 6 * 6, classes)

    def forward(self, x):
        x = self.features(x)
        x = F.relu(x + self.skip(x))
        return self.fc(x.view(x.size(0), -1))
"""
