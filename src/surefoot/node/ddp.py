"""One DistributedDataParallel step with known weights and data. Needs torch.

``request.json``: ``{"device", "backend", "init_timeout_s", "seed", "environment"}``, the last for
`surefoot.node.found_network`. Weights, data and the values that must come out are defined in `surefoot.benchmarks.ddp_step`.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from surefoot.benchmarks.ddp_step import LEARNING_RATE, SUCCESS, batch, expected_step, weights
from surefoot.node import program
from surefoot.node.found_network import take_environment
from surefoot.node.group import device_facts, device_of, join, leave
from surefoot.node.rank import Rank, say

PROGRAM = "surefoot.node.ddp"


def model_of(seed: int, device: torch.device) -> torch.nn.Linear:
    """Linear(10, 10) with the weights of the seed."""
    matrix, bias = weights(seed)
    model = torch.nn.Linear(10, 10, device=device)
    with torch.no_grad():
        model.weight.copy_(torch.tensor(matrix))
        model.bias.copy_(torch.tensor(bias))
    return model


def parameter_digest(model: torch.nn.Linear) -> str:
    """sha256 (hex) over weight and bias, byte for byte."""
    raw = b"".join(p.detach().cpu().contiguous().numpy().tobytes() for p in (model.weight, model.bias))
    return hashlib.sha256(raw).hexdigest()


def step(rank: Rank, device: torch.device) -> dict[str, Any]:
    """Forward, loss, backward (DDP averages gradients), all-reduce of the loss, one SGD step; every value of it.

    The process group is joined already.
    """
    # TF32 would be off by more than the judge allows; some images switch it on.
    torch.set_float32_matmul_precision("highest")
    seed = rank.request["seed"]
    model = model_of(seed, device)
    wrapped = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=LEARNING_RATE)
    inputs, targets = (torch.tensor(values, device=device) for values in batch(seed, rank.rank))
    loss = torch.nn.functional.mse_loss(wrapped(inputs), targets)
    loss.backward()
    total = loss.detach().clone()
    dist.all_reduce(total)
    assert model.weight.grad is not None
    assert model.bias.grad is not None
    gradients = (model.weight.grad.cpu().tolist(), model.bias.grad.cpu().tolist())
    optimizer.step()
    return {
        "rank": rank.rank, "backend": dist.get_backend(), "world_size": dist.get_world_size(), "device": device_facts(device),
        "parameter_device": str(model.weight.device), "loss": loss.item(), "loss_sum": total.item(),
        "weight_gradient": gradients[0], "bias_gradient": gradients[1],
        "weight_after": model.weight.detach().cpu().tolist(), "bias_after": model.bias.detach().cpu().tolist(),
        "parameter_digest": parameter_digest(model),
    }  # fmt: skip


def fits(rank: Rank, total: float) -> bool:
    """Whether the sum of losses over all ranks is the one that arithmetic says."""
    return math.isclose(total, expected_step(rank.request["seed"], rank.world_size).loss_sum, rel_tol=1e-5)


def main(rank: Rank) -> None:
    """Join, step, leave."""
    network = take_environment(rank)
    device = device_of(rank)
    join(rank, device)
    data = step(rank, device)
    leave()
    say(f"rank {rank.rank}: loss {data['loss']:.6f}, sum over ranks {data['loss_sum']:.6f}, on {device}")
    if rank.rank == 0 and fits(rank, data["loss_sum"]):
        say(SUCCESS)
    rank.report({**data, "network": network})


if __name__ == "__main__":
    program.run(PROGRAM, main)
