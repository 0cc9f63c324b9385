"""Result files as the commands write them, from made-up numbers: for tests of the report."""

import base64
import struct
import zlib

import numpy as np

KINDS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
CLASSES = ("T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker")
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
# label: temperature of the logits (above 1: too sure), share of epistemic uncertainty, price
METHODS = {
    "map": (2.6, 0.0, 1.0),
    "mean_field": (1.9, 0.18, 1.3),
    "rank_one": (1.8, 0.22, 1.15),
    "ensemble": (1.6, 0.4, 4.0),
    "laplace": (1.5, 0.1, 1.02),
    "mc_dropout": (2.0, 0.12, 1.0),
}
ENVIRONMENT = {"leanbayes": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}
PROVENANCE = {
    "command": "leanbayes evaluate runs/one --suite standard --out one.json",
    "commit": "0123abc",
    "environment": ENVIRONMENT,
}


class Answers:
    """Probabilities of made-up answers and what metrics say of them."""

    def __init__(self, seed, count, hardness, sharpness, epistemic, classes=8):
        noise = np.random.default_rng(seed)
        logits = noise.normal(size=(count, classes)) * 1.1
        labels = noise.integers(classes, size=count)
        logits[np.arange(count), labels] += noise.gamma(4.0, 1.3, size=count) * (1 - hardness)
        logits *= sharpness
        self.probs = np.exp(logits - logits.max(1, keepdims=True))
        self.probs /= self.probs.sum(1, keepdims=True)
        self.labels = labels
        self.confidence = self.probs.max(1)
        self.right = self.probs.argmax(1) == labels
        self.total = -(self.probs * np.log(self.probs + 1e-12)).sum(1)
        spread = 0.7 + 0.3 * noise.random(count) + hardness
        self.epistemic = self.total * np.clip(epistemic * spread, 0, 0.95)

    def figures(self):
        own = self.probs[np.arange(len(self.labels)), self.labels]
        truth = np.eye(self.probs.shape[1])[self.labels]
        found = {
            "accuracy": self.right.mean(),
            "nll": -np.log(own + 1e-12).mean(),
            "ece": self.ece(),
            "brier": ((self.probs - truth) ** 2).sum(1).mean(),
            "total": self.total.mean(),
            "aleatoric": (self.total - self.epistemic).mean(),
            "epistemic": self.epistemic.mean(),
            "total_right": self.total[self.right].mean(),
            "total_wrong": self.total[~self.right].mean(),
            "error_auroc": auroc(self.total[self.right], self.total[~self.right]),
        }
        return plain(found)

    def bins(self):
        at = np.clip(np.ceil(self.confidence * 15).astype(int) - 1, 0, 14)
        for bin_ in range(15):
            yield self.confidence[at == bin_], self.right[at == bin_]

    def ece(self):
        gaps = [abs(c.mean() - r.mean()) * len(c) for c, r in self.bins() if len(c)]
        return sum(gaps) / len(self.right)

    def curves(self):
        order = np.argsort(self.total, kind="stable")
        kept = [max(1, round(len(order) * at / 20)) for at in range(1, 21)]
        edges = np.linspace(0, np.log(self.probs.shape[1]), 31)
        return {
            "reliability": {
                "confidence": [float(c.mean()) if len(c) else None for c, _ in self.bins()],
                "accuracy": [float(r.mean()) if len(c) else None for c, r in self.bins()],
                "count": [len(c) for c, _ in self.bins()],
            },
            "rejection": {
                "coverage": [at / 20 for at in range(1, 21)],
                "accuracy": [float(self.right[order[:k]].mean()) for k in kept],
            },
            "histogram": {
                "edges": edges.tolist(),
                "total": np.histogram(np.clip(self.total, 0, edges[-1]), edges)[0].tolist(),
                **self._epistemic(edges[-1]),
            },
        }

    def _epistemic(self, top):
        edges = top * (np.arange(241) / 240) ** 2
        counts = np.histogram(self.epistemic, edges)[0]
        used = np.flatnonzero(counts)[-1] + 1
        return {
            "epistemic_edges": edges[: used + 1].tolist(),
            "epistemic": counts[:used].tolist(),
        }


def auroc(inside, outside):
    every = np.concatenate([inside, outside])
    ranks = np.argsort(np.argsort(every, kind="stable"), kind="stable") + 1.0
    found = ranks[len(inside) :].sum() - len(outside) * (len(outside) + 1) / 2
    return found / (len(inside) * len(outside))


def plain(table):
    return {key: round(float(value), 6) for key, value in table.items()}


