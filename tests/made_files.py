"""Further made-up result files: comparisons, the demo, landscapes, trajectories, regression."""

import numpy as np

from made_results import ENVIRONMENT, METHODS, PROVENANCE, evaluation, layers, plain

PAIRED = ("accuracy", "nll", "ece", "brier")


def moments(values):
    error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "standard_error": error}


def compared(labels=tuple(METHODS), seeds=(0, 1), **more):
    """The file of `leanbayes compare ... --suite NAME`."""
    runs = {label: [evaluation(label, seed, **more) for seed in seeds] for label in labels}
    rows = [_row(label, found, runs.get("map")) for label, found in runs.items()]
    return {"command": "leanbayes compare fashion_mini --suite standard", "data": "fashion_mini",
            "seeds": list(seeds), "suite": "standard", "rows": rows}  # fmt: skip


def _row(label, found, reference):
    price = METHODS.get(label, (0, 0, 1.5))[2]
    names = found[0]["summary"]
    row = {
        "method": label,
        "command": f"leanbayes compare fashion_mini --methods {label}",
        "commit": "0123abc",
        "environment": ENVIRONMENT,
        "config": {"fit": {"lr": 0.001, "epochs": 5}, "samples": 20},
        "figures": {name: moments([one["summary"][name] for one in found]) for name in names},
        "prices": {"parameters_added": round(1000 * (price - 1)), "step_ratio": price,
                   "predict_ratio": 20 * price - 19, "peak_memory_ratio": 1 + 0.1 * price},
        "parameters": 44_284,
        "parameters_added": round(1000 * (price - 1)),
        "training_seconds": 10 * price,
        "seconds": 12 * price,
        "layers": layers(label),
        "runs": [{"seed": at, "evaluation": one} for at, one in enumerate(found)],
    }  # fmt: skip
    if label != "map" and reference is not None:
        row["significance"] = {name: _against(name, found, reference) for name in PAIRED}
    return row


def _against(name, found, reference):
    gaps = [a["summary"][name] - b["summary"][name] for a, b in zip(found, reference, strict=True)]
    mean = float(np.mean(gaps))
    better = (mean > 0) == (name == "accuracy") if abs(mean) > 0.005 else None
    return {"difference": mean, "standard_error": 0.002, "p": 0.01 if better is not None else 0.4,
            "better": better}  # fmt: skip


def demo(labels=tuple(METHODS), **more):
    """demo.json."""
    found = {label: evaluation(label, **more) for label in labels}
    base = found[labels[0]]["summary"]
    rows = []
    for label, one in found.items():
        summary = one["summary"]
        figures = {
            **{name: summary[name] for name in PAIRED},
            "ood_auroc_total": summary["auroc_total_digits"],
            "ood_auroc_epistemic": summary.get("auroc_epistemic_digits"),
        }
        gaps = {name: {"mean": summary[name] - base[name], "standard_error": 0.001}
                for name in PAIRED}  # fmt: skip
        price = METHODS.get(label, (0, 0, 1.5))[2]
        rows.append(
            {"label": label, "method": label, "note": "",
             **{k: {"mean": v, "standard_error": 0.002} for k, v in figures.items()},
             "minus_baseline": gaps, "parameters_added": round(1000 * (price - 1)), "samples": 20,
             "step_ratio": price, "training_ratio": price, "predict_ratio": 20 * price - 19,
             "seconds": 2.0, "evaluation": one}
        )  # fmt: skip
    return {"command": "leanbayes demo --seed 0 --seeds 2", "versions": ENVIRONMENT,
            "settings": {"epochs": 2}, "seeds": [0, 1], "scored_on": "1,500 test images",
            "parameters": 44_284, "methods": rows, "left_out": {}, "picture": None, "by_seed": [],
            "seconds": 9.0, "commit": "0123abc"}  # fmt: skip


def landscape(label="ensemble", size=21):
    """The file of `leanbayes landscape RUN --out FILE`."""
    at = np.linspace(-1.5, 1.5, size)
    members = [(-0.8, -0.5), (0.9, -0.4), (0.0, 0.8)]
    wells = [1 - np.exp(-3 * ((at - x) ** 2 + (at[:, None] - y) ** 2)) for x, y in members]
    loss = 0.3 + 2 * np.min(wells, axis=0)
    plane = {
        "x": at.tolist(),
        "y": at.tolist(),
        "loss": loss.round(5).tolist(),
        "members": [{"label": f"member {i}", "x": x, "y": y, "loss": 0.3}
                    for i, (x, y) in enumerate(members)],
        "explained": [0.61, 0.33],
        "rows": 500,
    }  # fmt: skip
    return {"kind": "landscape", **PROVENANCE, "method": label, "landscape": plane}


def trajectory(label="ensemble", start=0.4):
    """The file of `leanbayes trajectory RUN --out FILE`."""
    points = [
        {"step": 100 * at, "accuracy": 0.85 + 0.004 * at, "nll": 0.5 - 0.01 * at,
         "disagreement": 0.1 - 0.002 * at, "normalised": start + 0.01 * at}
        for at in range(8)
    ]  # fmt: skip
    return {"kind": "trajectory", **PROVENANCE, "method": label, "points": points}


def regressed(label="map"):
    """An evaluation of a regression."""
    nominal = [at / 10 for at in range(1, 10)]
    sharp = {"map": 0.8}.get(label, 0.97)
    figures = {"rmse": 2.5, "lpd": -2.4, "coverage_95": 0.95 * sharp, "crps": 1.3,
               "aleatoric": 4.0, "epistemic": 0.5}  # fmt: skip
    split = {"kind": "clean", "count": 50, "figures": figures, "seconds": 0.1,
             "curves": {"coverage": {"nominal": nominal,
                                     "observed": [sharp * v for v in nominal]}}}  # fmt: skip
    found = {"suite": {"name": "quick", "data": "boston"}, "task": "regression",
             "settings": {"samples": 20, "seed": 0}, "splits": {"test": split},
             "summary": plain(figures), "seconds": 0.1}  # fmt: skip
    return {"kind": "evaluation", "method": label, **PROVENANCE, "parameters": 700,
            "parameters_added": 0, "evaluation": found}  # fmt: skip
