# SPDX-License-Identifier: BSD-3-Clause
"""A module of torch, as it is: a network of timm, of torchvision, of Hugging Face, or one's own.

A module with ``forward_features`` (timm's) is asked for these: a map or tokens instead of scores of classes.  Of any
other, what it returns counts: a tensor, or several in a dictionary, list or tuple.  timm's configuration tells size and
normalization.  The module is put into evaluation mode and runs where its weights are.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np


class TorchNetwork:
    """A network that is a ``torch.nn.Module``."""

    def __init__(self, module: Any) -> None:
        self.module = self.engine = module
        facts = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None) or {}
        self.size: int | None = facts["input_size"][-1] if "input_size" in facts else None
        self.normalization = (tuple(facts["mean"]), tuple(facts["std"])) if {"mean", "std"} <= set(facts) else None

    @property
    def digest(self) -> str:
        """Of the classes of its parts and all of its weights."""
        total = hashlib.sha256(repr(self.module).encode())
        for name, tensor in self.module.state_dict().items():
            total.update(name.encode())
            total.update(np.ascontiguousarray(tensor.detach().cpu().float().numpy()).data)
        return total.hexdigest()

    def run(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs by name, of images (n, 3, h, w)."""
        import torch

        if self.module.training:
            self.module.eval()
        forward = getattr(self.module, "forward_features", self.module)
        first = next(iter(self.module.parameters()), torch.zeros(()))
        with torch.inference_mode():
            found = forward(torch.from_numpy(np.ascontiguousarray(images)).to(first.device, first.dtype))
        if isinstance(found, torch.Tensor):
            found = {"output": found}
        elif not isinstance(found, Mapping):
            found = {str(i): one for i, one in enumerate(found)}
        tensors = {
            name: one for name, one in found.items() if isinstance(one, torch.Tensor) and one.is_floating_point()
        }
        return {name: one.float().cpu().numpy() for name, one in tensors.items()}
