"""Secrets in the binary form in which helm sends them (k8s.io/api/core/v1, metadata of v1)."""

import base64

MAGIC = b"k8s\0"


def varint(data, at):
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, bytes or number) of a message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            n, at = varint(data, at)
            value, at = data[at:at + n], at + n
        else:
            raise ValueError(f"wire type {key & 7} is not in these messages")
        yield key >> 3, value


def pair(data):
    entry = dict(fields(data))
    return entry.get(1, b"").decode(), entry.get(2, b"")


def metadata(data):
    texts = {1: "name", 2: "generateName", 3: "namespace", 5: "uid", 6: "resourceVersion"}
    maps = {11: "labels", 12: "annotations"}
    found = {}
    for number, value in fields(data):
        if number in texts and value:
            found[texts[number]] = value.decode()
        elif number in maps:
            key, text = pair(value)
            found.setdefault(maps[number], {})[key] = text.decode()
    return found


def decode(data):
    """The object of a request; ValueError when it is no Secret."""
    envelope = dict(fields(data[len(MAGIC):]))
    kind = dict(fields(envelope[1]))
    if not data.startswith(MAGIC) or kind.get(2) != b"Secret":
        raise ValueError(f"{kind.get(2)}: only Secrets are understood in this form")
    item = {"apiVersion": kind[1].decode(), "kind": "Secret", "metadata": {}}
    for number, value in fields(envelope[2]):
        if number == 1:
            item["metadata"] = metadata(value)
        elif number == 2:
            key, content = pair(value)
            item.setdefault("data", {})[key] = base64.b64encode(content).decode()
        elif number == 3:
            item["type"] = value.decode()
    return item
