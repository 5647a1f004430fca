"""A stand-in for the API server of Kubernetes, on loopback. It is none: no authentication, no
controllers, no defaults.

What it does for real clients (helm, kubectl): discovery and the published OpenAPI documents,
create, read, replace, apply, merge, delete, watch; every write is held against the schemas, a
StatefulSet keeps what may not change, and a pod goes through the mutating webhooks that are
configured, then through the schemas again and, where its namespace asks for it, the restricted
level of pod security.
"""

import copy
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
import uuid

import yaml

import admission
import kube_protobuf
import pod_security

GENERATED = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
CUSTOM = {("cert-manager.io", "v1"): {"issuers": "Issuer", "certificates": "Certificate"},
          ("monitoring.coreos.com", "v1"): {"servicemonitors": "ServiceMonitor",
                                            "prometheusrules": "PrometheusRule"}}
MAY_CHANGE = {"replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
              "persistentVolumeClaimRetentionPolicy", "minReadySeconds"}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


class Refusal(Exception):
    """A Status, as Kubernetes answers with."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code = code
        self.body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                     "message": message, "reason": reason, "code": code}


def merge(live, wish, before):
    """Server-side apply of one manager: what it applied before and does not any more goes. Lists
    are the manager's as a whole, which they are not everywhere in Kubernetes."""
    if not isinstance(live, dict) or not isinstance(wish, dict):
        return copy.deepcopy(wish)
    result = dict(live)
    old = before if isinstance(before, dict) else {}
    for key in set(old) - set(wish):
        result.pop(key, None)
    for key, value in wish.items():
        result[key] = merge(live.get(key), value, old.get(key))
    return result


def merge_patch(live, wish):
    """RFC 7386."""
    if not isinstance(wish, dict):
        return wish
    result = dict(live) if isinstance(live, dict) else {}
    for key, value in wish.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


