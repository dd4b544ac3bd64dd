"""The segmentation decoder that trains the outcome network's encoder jointly with its answers, as DeepMTS does.

Meng et al., DeepMTS: Deep multi-task learning for survival prediction, IEEE JBHI 2022. The decoder is used in training
alone; a package holds no weights of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from monai.networks.nets.resnet import ResNet
from torch import nn
from torch.nn import functional

from contract import labels


def encoder_stages(encoder: ResNet, images: torch.Tensor) -> list[torch.Tensor]:
    """The outputs of the first convolution and of the four stages, from half the images' resolution to a 32nd."""
    first = encoder.act(encoder.bn1(encoder.conv1(images)))
    one = encoder.layer1(encoder.maxpool(first))
    two = encoder.layer2(one)
    three = encoder.layer3(two)
    return [first, one, two, three, encoder.layer4(three)]


class SegmentationDecoder(nn.Module):
    """The decoder of a U-Net on the stages of an encoder whose first convolution has `width` channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        channels = [width, width, 2 * width, 4 * width, 8 * width]
        pairs = list(zip(channels[:0:-1], channels[-2::-1], strict=True))
        self.blocks = nn.ModuleList([_block(deep + skip, skip) for deep, skip in pairs])
        self.last = nn.Conv3d(width, len(labels.FOREGROUND), 1)

    def forward(self, stages: Sequence[torch.Tensor], edge: int) -> torch.Tensor:
        """Logits of GTVp and GTVn, shape (patients, 2, edge, edge, edge)."""
        *skips, values = stages
        for block, skip in zip(self.blocks, reversed(skips), strict=True):
            values = block(torch.cat([_resized(values, skip.shape[2:]), skip], dim=1))
        return _resized(self.last(values), (edge, edge, edge))


def _block(inputs: int, outputs: int) -> nn.Module:
    convolution = nn.Conv3d(inputs, outputs, 3, padding=1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm3d(outputs), nn.ReLU())


def _resized(values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return functional.interpolate(values, tuple(size), mode="trilinear", align_corners=False)
