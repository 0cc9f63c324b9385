"""Malformed, huge and foreign requests get a 4xx with a clear body, and the server lives on."""

import base64
import json
import struct
import time
import zlib

import pytest
import torch

import leanbayes as lb


def refused(reply, status):
    assert reply.status == status, reply.body
    assert set(reply.json) == {"error", "expected"}
    assert reply.json["error"]
    assert reply.json["expected"]
    return f"{reply.json['error']} / {reply.json['expected']}"


def huge_png(width, height):
    """A PNG of a few bytes that says it is huge."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = zlib.compress(b"\0" * 1000)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


BODIES = [
    (b"", 415, "an empty body"),
    (b"GIF89a\x01\x00\x01\x00", 415, "no kind"),
    (b"hello", 415, "PNG, JPEG or WebP"),
    (b"\x00" * 5000, 415, "no kind"),
    (b"PK\x03\x04", 415, "no kind"),
    (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, 422, "a PNG image that cannot be decoded"),
    (b"\xff\xd8\xff\xe0", 422, "a JPEG image that cannot be decoded"),
    (b"RIFF\x10\x00\x00\x00WEBPVP8 ", 422, "a WEBP image that cannot be decoded"),
    (huge_png(40_000, 2_000), 413, "40000x2000 / at most 32,000,000 pixels"),
    (huge_png(60_000, 60_000), 413, "at most 32,000,000 pixels"),
    (b'{"inputs": [1, 2', 400, "no JSON"),
    (b'{"inputs": NaN}', 400, "NaN is no number of JSON"),
    (b'{"inputs": \xff\xfe}', 400, "no JSON"),
    (b'{"inputs": ' + b"[" * 100_000, 400, "nested too deeply"),
    (b"[1, 2]", 422, "a list"),
    (b"{}", 422, "keys []"),
    (b'{"path": "/etc/passwd"}', 422, "keys ['path']"),
    (b'{"image": "a", "inputs": [1]}', 422, "keys ['image', 'inputs']"),
    (b'{"image": 3}', 422, "an image that is a int"),
    (b'{"image": "///"}', 422, "no base64"),
    (b'{"image": "file:///etc/passwd"}', 422, "no base64"),
    (b'{"image": "aGVsbG8="}', 415, "no kind"),
    (b'{"inputs": [[1, 2], [3]]}', 422, "unequal lengths"),
    (b'{"inputs": ["a"]}', 422, "no number"),
    (b'{"inputs": [true]}', 422, "no number"),
    (b'{"inputs": null}', 422, "no number"),
    (b'{"inputs": [1, 2, 3]}', 422, "inputs of shape 3 / finite numbers of shape 1x8x8"),
    (b'{"inputs": [' + b",".join([b"1e999"] * 64) + b"]}", 422, "infinite"),
    (b'{"inputs": [' + b",".join([b"1e300"] * 64) + b"]}", 422, "beyond float32"),
    (b'{"inputs": [' + b"9" * 5000 + b"]}", 400, "no JSON"),
    (b'{"columns": {"a": 1}}', 422, "columns, which these inputs have none of"),
]


@pytest.mark.parametrize(("body", "status", "words"), BODIES)
def test_a_body_that_is_no_input_is_refused(client, body, status, words):
    assert words in refused(client.ask(body), status)
    assert client.lives()


def test_every_cut_of_a_good_image_is_refused_or_answered(client, made):
    body = made.png(made.pixels(0, (30, 30, 3)))
    statuses = {client.ask(body[:end]).status for end in range(0, len(body), 97)}
    assert statuses <= {200, 415, 422}
    assert client.lives()


def test_random_bytes_after_a_known_start_never_break_the_server(client):
    source = torch.Generator().manual_seed(0)
    for start in (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF\x00\x01\x00\x00WEBP", b"{"):
        for _ in range(10):
            noise = bytes(torch.randint(256, (300,), generator=source).tolist())
            assert client.ask(start + noise).status in (400, 415, 422)
    assert client.lives()


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("samples=0", 422, "a whole number from 1 to 200"),
        ("samples=201", 422, "samples is '201'"),
        ("samples=-1", 422, "samples is '-1'"),
        ("samples=2.5", 422, "samples is '2.5'"),
        ("samples=", 422, "samples is ''"),
        ("samples=99999999999999999999999", 422, "samples is"),
        ("seed=9223372036854775808", 422, "seed is"),
        ("draws=2", 422, "draws is '2'"),
        ("samples=2&samples=3", 422, "each once"),
        ("sample=2", 422, "the query names ['sample']"),
        ("samples", 400, "samples=20&seed=0"),
    ],
)
def test_a_query_out_of_range_is_refused(client, made, query, status, words):
    reply = client.ask(made.png(made.pixels()), f"/predict?{query}")
    assert words in refused(reply, status)


@pytest.mark.parametrize("path", ["/nowhere", "/../etc/passwd", "/predict/", "/%2e%2e"])
def test_an_unknown_path_is_404_and_says_which_there_are(client, path):
    assert "POST /predict" in refused(client.get(path), 404)


def test_a_wrong_method_is_405_and_says_which_is_right(client):
    reply = client.get("/predict")
    assert "POST" in refused(reply, 405)
    assert reply.headers["Allow"] == "POST"
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "QUERY"):
        reply = client.ask(b"x", "/info", method)
        assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(serving):
    client = serving(upload=1000)
    assert "at most 1,000 bytes" in refused(client.ask(b"x" * 1001), 413)
    assert "at most" in refused(client.ask(b"x" * 3_000_000), 413)  # its sender can read the answer
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n"
    assert b" 413 " in client.send(head + b"\r\n", half_close=True)
    reply = client.send(head + b"Expect: 100-continue\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 413 ")  # before anything was sent
    assert client.ask(b"x" * 1000).status == 415
    assert client.lives()


def test_large_uploads_together_stay_below_a_limit(serving):
    client = serving(upload=1000, uploads=1500)
    with client.server.budget.holding(800):
        refused(client.ask(b"x" * 900), 503)
    assert client.ask(b"x" * 900).status == 415


RAW = [
    (b"", b"", 411),
    (b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n", 411),
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"hello", 411),
    (b"Content-Length: five\r\n", b"hello", 400),
    (b"Content-Length: -5\r\n", b"hello", 400),
    (b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello", 400),
    (b"Content-Length: 50\r\n", b"hello", 400),  # and closed: fewer than it said
]


@pytest.mark.parametrize(("headers", "body", "status"), RAW)
def test_a_length_that_is_missing_or_wrong_is_refused(client, headers, body, status):
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n"
    reply = client.send(head + body, half_close=True)
    assert reply.startswith(f"HTTP/1.1 {status} ".encode())
    assert set(json.loads(reply.partition(b"\r\n\r\n")[2])) == {"error", "expected"}
    assert client.lives()


@pytest.mark.parametrize(
    "request_line",
    [
        b"\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b"\r\n",
    ],
)
def test_what_is_no_http_is_refused_or_dropped(client, request_line):
    reply = client.send(request_line, half_close=True)
    assert reply == b"" or reply.split(b" ")[1][:1] in b"45"
    assert client.lives()


def test_a_client_that_sends_byte_by_byte_runs_out_of_time(serving):
    client = serving(patience=0.4)
    head = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"

    def slowly():
        yield head
        for _ in range(7):  # each byte well within the time of a single read
            time.sleep(0.1)
            yield b"x"

    reply = client.send_pieces(slowly())
    assert reply.startswith(b"HTTP/1.1 408 ")
    assert client.lives()


def test_a_network_that_fails_on_an_input_answers_422(serving, made):
    net = torch.nn.Sequential(torch.nn.Embedding(5, 4), torch.nn.Flatten(), torch.nn.Linear(8, 3))
    model = lb.bayesianize(net, lb.MeanField(), likelihood=lb.Categorical())
    served = made.images(model, shape=(2,), prepared=lambda x: x, whole=True)
    client = serving(served)
    assert client.ask('{"inputs": [4, 0]}').status == 200
    assert "the network fails on this input" in refused(client.ask('{"inputs": [5, 0]}'), 422)
    assert "not whole" in refused(client.ask('{"inputs": [0.5, 0]}'), 422)
    assert client.ask('{"inputs": [4, 1.0]}').status == 200


def test_an_image_for_a_table_and_wrong_columns_are_refused(serving, made):
    client = serving(made.table())
    assert "inputs are no images" in refused(client.ask(made.png(made.pixels())), 415)
    text = base64.b64encode(made.png(made.pixels())).decode()
    refused(client.ask(json.dumps({"image": text})), 415)
    for cells, words in (
        ({"size": 1}, "differ in ['colour']"),
        ({"size": 1, "colour": "green"}, "one of blue, red"),
        ({"size": None, "colour": "red"}, "size is null"),
        ({"size": "?", "colour": "red"}, "a number"),
    ):
        assert words in refused(client.ask(json.dumps({"columns": cells})), 422)
    assert client.ask('{"columns": {"size": 1.5, "colour": "red"}}').status == 200
    assert "true or false" in refused(client.ask('{"inputs": [true, 0, 1]}'), 422)
