"""The endpoints in OpenAPI 3.1, made from what is served, so that it cannot say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leanbayes.serving.limits import Limits
from leanbayes.serving.served import Served
from leanbayes.serving.uploads import FLOAT, WHOLE
from leanbayes.version import __version__

Schema = dict[str, Any]
ERRORS: Final = {
    "400": "The request is broken: no JSON, no Host, a wrong length.",
    "403": "It names another server or comes from a page of one.",
    "408": "Its body did not come in time.",
    "411": "It has no Content-Length.",
    "413": "Its body, or the image in it, is too large.",
    "415": "Its body is of no kind that is known.",
    "422": "Its body or query does not fit the network.",
    "503": "Too much at once; the same request may be sent again.",
}
IMAGES: Final = ("image/png", "image/jpeg", "image/webp", "application/octet-stream")
NUMBER: Final[Schema] = {"type": "number"}
TEXT: Final[Schema] = {"type": "string"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
PROBABILITY: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1.000001}


def description(served: Served, info: Mapping[str, Any], limits: Limits) -> Schema:
    """The whole document.

    Args:
        served: Shapes and columns.
        info: What `/info` answers.
        limits: Of the query.
    """
    words = f"{info['method']['name']} on {served.name}, trained on {served.data}."
    return {
        "openapi": "3.1.0",
        "info": {"title": "leanbayes serve", "version": __version__, "description": words},
        "servers": [{"url": "/"}],
        "paths": {
            "/predict": {"post": _predict(served, info, limits)},
            "/info": {"get": _got("info", "What is served.", "Info")},
            "/health": {"get": _got("health", "Whether it runs.", "Health")},
        },
        "components": {"schemas": _schemas(info["task"])},
    }


def _predict(served: Served, info: Mapping[str, Any], limits: Limits) -> Schema:
    samples = _parameter("samples", "Draws of the answer.", 1, limits.samples)
    samples["schema"]["default"] = info["samples"]["default"]
    seed = _parameter(
        "seed", "Key of the draws: the same seed gives the same answer.", 0, 2**63 - 1
    )
    draws = _parameter("draws", "1 adds every draw of the most probable classes.", 0, 1)
    return {
        "operationId": "predict",
        "summary": "Predict one input, with decomposed uncertainty.",
        "parameters": [samples, seed, draws],
        "requestBody": {"required": True, "content": _content(served)},
        "responses": {
            "200": _response("The prediction.", "Answer"),
            **{status: _response(text, "Error") for status, text in ERRORS.items()},
        },
    }


def _parameter(name: str, words: str, least: int, most: int) -> Schema:
    schema = {"type": "integer", "minimum": least, "maximum": most}
    return {"name": name, "in": "query", "description": words, "schema": schema}


def _content(served: Served) -> Schema:
    images: Schema = {kind: {} for kind in IMAGES} if served.frame is not None else {}
    return {**images, "application/json": {"schema": _body(served)}}


def _body(served: Served) -> Schema:
    """JSON with one of the ways to write an input."""
    ways = [_object({"inputs": {"oneOf": _numbers(served)}})]
    if served.frame is not None:
        words = "An image in base64, also as a data URL."
        ways.append(_object({"image": {**TEXT, "description": words}}))
    if served.columns:
        ways.append(_object({"columns": _object({c.name: _cell(c) for c in served.columns})}))
    return {"oneOf": ways}


def _cell(column: Any) -> Schema:
    return (
        {"type": "string", "enum": list(column.categories)}
        if column.categories
        else {**NUMBER, "minimum": -FLOAT, "maximum": FLOAT}
    )


def _numbers(served: Served) -> list[Schema]:
    """Nested in the shape of the input, or flat."""
    most = WHOLE if served.whole else FLOAT
    kind = "integer" if served.whole else "number"
    number: Schema = {"type": kind, "minimum": -most, "maximum": most}
    nested = number
    for size in reversed(served.shape):
        nested = {"type": "array", "items": nested, "minItems": size, "maxItems": size}
    flat = {"type": "array", "items": number, "minItems": served.inputs, "maxItems": served.inputs}
    return [nested] if len(served.shape) == 1 else [nested, flat]


def _got(name: str, words: str, schema: str) -> Schema:
    return {
        "operationId": name,
        "summary": words,
        "responses": {"200": _response(words, schema), "403": _response(ERRORS["403"], "Error")},
    }


def _response(words: str, schema: str) -> Schema:
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": words, "content": content}


def _schemas(task: str) -> Schema:
    return {
        "Answer": _classes() if task == "classes" else _targets(),
        "Error": _object({"error": TEXT, "expected": TEXT}),
        "Health": _object(
            {"status": TEXT, **dict.fromkeys(("answered", "passes", "waiting"), COUNT)}
        ),
        "Info": {"type": "object", "required": ["method", "network", "task", "classes", "input"]},
    }


def _classes() -> Schema:
    probabilities = _list(PROBABILITY)
    fields: Schema = {"label": TEXT, "index": COUNT, "confidence": PROBABILITY}
    fields |= dict.fromkeys(("total", "aleatoric", "epistemic"), NUMBER)
    fields |= {"classes": _list(TEXT), "probabilities": probabilities}
    fields |= {"spread": _spread(PROBABILITY), "set": _or_null(_list(TEXT))}
    return _answer(fields, "Labels, with uncertainty in nats.")


def _targets() -> Schema:
    names = ("mean", "std", "low", "high", "total", "aleatoric", "epistemic")
    fields: Schema = {name: _list({"type": ["number", "null"]}) for name in names}
    words = "Numbers in the units of the targets, a value a target; variances as uncertainty."
    return _answer({**fields, "spread": _spread(NUMBER)}, words)


def _answer(fields: Schema, words: str) -> Schema:
    calibration = _object(
        {
            "temperature": {"type": ["number", "null"]},
            "coverage": {"type": ["number", "null"]},
            "guaranteed": {"type": "boolean"},
        }
    )
    common = {"task": TEXT, "samples": COUNT, "seed": COUNT, "milliseconds": NUMBER}
    found = _object({**common, **fields, "calibration": _or_null(calibration)})
    found["properties"]["draws"] = _list(_object({"index": COUNT, "values": _list(NUMBER)}))
    return {**found, "description": words}


def _spread(item: Schema) -> Schema:
    return _object({level: _list(item) for level in ("0.05", "0.5", "0.95")})


def _object(properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}