def evaluation(label="map", seed=0, *, examples=True, sweep=True, kinds=KINDS):
    """A classification's evaluation with all of its splits."""
    temperature, epistemic, _ = METHODS.get(label, (1.3, 0.2, 1.5))

    own = sum(map(ord, label)) % 97  # methods differ in more than their temperature

    def answers(at, hardness, count=300):
        hardness = min(0.97, hardness + 0.001 * own)
        return Answers([seed, at, own], count, hardness, temperature, epistemic)

    clean = answers(0, 0.0, 1500)
    splits = {"test": _split("clean", clean, curves=clean.curves(), figures=clean.figures())}
    if sweep:
        splits["test"]["curves"]["samples"] = _sweep(clean.figures())
    if examples:
        splits["test"]["examples"] = _examples(clean)
    for at, kind in enumerate(kinds):
        for severity in range(1, 6):
            found = answers(10 * at + severity, min(0.9, severity * (0.08 + 0.01 * (at % 5))))
            shift = {"name": kind, "severity": severity}
            name = f"corrupted/{kind}/{severity}"
            splits[name] = _split("corrupted", found, of="test", shift=shift)
    for level in LEVELS:
        found = answers(900, level * 0.95)
        shift = {"name": "mix_noise", "level": level}
        splits[f"noise/{level}"] = _split("shifted", found, of="test", shift=shift)
    for at, (name, hardness) in enumerate({"ood/digits": 0.8, "pgd": 0.95}.items()):
        kind = "adversarial" if name == "pgd" else "foreign"
        splits[name] = _foreign(clean, answers(990 + at, hardness, 800), kind, epistemic > 0)
    return {
        "suite": {"name": "standard", "data": "fashion_mini"},
        "task": "classification",
        "classes": list(CLASSES),
        "settings": {"samples": 1 if label == "map" else 20, "seed": seed, "batch_size": 500},
        "splits": splits,
        "summary": _summary(splits),
        "seconds": 1.5,
    }


def _split(kind, answers, of=None, shift=None, **more):
    more.setdefault("figures", answers.figures())
    head = {"kind": kind, "of": of, "shift": shift, "count": len(answers.right)}
    return {**{k: v for k, v in head.items() if v is not None}, **more, "seconds": 0.1}


def _foreign(clean, answers, kind, random):
    figures = {"auroc_total": auroc(clean.total, answers.total)}
    if random:
        figures["auroc_epistemic"] = auroc(clean.epistemic, answers.epistemic)
    return _split(kind, answers, of="test", figures=plain(figures), curves=answers.curves())


def _summary(splits):
    corrupted = [s["figures"] for s in splits.values() if s["kind"] == "corrupted"]
    found = {name: splits["test"]["figures"][name] for name in ("accuracy", "nll", "ece", "brier")}
    for name in ("accuracy", "nll", "ece") if corrupted else ():
        found[f"corrupted_{name}"] = float(np.mean([figures[name] for figures in corrupted]))
    for name, split in splits.items():
        if split["kind"] in ("foreign", "adversarial"):
            short = name.removeprefix("ood/")
            found |= {f"{key}_{short}": value for key, value in split["figures"].items()}
    return plain(found)


def _sweep(figures):
    draws = [1, 2, 4, 8, 16, 32]
    worse = {"accuracy": -0.03, "nll": 0.12, "ece": 0.03, "brier": 0.04}
    return {
        "samples": draws,
        **{k: [figures[k] + by / d for d in draws] for k, by in worse.items()},
    }


def _examples(answers):
    order = np.argsort(answers.total, kind="stable")
    return {"certain": [_example(answers, at) for at in order[:8]],
            "uncertain": [_example(answers, at) for at in order[::-1][:8]]}  # fmt: skip


def _example(answers, at):
    return {
        "image": f"data:image/png;base64,{picture(int(at))}",
        "label": CLASSES[answers.probs[at].argmax()],
        "target": CLASSES[answers.labels[at]],
        "confidence": float(answers.confidence[at]),
        "total": float(answers.total[at]),
        "epistemic": float(answers.epistemic[at]),
    }


def picture(seed, size=28):
    """A grey PNG, as base64."""
    y, x = np.mgrid[:size, :size] / size
    wave = np.sin(6 * x + seed) * np.cos(5 * y - seed)
    rows = (127 + 127 * wave).astype(np.uint8)
    return base64.b64encode(png(rows)).decode()


def png(rows):
    """A grey picture [height, width] as a file."""
    body = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", rows.shape[1], rows.shape[0], 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(body)), (b"IEND", b"")]
    pieces = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(pieces)


def layers(label="mean_field"):
    """LAYERS of a small net."""
    share = {"map": 0.0, "partial": 0.05}.get(label, 1.0)
    sizes = {"conv1": 150, "conv2": 2400, "fc1": 30720, "fc2": 10164, "fc3": 850}
    found = []
    for at, (name, count) in enumerate(sizes.items()):
        random = round(count * share * (1 - 0.1 * at))
        std = {"low": 0.002 * (at + 1), "median": 0.01 * (at + 1), "high": 0.05 * (at + 1)}
        found.append(
            {"name": name, "kind": "Conv2d" if at < 2 else "Linear", "parameters": count,
             "random": random, "share": random / count, "std": std if random else None,
             "relative": 0.1 * (at + 1) if random else None}
        )  # fmt: skip
    return found


def evaluated(label="map", **more):
    """The file of `leanbayes evaluate RUN --suite NAME --out FILE`."""
    return {"kind": "evaluation", "method": label, **PROVENANCE, "parameters": 44_284,
            "parameters_added": 0 if label == "map" else 44_284, "layers": layers(label),
            "evaluation": evaluation(label, **more)}  # fmt: skip
