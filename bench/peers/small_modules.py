"""Small modules for conformance.py: each operator and its options, drawn from a fixed seed.

A kind is a function of dice that returns a module and its inputs. `KINDS` has all of them by name once drawn() runs; a new one is drawn by
being written in small_layers.py or small_functions.py with @kind. Its name is its seed. Sizes are small and odd ones, ones and batches
of 1 among them.
"""

import random
import zlib

import torch
from torch import nn

KINDS = {}


def kind(draws=4, int8=False):
    """Registers a kind: how many modules of it are drawn, and whether it stands between two layers in integers, too."""
    def register(make):
        KINDS[make.__name__] = (make, draws, int8)
        return make
    return register


class Dice(random.Random):
    """Sizes and options."""

    def size(self, low=1, high=9):
        return self.randint(low, high)

    def batch(self):
        return self.choice([1, 1, 2, 3])

    def coin(self):
        return self.random() < 0.5

    def rows(self, *sizes):
        return torch.randn(self.batch(), *(sizes or (self.size(),)))

    def sequence(self, channels=None, length=None):
        return torch.randn(self.batch(), channels or self.size(2, 6), length or self.size(4, 11))

    def image(self, channels=None, low=5, high=11):
        return torch.randn(self.batch(), channels or self.size(1, 6), self.size(low, high), self.size(low, high))

    def volume(self, channels=None):
        return torch.randn(self.batch(), channels or self.size(1, 3), self.size(4, 6), self.size(4, 7), self.size(4, 6))

    def any(self):
        """Numbers of 2 to 4 dimensions."""
        return self.choice([self.rows, self.sequence, self.image])()

    def axis(self, x, first=1):
        """A dimension other than the batch, from the front or the back."""
        axis = self.randrange(first, x.dim())
        return axis - x.dim() if self.coin() else axis

    def axes(self, x):
        found = [axis for axis in range(1, x.dim()) if self.coin()] or [x.dim() - 1]
        return [axis - x.dim() if self.coin() else axis for axis in found]


class Call(nn.Module):
    """A function of the inputs and of layers by name."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, nn.Parameter):
                self.register_parameter(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def weight(*sizes):
    return nn.Parameter(torch.randn(*sizes))


def of(function, *inputs, **parts):
    """A module of a function that does not ask for parts."""
    return (Call(lambda m, *xs: function(*xs)) if not parts else Call(function, **parts)), inputs


def settled(module):
    """Statistics of batch norms as after training."""
    for one in module.modules():
        if isinstance(one, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
            one.running_mean.normal_()
            one.running_var.uniform_(0.5, 1.5)
    for parameter in module.parameters():
        if parameter.dim() == 1:
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    return module


class Between(nn.Module):
    """A module between two convolutions, as a network has it: what static int8 computes in integers."""

    def __init__(self, body, channels, inner):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.ReLU())
        self.first[0].bias.data.fill_(0.5)  # some of the numbers are above 0
        self.body = body
        self.last = nn.Conv2d(inner, 3, 1)

    def forward(self, x):
        return self.last(self.body(self.first(x)))


def drawn():
    """(name, module, inputs, whether static int8 forms are for it), the same at each call."""
    import small_layers, small_functions  # noqa: F401
    for name, (make, draws, int8) in KINDS.items():
        for draw in range(draws):
            seed = zlib.crc32(f"{name}.{draw}".encode())
            torch.manual_seed(seed)
            module, inputs = make(Dice(seed))
            module.eval()
            yield f"{name}.{draw}", module, inputs, False
        for draw in range(draws if int8 else 0):
            seed = zlib.crc32(f"{name}.int8.{draw}".encode())
            torch.manual_seed(seed)
            module, inputs = make(Dice(seed))
            if len(inputs) != 1 or inputs[0].dim() != 4:
                inputs = (torch.randn(2, 4, 7, 8),)
            with torch.no_grad():
                inner = module.eval()(inputs[0])
            between = Between(module, inputs[0].shape[1], inner.shape[1])
            yield f"{name}.int8.{draw}", between.eval(), inputs, True
