"""The loss: a sum over target tokens, to be divided by the target tokens of the global batch.

A mean per micro-batch, averaged again over micro-batches and ranks, weighs a token by how many
others happen to share its micro-batch. Summing first and dividing once gives every target token
of the optimiser step the same weight, however the step is split.
"""

from __future__ import annotations

from typing import Any

import torch

from surefoot.training.data import IGNORED


class LossModel(torch.nn.Module):
    """A causal language model whose forward is the summed loss, so that DDP sees one module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross entropy summed over all positions with a label; shape (), float32.

        Logits are computed only for positions that any sample of the batch has a target after.
        A batch without targets gives 0 with a graph: its gradients are exactly 0.
        """
        targets = labels[:, 1:]
        positions = (targets != IGNORED).any(dim=0).nonzero().squeeze(1)
        if positions.numel() == 0:
            positions = torch.zeros(1, dtype=torch.long, device=labels.device)
        output = self.model(
            input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=positions, use_cache=False
        )
        chosen = targets[:, positions]
        return torch.nn.functional.cross_entropy(
            output.logits.float().flatten(0, 1), chosen.flatten(), ignore_index=IGNORED, reduction="sum"
        )