class Cluster:
    """The objects. `resolve`: (namespace/name of a Service, port) to an address."""

    def __init__(self, schemas, resolve=None, with_custom=True):
        self.schemas = schemas
        self.resolve = resolve
        self.lock = threading.Condition()
        self.objects = {}  # (group, version, resource, namespace, name): object
        self.applied = {}  # the same and the manager: what it applied last
        self.events = []  # (number, key, type, object)
        self.number = 0
        self.writes = 0  # that came through the checks
        self.webhook_errors = []
        self.resources = {}  # (group, version): {resource: (kind, is_namespaced)}
        self.on_pod = None
        for key, document in schemas.documents.items():
            self.discover(key, document)
        for place, kinds in CUSTOM.items() if with_custom else ():
            self.resources[place] = {name: (kind, True) for name, kind in kinds.items()}
        for name in ("default", "kube-system"):
            self.make_namespace(name)

    def discover(self, key, document):
        group, version = ("", "v1") if key == "api/v1" else tuple(key.split("/")[1:])
        found = self.resources.setdefault((group, version), {})
        pattern = re.compile(rf"^/{re.escape(key)}(/namespaces/\{{namespace\}})?/([a-z]+)$")
        for path, operations in document["paths"].items():
            match = pattern.match(path)
            if match and "post" in operations:
                kind = operations["post"]["x-kubernetes-group-version-kind"]["kind"]
                is_namespaced = match.group(1) is not None
                if is_namespaced or match.group(2) not in found:
                    found[match.group(2)] = (kind, is_namespaced)

    def make_namespace(self, name, **labels):
        self.write(("", "v1", "namespaces", "", name), {
            "apiVersion": "v1", "kind": "Namespace", "metadata": {
                "name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}})

    # --- writes -----------------------------------------------------------------------------------

    def check(self, key, item, old):
        bare = copy.deepcopy(item)
        for member in GENERATED:
            bare["metadata"].pop(member, None)
        problems = self.schemas.problems(bare)
        if problems:
            raise Refusal(422, "Invalid", f"{item['kind']} {key[4]} is invalid: {problems}")
        if item["kind"] == "StatefulSet" and old is not None:
            for member in set(item["spec"]) | set(old["spec"]):
                if member not in MAY_CHANGE and item["spec"].get(member) != old["spec"].get(member):
                    raise Refusal(422, "Invalid", f"StatefulSet {key[4]}: spec.{member} may not "
                                  "change")

    def admit_pod(self, item, namespace, dry_run):
        space = self.objects[("", "v1", "namespaces", "", namespace)]
        hooks = [own for key, own in self.objects.items()
                 if key[2] == "mutatingwebhookconfigurations"]
        try:
            item, warnings, errors = admission.admit(item, space, hooks, self.resolve, dry_run)
        except PermissionError as error:
            raise Refusal(403, "Forbidden", str(error)) from error
        self.webhook_errors += errors
        level = space["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
        problems = pod_security.problems(item["spec"]) if level == "restricted" else []
        if problems:
            raise Refusal(403, "Forbidden", f"violates PodSecurity restricted: {problems}")
        return item, warnings

    def write(self, key, item, dry_run=False):
        """(object, warnings, whether it is new); Refusal when it may not be."""
        with self.lock:
            old = self.objects.get(key)
            if key[3] and ("", "v1", "namespaces", "", key[3]) not in self.objects:
                raise Refusal(404, "NotFound", f'namespaces "{key[3]}" not found')
        warnings = []
        self.check(key, item, old)
        if item["kind"] == "Pod" and old is None:
            item, warnings = self.admit_pod(item, key[3], dry_run)
            self.check(key, item, old)
        item = copy.deepcopy(item)
        with self.lock:
            self.writes += 1
            meta = item["metadata"]
            if key[3]:
                meta["namespace"] = key[3]
            if key[2] == "namespaces":
                meta.setdefault("labels", {})["kubernetes.io/metadata.name"] = key[4]
            meta["uid"] = old["metadata"]["uid"] if old else str(uuid.uuid4())
            meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
            meta["generation"] = (old["metadata"]["generation"] if old else 0) + 1
            if not dry_run:
                self.store(key, item, "MODIFIED" if old else "ADDED")
        if item["kind"] == "Pod" and old is None and self.on_pod and not dry_run:
            threading.Thread(target=self.on_pod, args=(key, item), daemon=True).start()
        return item, warnings, old is None

    def store(self, key, item, kind):
        self.number += 1
        item["metadata"]["resourceVersion"] = str(self.number)
        self.objects[key] = item
        self.events.append((self.number, key, kind, copy.deepcopy(item)))
        self.lock.notify_all()

    def set_status(self, key, status):
        with self.lock:
            if key in self.objects:
                self.store(key, {**self.objects[key], "status": status}, "MODIFIED")

    def apply(self, key, wish, manager, dry_run):
        with self.lock:
            live = self.objects.get(key)
        before = self.applied.get((key, manager))
        wish = copy.deepcopy(wish)
        for member in GENERATED:
            wish["metadata"].pop(member, None)
        result = self.write(key, wish if live is None else merge(live, wish, before), dry_run)
        if not dry_run:
            self.applied[(key, manager)] = wish
        return result

    def delete(self, key):
        with self.lock:
            item = self.objects.pop(key, None)
            if item is None:
                raise Refusal(404, "NotFound", f'{key[2]} "{key[4]}" not found')
            self.applied = {k: v for k, v in self.applied.items() if k[0] != key}
            self.number += 1
            self.events.append((self.number, key, "DELETED", item))
            self.lock.notify_all()
            return item

    def find(self, resource, name=None):
        """Objects, or the one of that name."""
        with self.lock:
            found = [copy.deepcopy(own) for key, own in self.objects.items() if key[2] == resource
                     and name in (None, key[4])]
        return found if name is None else found[0]


def matches(item, query):
    for text in query.get("labelSelector", "").split(","):
        key, is_equal, value = text.partition("=")
        if is_equal and item["metadata"].get("labels", {}).get(key) != value.lstrip("="):
            return False
    for text in query.get("fieldSelector", "").split(","):
        key, is_equal, value = text.partition("=")
        if is_equal and key == "metadata.name" and item["metadata"]["name"] != value:
            return False
    return True


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    cluster = None

    def log_message(self, *_):
        pass

    def answer(self, body, code=200, warnings=()):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for text in warnings:
            self.send_header("Warning", f'299 - "{text}"')
        self.end_headers()
        self.wfile.write(data)

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        parts = [urllib.parse.unquote(part) for part in url.path.split("/") if part]
        n = int(self.headers.get("Content-Length") or 0)
        data = self.rfile.read(n) if n else b""
        try:
            if parts[0] in ("version", "openapi") or len(parts) < 3 and parts[0] == "api" or len(
                    parts) < 4 and parts[0] == "apis":
                self.discovery(parts)
            else:
                self.resource(parts, query, data)
        except Refusal as refusal:
            self.answer(refusal.body, refusal.code)
        except BrokenPipeError:
            pass

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve

    def discovery(self, parts):
        cluster = self.cluster
        version = cluster.schemas.version
        if parts == ["version"]:
            major, minor = version.split(".")
            self.answer({"major": major, "minor": minor, "gitVersion": f"v{version}.0",
                         "platform": "linux/amd64"})
        elif parts == ["openapi", "v3"]:
            self.answer({"paths": {key: {"serverRelativeURL": f"/openapi/v3/{key}?hash=" +
                                         hashlib.sha256(key.encode()).hexdigest()}
                                   for key in cluster.schemas.documents}})
        elif parts[:2] == ["openapi", "v3"] and "/".join(parts[2:]) in cluster.schemas.documents:
            self.answer(cluster.schemas.documents["/".join(parts[2:])])
        elif parts == ["api"]:
            self.answer({"kind": "APIVersions", "versions": ["v1"]})
        elif parts == ["apis"]:
            groups = []
            for group, number in sorted(cluster.resources):
                if group:
                    at = {"groupVersion": f"{group}/{number}", "version": number}
                    groups.append({"name": group, "versions": [at], "preferredVersion": at})
            self.answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        else:
            place = ("", parts[1]) if parts[0] == "api" else tuple(parts[1:3])
            if place not in cluster.resources:
                raise Refusal(404, "NotFound", f"{'/'.join(parts)} is not served")
            self.answer({"kind": "APIResourceList", "apiVersion": "v1",
                         "groupVersion": "/".join(filter(None, place)),
                         "resources": [{"name": name, "singularName": kind.lower(), "kind": kind,
                                        "namespaced": is_namespaced, "verbs": VERBS}
                                       for name, (kind, is_namespaced)
                                       in sorted(cluster.resources[place].items())]})

    def locate(self, parts):
        """(group, version, resource, namespace, name), the last two "" where there are none."""
        place = ("", parts[1]) if parts[0] == "api" else tuple(parts[1:3])
        rest = parts[2:] if parts[0] == "api" else parts[3:]
        space = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            space, rest = rest[1], rest[2:]
        if rest[0] not in self.cluster.resources.get(place, {}) or len(rest) > 2:
            raise Refusal(404, "NotFound", f"{'/'.join(parts)} is not served")
        return (*place, rest[0], space, rest[1] if len(rest) > 1 else "")

    def resource(self, parts, query, data):
        key = self.locate(parts)
        if self.command == "GET":
            self.read(key, query)
        elif self.command == "DELETE":
            self.answer(self.cluster.delete(key))
        else:
            self.change(key, query, data)

    def read(self, key, query):
        cluster = self.cluster
        if query.get("watch") in ("1", "true"):
            self.watch(key, query)
            return
        with cluster.lock:
            if key[4]:
                if key not in cluster.objects:
                    raise Refusal(404, "NotFound", f'{key[2]} "{key[4]}" not found')
                self.answer(cluster.objects[key])
                return
            kind = cluster.resources[key[:2]][key[2]][0]
            found = [own for place, own in cluster.objects.items() if place[:3] == key[:3] and
                     key[3] in ("", place[3]) and matches(own, query)]
            self.answer({"kind": kind + "List", "apiVersion": "/".join(filter(None, key[:2])),
                         "metadata": {"resourceVersion": str(cluster.number)}, "items": found})

    def watch(self, key, query):
        """Events behind resourceVersion, until the client goes or its time is over."""
        if query.get("sendInitialEvents") == "true":
            raise Refusal(422, "Invalid", "sendInitialEvents is not served; list first")
        seen = int(query.get("resourceVersion") or 0)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        cluster = self.cluster
        rounds = 0
        while rounds < int(query.get("timeoutSeconds") or 60):
            with cluster.lock:
                news = [event for event in cluster.events if event[0] > seen]
                if not news:
                    rounds += not cluster.lock.wait(1)
                    continue
            for number, place, kind, item in news:
                seen = number
                if place[:3] == key[:3] and key[3] in ("", place[3]) and matches(item, query):
                    self.wfile.write(json.dumps({"type": kind, "object": item}).encode() + b"\n")
            self.wfile.flush()

    def body(self, data):
        kind = self.headers.get("Content-Type", "").split(";")[0]
        if kind == "application/vnd.kubernetes.protobuf":
            try:
                return kube_protobuf.decode(data)
            except (ValueError, KeyError) as error:
                raise Refusal(415, "UnsupportedMediaType", str(error)) from error
        if kind.endswith("yaml"):
            return yaml.safe_load(data)
        return json.loads(data)

    def change(self, key, query, data):
        cluster = self.cluster
        dry_run = query.get("dryRun") == "All"
        item = self.body(data)
        kind = self.headers.get("Content-Type", "").split(";")[0]
        if self.command == "POST":
            meta = item["metadata"]
            if "name" not in meta:
                meta["name"] = meta.get("generateName", "") + uuid.uuid4().hex[:5]
            key = (*key[:4], meta["name"])
            if key in cluster.objects:
                raise Refusal(409, "AlreadyExists", f'{key[2]} "{key[4]}" already exists')
            done = cluster.write(key, item, dry_run)
        elif self.command == "PUT":
            done = cluster.write(key, item, dry_run)
        elif kind == "application/apply-patch+yaml":
            done = cluster.apply(key, item, query["fieldManager"], dry_run)
        elif kind in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
            if key not in cluster.objects:
                raise Refusal(404, "NotFound", f'{key[2]} "{key[4]}" not found')
            done = cluster.write(key, merge_patch(cluster.objects[key], item), dry_run)
        else:
            raise Refusal(415, "UnsupportedMediaType", f"{kind} is not understood here")
        made, warnings, is_new = done
        self.answer(made, 201 if is_new else 200, warnings)


class ApiServer:
    """`with ApiServer(cluster, kubeconfig) as server:` writes the file that clients read."""

    def __init__(self, cluster, kubeconfig):
        handler = type("ClusterHandler", (Handler,), {"cluster": cluster})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        named = {"name": "stand-in"}
        with open(kubeconfig, "w", encoding="ascii") as file:
            yaml.safe_dump({
                "apiVersion": "v1", "kind": "Config", "current-context": "stand-in",
                "clusters": [{**named, "cluster": {
                    "server": f"http://127.0.0.1:{self.server.server_port}"}}],
                "users": [{**named, "user": {}}],
                "contexts": [{**named, "context": {"cluster": "stand-in", "user": "stand-in"}}]},
                file)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
