"""A pre-trained ResNet-20 made Bayesian by `lb.adapt`: NLL and calibration before and after.

    python benchmarks/fine_tuning.py --data cifar.npz --weights resnet20.th --device cuda

`data`: an npz with x_train, y_train, x_test, y_test (uint8 images [N, 32, 32, 3]). Random crops and
flips on the device. The network has seen the training images; the test images it has not.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import leanbayes as lb
from record import write_record

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def images(x: Any, device: str) -> Tensor:
    scaled = torch.from_numpy(x).to(device).float().div(255)
    mean, std = (torch.tensor(v, device=device) for v in (MEAN, STD))
    return ((scaled - mean) / std).permute(0, 3, 1, 2).contiguous()


def augmented(x: Tensor) -> Tensor:
    """Half of the images mirrored, all moved by up to four pixels, a shift a batch part."""
    flip = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
    x = torch.where(flip, x.flip(3), x)
    padded = F.pad(x, (4, 4, 4, 4))
    parts = []
    for part in padded.chunk(8):
        dy, dx = torch.randint(0, 9, (2,)).tolist()
        parts.append(part[:, :, dy : dy + 32, dx : dx + 32])
    return torch.cat(parts)


def scores(model: lb.BayesianModel, test: tuple[Tensor, Tensor]) -> dict[str, float]:
    x, y = test
    options: dict[str, Any] = {"likelihood": lb.Categorical(), "samples": 20, "seed": 0}
    parts = [lb.predict(model, part, **options).to("cpu") for part in x.split(500)]
    p = type(parts[0]).cat(parts)
    y = y.cpu()
    return {
        "accuracy": (p.label == y).double().mean().item(),
        "nll": -p.log_prob(y).mean().item(),
        "ece": float(lb.metrics.ece(p.probs, y)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--scale-lr", type=float, default=0.1)
    parser.add_argument("--json")
    args = parser.parse_args()
    arrays = np.load(args.data, allow_pickle=False)
    train, test = (
        (images(arrays[f"x_{s}"], args.device), torch.from_numpy(arrays[f"y_{s}"]).long())
        for s in ("train", "test")
    )
    train, test = (train[0], train[1].to(args.device)), (test[0], test[1].to(args.device))
    net = lb.models.create("resnet20")
    state = torch.load(args.weights, weights_only=True, map_location="cpu")["state_dict"]
    net.load_state_dict({key.removeprefix("module."): value for key, value in state.items()})
    net = net.to(args.device).eval()
    results: dict[str, Any] = {"before": scores(lb.bayesianize(copy.deepcopy(net), lb.MAP()), test)}
    config = lb.FitConfig(
        epochs=args.epochs,
        batch_size=128,
        lr=args.lr,
        posterior_lr=args.scale_lr,
        weight_decay=5e-4,
        batchnorm="frozen",
        progress=False,
        device=args.device,
        precision="bf16" if args.device == "cuda" else "fp32",
    )
    for method in (lb.MAP(), lb.MeanField(), lb.Partial(rate=0.05)):
        start = time.perf_counter()
        done = lb.adapt(copy.deepcopy(net), method, train, config=config, augment=augmented)
        seconds = time.perf_counter() - start
        results[method.name] = {**scores(done.model, test), "seconds": seconds}
        print(method.name, results[method.name], "before", results["before"], flush=True)
        if args.json:
            write_record(args.json, results, vars(args))


if __name__ == "__main__":
    main()
