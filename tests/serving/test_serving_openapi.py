"""The description is valid, and the answers are what it says."""

import json

import pytest


def resolved(document, schema):
    if "$ref" not in schema:
        return schema
    found = document
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def schema_of(document, path, method, status="200"):
    content = document["paths"][path][method]["responses"][status]["content"]
    return resolved(document, content["application/json"]["schema"])


def fits(document, schema, value):
    """The part of JSON Schema that the description uses, written from its definition."""
    schema = resolved(document, schema)
    if "oneOf" in schema:
        return sum(fits(document, each, value) for each in schema["oneOf"]) == 1
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    known = {"number": (int, float), "integer": int, "string": str, "boolean": bool}
    known |= {"array": list, "object": dict, "null": type(None)}
    if kinds and not any(isinstance(value, known[kind]) for kind in kinds):
        return False
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        closed = schema.get("additionalProperties", True) is False
        return (
            set(schema.get("required", ())) <= set(value)
            and not (closed and set(value) - set(properties))
            and all(
                fits(document, properties[key], value[key]) for key in properties if key in value
            )
        )
    if isinstance(value, list):
        least, most = schema.get("minItems", 0), schema.get("maxItems", len(value))
        return least <= len(value) <= most and all(
            fits(document, schema["items"], each) for each in value
        )
    if isinstance(value, (int, float)):
        return schema.get("minimum", value) <= value <= schema.get("maximum", value)
    return value in schema.get("enum", [value])


@pytest.fixture(params=["images", "table"])
def described(request, serving, made):
    client = serving(getattr(made, request.param)())
    return client, client.get("/openapi.json").json


def test_a_validator_finds_nothing_wrong(described):
    validator = pytest.importorskip("openapi_spec_validator")
    validator.validate(described[1])


def test_every_answer_fits_its_schema(described):
    client, document = described
    assert document["openapi"].startswith("3.1")
    inputs = [0.5] * client.server.routes.served.inputs
    body = json.dumps({"inputs": inputs})
    for query in ("samples=3", "samples=3&draws=1"):
        answer = client.ask(body, f"/predict?{query}").json
        assert fits(document, schema_of(document, "/predict", "post"), answer)
        assert not fits(document, schema_of(document, "/predict", "post"), {**answer, "more": 1})
    for path in ("/info", "/health"):
        assert fits(document, schema_of(document, path, "get"), client.get(path).json)
    error = client.ask(b"nonsense").json
    assert fits(document, schema_of(document, "/predict", "post", "415"), error)


def test_the_body_of_the_description_is_what_is_taken(described):
    client, document = described
    content = document["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert ("image/png" in content) == (client.server.routes.served.frame is not None)
    schema = content["application/json"]["schema"]
    size = client.server.routes.served.inputs
    for value in ({"inputs": [1] * size}, {"inputs": [1] * (size + 1)}, {"image": 3}, {}, {"x": 1}):
        taken = client.ask(json.dumps(value)).status == 200
        assert taken == fits(document, schema, value)


def test_every_path_that_is_described_is_there_and_no_other_takes_a_body(described):
    client, document = described
    methods = client.server.routes.methods
    assert set(document["paths"]) <= set(methods)
    assert [path for path, allowed in methods.items() if "POST" in allowed] == ["/predict"]
