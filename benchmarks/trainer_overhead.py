"""What `lb.fit` costs over a bare loop: the same step, in turns with it.

    python benchmarks/trainer_overhead.py                                # ResNet-18 at width 16
    python benchmarks/trainer_overhead.py --device cuda --net wrn        # WRN-16-4

The bare loop is objective, backward, step, zero_grad and the KL edit. The trainer adds its guards,
rates, figures every hundred steps and the reading of batches, of as many images as CIFAR-10 has.
Turns of a few steps alternate, and only the ratio of their times counts.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import count
from statistics import median

import torch
from torch import nn

import leanbayes as lb
from leanbayes.train.loop import Trainer
from leanbayes.train.runtime import Runtime
from record import write_record

NETS: dict[str, Callable[[], nn.Module]] = {
    "resnet": lambda: lb.models.create("resnet18", width=16, num_classes=10, stem="cifar"),
    "wrn": lambda: lb.models.create("wide_resnet", depth=16, width=4),
}
IMAGES = 50_000
Work = Callable[[], object]


def bare(net: nn.Module, x: torch.Tensor, y: torch.Tensor, size: int, bf16: bool) -> Work:
    """Steps without a trainer."""
    model = lb.bayesianize(net, lb.MeanField(estimator="shared"), example=x[:2])
    opt = torch.optim.SGD(
        lb.param_groups(model.train(), lr=1e-5), lr=1e-5, momentum=0.9, nesterov=True
    )
    handle = lb.attach_kl(opt, model, num_data=len(x))
    likelihood, parts = lb.Categorical(), len(x) // size
    order = [torch.arange(k * size, (k + 1) * size, device=x.device) for k in range(parts)]
    numbers = count()

    def step() -> object:
        rows = order[next(numbers) % parts]
        with torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
            batch = x.index_select(0, rows), y.index_select(0, rows)
            loss = lb.objective(model, batch, likelihood, include_kl=False).loss
        loss.backward()
        opt.step()
        opt.zero_grad()
        return handle

    return step


def trained(trainer: Trainer, x: torch.Tensor, y: torch.Tensor) -> Work:
    """Steps of the trainer."""
    trainer.prepare((x, y))
    trainer.model.train()
    trainer.begin()
    batches = trainer.batches()

    def step() -> None:
        trainer.advance(*next(batches))

    return step


def seconds(work: Work, times: int, device: torch.device) -> float:
    """CPU time, or wall time on a GPU."""
    on_gpu = device.type == "cuda"
    clock = time.perf_counter if on_gpu else time.process_time
    if on_gpu:
        torch.cuda.synchronize()
    start = clock()
    for _ in range(times):
        work()
    if on_gpu:
        torch.cuda.synchronize()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--net", choices=tuple(NETS), default="resnet")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--steps", type=int, default=5, help="of a turn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json")
    args = parser.parse_args()
    device = torch.device(args.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    bf16 = device.type == "cuda"
    torch.manual_seed(0)
    x = torch.randn(IMAGES, 3, 32, 32, device=device)
    y = torch.randint(10, (len(x),), device=device)
    config = lb.FitConfig(
        steps=10**7,
        batch_size=args.batch,
        lr=1e-5,
        schedule="constant",
        progress=False,
        device=args.device,
        precision="bf16" if bf16 else "fp32",
    )
    with Runtime.of(config) as runtime:
        model = lb.bayesianize(
            NETS[args.net]().to(device), lb.MeanField(estimator="shared"), example=x[:2]
        )
        trainer = Trainer(model, lb.Categorical(), config, runtime)
        works = trained(trainer, x, y), bare(NETS[args.net]().to(device), x, y, args.batch, bf16)
        for work in works:
            seconds(work, 5, device)
        ratios, bare_ms = [], []
        for number in range(args.rounds):
            order = works if number % 2 else works[::-1]
            found = {id(work): seconds(work, args.steps, device) for work in order}
            ratios.append(found[id(works[0])] / found[id(works[1])])
            bare_ms.append(1e3 * found[id(works[1])] / args.steps)
    result = {
        "bare_ms": median(bare_ms),
        "ratio": median(ratios),
        "quartiles": [sorted(ratios)[len(ratios) // 4], sorted(ratios)[3 * len(ratios) // 4]],
        "limit": 1.02,
    }
    print(
        f"{args.net} on {args.device}: bare step {result['bare_ms']:.2f} ms, trainer x "
        f"{result['ratio']:.4f} (quartiles {result['quartiles'][0]:.3f} to "
        f"{result['quartiles'][1]:.3f}), limit 1.02"
    )
    if args.json:
        write_record(args.json, result, vars(args))


if __name__ == "__main__":
    main()
