"""Makes the TorchScript files that tests/graph reads: python make_torchscript.py FOLDER."""
import os
import sys
import zipfile

import torch
from torch import nn


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(x))
        y += x
        y = nn.functional.relu(y, inplace=True).mean(dim=[2, 3])
        return self.fc(self.drop(y.view(x.size(0), -1))), {"unused": 1}["unused"] * y


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, num_layers=2, dropout=0.2, batch_first=True)
        self.fc = nn.Linear(5, 3)

    def forward(self, tokens):
        y, (h, c) = self.lstm(self.embed(tokens))
        return [self.fc(y), h]


class Classifier(nn.Module):
    """Images of one channel in ten classes, as the tool's students are."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 5, stride=4)
        self.bn1 = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.1)
        self.fc = nn.Linear(4, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(self.drop(x.mean(dim=[2, 3])))


class Branch(nn.Module):
    def forward(self, x):
        if bool(x.sum() > 0):
            return x * 2
        return x + 1


def without_sources(path):
    """Leaves out where the code came from, which is paths of one machine."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(path + ".new", "w") as new:
        for name in old.namelist():
            if not name.endswith(".debug_pkl"):
                new.writestr(zipfile.ZipInfo(name), old.read(name))
    os.replace(path + ".new", path)


def main(folder):
    torch.manual_seed(0)
    torch.jit.script(ConvNet()).save(f"{folder}/conv_net.pt")
    torch.jit.script(Recurrent()).save(f"{folder}/recurrent.pt")
    torch.jit.script(Branch()).save(f"{folder}/branch.pt")
    torch.jit.trace(ConvNet().eval(), torch.randn(2, 3, 6, 6)).save(f"{folder}/traced.pt")
    torch.jit.script(Classifier()).save(f"{folder}/classifier.pt")
    without_sources(f"{folder}/classifier.pt")


main(sys.argv[1])
