"""What an API server does with mutating webhooks: whom it asks, how, and what comes of it."""

import base64
import copy
import http.client
import json
import socket
import ssl
import uuid


def selects(selector, labels):
    """A label selector; an empty one takes everything."""
    if not all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()):
        return False
    for rule in selector.get("matchExpressions", []):
        has, value = rule["key"] in labels, labels.get(rule["key"])
        if not {"In": has and value in rule.get("values", []),
                "NotIn": not has or value not in rule.get("values", []),
                "Exists": has, "DoesNotExist": not has}[rule["operator"]]:
            return False
    return True


def patched(document, operations):
    """RFC 6902, as far as admission needs it."""
    document = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~")
                          for part in operation["path"].split("/")[1:]]
        node = document
        for part in parents:
            node = node[int(part) if isinstance(node, list) else part]
        if operation["op"] != "add":
            raise ValueError(f"operation {operation['op']} is not understood here")
        if isinstance(node, list):
            node.insert(len(node) if last == "-" else int(last), operation["value"])
        else:
            node[last] = operation["value"]
    return document


def ask(hook, body, address):
    """One call over TLS, with the configuration's authorities and the service's name."""
    service = hook["clientConfig"]["service"]
    bundle = base64.b64decode(hook["clientConfig"]["caBundle"]).decode()
    context = ssl.create_default_context(cadata=bundle)
    seconds = hook["timeoutSeconds"]
    with socket.create_connection(address, timeout=seconds) as peer:
        name = f"{service['name']}.{service['namespace']}.svc"
        with context.wrap_socket(peer, server_hostname=name) as secured:
            connection = http.client.HTTPConnection(name)
            connection.sock = secured
            connection.request("POST", f"{service['path']}?timeout={seconds}s",
                               json.dumps(body).encode(), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
    if answer.status != 200:
        raise OSError(f"the webhook answers {answer.status} {text[:200]!r}")
    return json.loads(text)["response"]


def review(pod, namespace, dry_run):
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": str(uuid.uuid4()), "operation": "CREATE", "dryRun": dry_run,
                        "kind": {"group": "", "version": "v1", "kind": "Pod"},
                        "resource": {"group": "", "version": "v1", "resource": "pods"},
                        "name": "", "namespace": namespace, "object": pod, "oldObject": None,
                        "userInfo": {"username": "system:serviceaccount:kube-system:job"}}}


def admit(pod, namespace, configurations, resolve, dry_run=False):
    """(pod, warnings, errors). `namespace`: its object; `resolve`: service to address."""
    warnings, errors = [], []
    for configuration in configurations:
        for hook in configuration["webhooks"]:
            if not (selects(hook.get("objectSelector", {}), pod["metadata"].get("labels", {})) and
                    selects(hook.get("namespaceSelector", {}), namespace["metadata"]["labels"])):
                continue
            name = namespace["metadata"]["name"]
            try:
                body = review(pod, name, dry_run)
                response = ask(hook, body, resolve(hook["clientConfig"]["service"]))
                if response["uid"] != body["request"]["uid"]:
                    raise ValueError("the answer is to another review")
                if not response["allowed"]:
                    raise PermissionError(f"{hook['name']} refuses the pod")
                warnings += response.get("warnings", [])
                if "patch" in response:
                    pod = patched(pod, json.loads(base64.b64decode(response["patch"])))
            except PermissionError:
                raise
            except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
                if hook["failurePolicy"] != "Ignore":
                    raise PermissionError(f"{hook['name']} failed: {error}") from error
                errors.append(str(error))
    return pod, warnings, errors
