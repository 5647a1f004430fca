"""Objects against what Kubernetes publishes of its API: unknown members, types, what is missing.

The documents lie beside the checkout (shared/k8s-openapi). custom_schemas.json has what we use of
kinds that others define: it is ours, and as strict.
"""

import os

import tools


def close(schema):
    """What a schema does not name is refused, at every depth."""
    if isinstance(schema, list):
        for item in schema:
            close(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict):
            schema.setdefault("additionalProperties", False)
        for value in schema.values():
            close(value)


class Schemas:
    """All kinds of one version of Kubernetes, such as "1.33"."""

    def __init__(self, version):
        folder = os.path.join(tools.SHARED, "k8s-openapi", version)
        try:
            import jsonschema
        except ImportError as error:
            tools.skip(str(error))
        if not os.path.isdir(folder):
            tools.skip("there is no shared/k8s-openapi")
        self.version = version
        self.validator = jsonschema.Draft202012Validator
        self.documents = {}  # "api/v1", "apis/apps/v1" and so on
        self.found = {}  # (apiVersion, kind): a validator
        for path, _, names in os.walk(folder):
            for name in sorted(names):
                document = tools.read_json(os.path.join(path, name))
                key = os.path.relpath(os.path.join(path, name), folder)[:-len(".json")]
                self.documents[key] = document
                self.read(document)
        self.read(tools.read_json(os.path.join(tools.HERE, "custom_schemas.json")))

    def read(self, document):
        own = {"components": document["components"]}
        close(own["components"]["schemas"])
        for name, schema in own["components"]["schemas"].items():
            for meant in schema.get("x-kubernetes-group-version-kind", []):
                group = meant["group"] + "/" if meant["group"] else ""
                key = (group + meant["version"], meant["kind"])
                top = {"$ref": f"#/components/schemas/{name}", **own}
                self.found.setdefault(key, self.validator(top))

    def problems(self, item):
        """Sentences; none for an object that is legal."""
        kind = (item.get("apiVersion"), item.get("kind"))
        if kind not in self.found:
            return [f"{kind[0]} {kind[1]} is no kind of Kubernetes {self.version}"]
        name = f"{kind[1]}/{item.get('metadata', {}).get('name')}"
        return [f"{name}: {'.'.join(map(str, error.absolute_path))}: {error.message[:200]}"
                for error in self.found[kind].iter_errors(item)]
