"""api/openapi.yaml as a test reads it: linted, and with schemas that admit nothing else."""

import re

import jsonschema
import yaml

METHODS = ("get", "put", "post", "delete", "patch", "options", "trace")
OPERATION_KEYS = {"operationId", "summary", "description", "parameters", "requestBody", "responses",
                  "security", "tags", "x-deft-need"}


class StrictLoader(yaml.SafeLoader):
    """Keys that are there twice hide each other elsewhere."""


def strict_mapping(loader, node, deep=False):
    keys = [loader.construct_object(key, deep=deep) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    assert not twice, f"{node.start_mark}: twice: {twice}"
    return yaml.SafeLoader.construct_mapping(loader, node, deep)


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, strict_mapping)


class Operation:
    def __init__(self, document, path, method, item, spec):
        self.id = spec["operationId"]
        self.path = path
        self.method = method.upper()
        self.spec = spec
        self.parameters = [document.resolve(p) for p in
                           item.get("parameters", []) + spec.get("parameters", [])]
        self.responses = {status: document.resolve(r) for status, r in spec["responses"].items()}
        self.is_open = spec.get("security") == []
        pieces = re.split(r"\{\w+\}", path)
        self.pattern = re.compile("[^/?]+".join(re.escape(p) for p in pieces) + r"(\?.*)?$")

    @property
    def own_statuses(self):
        return {int(status) for status in self.responses if status != "default"}

    def codes(self, status):
        """Problem codes that the document gives a status of this operation."""
        response = self.responses.get(str(status), {})
        default = self.responses["default"]["x-deft-statuses"]
        return set(response.get("x-deft-codes", [])) | set(default.get(str(status), []))


class Document:
    def __init__(self, text):
        self.root = yaml.load(text, StrictLoader)
        self.used = set()
        self.operations = {}
        for path, item in self.root["paths"].items():
            for method in METHODS:
                if method in item:
                    operation = Operation(self, path, method, item, item[method])
                    assert operation.id not in self.operations, f"{operation.id} is there twice"
                    self.operations[operation.id] = operation

    def resolve(self, node):
        while isinstance(node, dict) and "$ref" in node:
            pointer = node["$ref"]
            assert pointer.startswith("#/components/"), f"{pointer} leads out of the document"
            self.used.add(pointer)
            node = self.root
            for step in pointer[2:].split("/"):
                assert step in node, f"{pointer} leads nowhere"
                node = node[step]
        return node

    def leave_out(self, path):
        """What this build does not have."""
        del self.root["paths"][path]
        self.operations = {name: operation for name, operation in self.operations.items()
                           if operation.path != path}

    def find(self, method, path):
        for operation in self.operations.values():
            if operation.pattern.fullmatch(path) and operation.method == method:
                return operation
        return None

    # --- schemas ----------------------------------------------------------------------------------

    def close(self, schema, inside=False):
        """Without references, and with objects that have the members that are described only."""
        schema = self.resolve(schema)
        if not isinstance(schema, dict):
            return schema
        closed = {}
        for key, value in schema.items():
            if key == "properties":
                closed[key] = {name: self.close(s) for name, s in value.items()}
            elif key in ("items", "additionalProperties") and isinstance(value, dict):
                closed[key] = self.close(value)
            elif key in ("allOf", "anyOf", "oneOf"):
                closed[key] = [self.close(s, inside=True) for s in value]
            else:
                closed[key] = value
        if not inside and ("properties" in closed or "allOf" in closed or "oneOf" in closed):
            closed["unevaluatedProperties"] = False
        return closed

    def check(self, schema, value, what):
        validator = jsonschema.Draft202012Validator(self.close(schema))
        errors = sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.path)))
        if errors:
            at = "/".join(map(str, errors[0].path))
            raise AssertionError(f"{what}: {at}: {errors[0].message[:300]}")


# --- lint -----------------------------------------------------------------------------------------


def each_schema(document, node, at="#"):
    """Every schema of the document, with where it stands."""
    if isinstance(node, dict):
        for key, value in node.items():
            here = f"{at}/{key}"
            if key == "schema" and isinstance(value, dict):
                yield here, value
            elif at.endswith("/components/schemas"):
                yield here, value
            yield from each_schema(document, value, here)
    elif isinstance(node, list):
        for i, value in enumerate(node):
            yield from each_schema(document, value, f"{at}/{i}")


def lint_schema(document, at, schema):
    jsonschema.Draft202012Validator.check_schema(schema)
    if isinstance(schema, dict) and "properties" in schema and "allOf" not in schema:
        unknown = set(schema.get("required", [])) - set(schema["properties"])
        assert not unknown, f"{at}: {unknown} are required and not described"
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key == "properties":
            for name, inner in value.items():
                lint_schema(document, f"{at}/{name}", document.resolve(inner))
        elif key == "items":
            lint_schema(document, f"{at}/items", document.resolve(value))


def lint_response(document, at, response):
    assert response.get("description"), f"{at} has no description"
    for kind, content in response.get("content", {}).items():
        assert re.fullmatch(r"[a-z]+/[a-z+.-]+", kind), f"{at}: {kind}"
        assert "schema" in content, f"{at}: {kind} has no schema"
        for event in content.get("x-deft-events", {}).values():
            document.resolve(event)
    for name, header in response.get("headers", {}).items():
        assert "schema" in document.resolve(header), f"{at}: {name} has no schema"


def lint_operation(document, operation):
    at = f"{operation.method} {operation.path}"
    assert set(operation.spec) <= OPERATION_KEYS, f"{at}: {set(operation.spec) - OPERATION_KEYS}"
    assert operation.spec.get("summary"), f"{at} has no summary"
    assert operation.is_open != (operation.spec.get("x-deft-need") in
                                 ("agent", "viewer", "operator")), f"{at}: whose is it?"
    for status, response in operation.responses.items():
        assert re.fullmatch("[1-5][0-9][0-9]|default", status), f"{at}: status {status}"
        lint_response(document, f"{at} {status}", response)
    assert any(status.startswith("2") for status in operation.responses), f"{at} never succeeds"
    assert "default" in operation.responses, f"{at} lacks what any request may get"
    if not operation.is_open:
        assert {401, 403} <= operation.own_statuses, f"{at} is refused to nobody"
    named = re.findall(r"\{(\w+)\}", operation.path)
    in_path = [p["name"] for p in operation.parameters if p["in"] == "path"]
    assert sorted(named) == sorted(in_path), f"{at}: parameters {in_path}"
    keys = [(p["in"], p["name"]) for p in operation.parameters]
    assert len(keys) == len(set(keys)), f"{at}: a parameter is there twice"
    for parameter in operation.parameters:
        assert parameter["in"] in ("path", "query", "header"), f"{at}: {parameter}"
        assert parameter["in"] != "path" or parameter.get("required") is True, f"{at}: {parameter}"
        assert "schema" in parameter, f"{at}: {parameter['name']} has no schema"
    body = operation.spec.get("requestBody")
    if body is not None:
        assert operation.method in ("POST", "PUT"), f"{at} has a body"
        assert "schema" in body["content"]["application/json"], f"{at}: the body has no schema"
        assert 415 in operation.own_statuses, f"{at} takes bodies of any type"


def lint(document):
    root = document.root
    assert re.fullmatch(r"3\.1\.\d+", root["openapi"]), root["openapi"]
    assert set(root) == {"openapi", "info", "servers", "security", "paths", "components"}, set(root)
    assert {"title", "version"} <= set(root["info"])
    for requirement in root["security"]:
        assert set(requirement) <= set(root["components"]["securitySchemes"])
    for path, item in root["paths"].items():
        assert path.startswith("/"), path
        assert set(item) <= set(METHODS) | {"parameters", "summary"}, f"{path}: {set(item)}"
    templates = [re.sub(r"\{\w+\}", "{}", path) for path in root["paths"]]
    assert len(templates) == len(set(templates)), "two paths are the same"
    for operation in document.operations.values():
        lint_operation(document, operation)
    n = 0
    for at, schema in each_schema(document, root):
        document.close(schema)  # every reference leads somewhere
        lint_schema(document, at, document.resolve(schema))
        n += 1
    for kind in ("parameters", "responses", "schemas"):
        for name in root["components"][kind]:
            pointer = f"#/components/{kind}/{name}"
            assert pointer in document.used, f"{pointer} is not used"
    return n
