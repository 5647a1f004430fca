"""What must hold between the objects of one release, and no schema says."""

import base64

import pod_security


def by_kind(items, kind):
    return [item for item in items if item["kind"] == kind]


def pods(items):
    """(name, labels, spec, names of claims) of everything that makes pods."""
    for item in items:
        if item["kind"] == "Pod":
            yield item["metadata"]["name"], {}, item["spec"], []
        elif item["kind"] == "StatefulSet":
            template = item["spec"]["template"]
            claims = [claim["metadata"]["name"]
                      for claim in item["spec"].get("volumeClaimTemplates", [])]
            yield item["metadata"]["name"], template["metadata"]["labels"], template["spec"], claims


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def sources(volume):
    """(kind, name, mode) of what a volume is filled from."""
    for part in volume.get("projected", {}).get("sources", []) or [volume]:
        mode = volume.get("projected", {}).get("defaultMode")
        if "secret" in part:
            own = part["secret"]
            yield "Secret", own.get("secretName", own.get("name")), own.get("defaultMode", mode)
        if "configMap" in part:
            yield "ConfigMap", part["configMap"]["name"], 0o440


def pod_problems(items, given):
    """`given`: names of Secrets that somebody else makes."""
    names = {(item["kind"], item["metadata"]["name"]) for item in items}
    names |= {("Secret", item["spec"]["secretName"]) for item in by_kind(items, "Certificate")}
    for pod, labels, spec, claims in pods(items):
        volumes = {volume["name"] for volume in spec.get("volumes", [])} | set(claims)
        used = set()
        for own in containers(spec):
            paths = [mount["mountPath"] for mount in own.get("volumeMounts", [])]
            mounts = {mount["name"] for mount in own.get("volumeMounts", [])}
            used |= mounts
            if mounts - volumes:
                yield f"{pod}: {own['name']} mounts {mounts - volumes}, which the pod lacks"
            if len(paths) != len(set(paths)):
                yield f"{pod}: {own['name']} mounts two volumes at one place"
            if not own.get("securityContext", {}).get("readOnlyRootFilesystem"):
                yield f"{pod}: the root of {own['name']} can be written"
        if volumes - used:
            yield f"{pod}: nobody mounts {volumes - used}"
        for volume in spec.get("volumes", []):
            for kind, name, mode in sources(volume):
                if (kind, name) not in names and name not in given:
                    yield f"{pod}: there is no {kind} {name}"
                if kind == "Secret" and (mode is None or mode & 0o007):
                    yield f"{pod}: everybody may read the Secret {name}"
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{pod}: a token of the cluster is mounted"
        if spec.get("enableServiceLinks") is not False:
            yield f"{pod}: services become variables, which the controller would read"
        for sentence in pod_security.problems(spec):
            yield f"{pod}: {sentence}"
        if set(labels) and not spec["securityContext"].get("fsGroup"):
            yield f"{pod}: files of Secrets have no group"


def port_names(spec):
    return {port["name"] for own in containers(spec) for port in own.get("ports", [])}


def is_in(wanted, labels):
    return all(labels.get(key) == value for key, value in wanted.items())


def selection_problems(items):
    [own] = by_kind(items, "StatefulSet")
    template = own["spec"]["template"]
    labels = template["metadata"]["labels"]
    ports = port_names(template["spec"])
    wanted = [(own, own["spec"]["selector"]["matchLabels"])]
    wanted += [(item, item["spec"]["selector"]) for item in by_kind(items, "Service")]
    wanted += [(item, item["spec"]["podSelector"]["matchLabels"])
               for item in by_kind(items, "NetworkPolicy")]
    wanted += [(item, item["spec"]["selector"]["matchLabels"])
               for item in by_kind(items, "PodDisruptionBudget")]
    for item, selector in wanted:
        if not selector or not is_in(selector, labels):
            yield f"{item['kind']} {item['metadata']['name']} selects no pod"
    services = by_kind(items, "Service")
    for item in services:
        for port in item["spec"]["ports"]:
            if port["targetPort"] not in ports:
                yield f"Service {item['metadata']['name']}: no port {port['targetPort']}"
    if own["spec"]["serviceName"] not in [item["metadata"]["name"] for item in services]:
        yield f"there is no Service {own['spec']['serviceName']} for the StatefulSet"
    for item in by_kind(items, "NetworkPolicy"):
        for rule in item["spec"]["ingress"]:
            for port in rule["ports"]:
                if port["port"] not in ports:
                    yield f"NetworkPolicy: no port {port['port']}"
    for claim in own["spec"].get("volumeClaimTemplates", []):
        fixed = set(own["spec"]["selector"]["matchLabels"])
        more = set(claim["metadata"].get("labels", {})) - fixed
        if more:
            yield f"volumeClaimTemplates: {more} change with a version, and may not change"
    for item in by_kind(items, "ServiceMonitor"):
        for endpoint in item["spec"]["endpoints"]:
            found = [service for service in services
                     if is_in(item["spec"]["selector"]["matchLabels"],
                              service["metadata"]["labels"])
                     and endpoint["port"] in [p["name"] for p in service["spec"]["ports"]]]
            if len(found) != 1:
                yield f"ServiceMonitor: {len(found)} Services have a port {endpoint['port']}"


def secret_value(items, ending, key):
    for item in by_kind(items, "Secret"):
        if item["metadata"]["name"].endswith(ending):
            return base64.b64decode(item["data"][key]).decode()
    return None


def webhook_problems(items):
    for item in by_kind(items, "MutatingWebhookConfiguration"):
        noted = "cert-manager.io/inject-ca-from" in item["metadata"].get("annotations", {})
        for hook in item["webhooks"]:
            service = hook["clientConfig"]["service"]
            bundle = hook["clientConfig"].get("caBundle")
            made = secret_value(items, "-certificate", "ca.crt")
            if bundle == "" or (bundle is None) != noted:
                yield "webhook: the caBundle is empty or missing"
            elif bundle and b"BEGIN CERTIFICATE" not in base64.b64decode(bundle):
                yield "webhook: the caBundle is no certificate"
            elif bundle and made and base64.b64decode(bundle).decode() != made:
                yield "webhook: the caBundle is not that of the certificate"
            path = secret_value(items, "-webhook-path", "path")
            if service["path"] != f"/admission/{path}" or len(path or "") < 16:
                yield "webhook: the path is not that of the Secret"
            ports = [port["port"] for own in by_kind(items, "Service") for port in
                     own["spec"]["ports"] if own["metadata"]["name"] == service["name"]]
            if service.get("port", 443) not in ports:
                yield f"webhook: the Service {service['name']} has no port {service.get('port')}"
            excluded = hook["namespaceSelector"]["matchExpressions"][0]["values"]
            if not {"kube-system", service["namespace"]} <= set(excluded):
                yield "webhook: kube-system and the release's own namespace are to be left out"
            if hook["objectSelector"] != {"matchLabels": {"deft.dev/inject": "true"}}:
                yield "webhook: the objectSelector is not our label"
            if hook["sideEffects"] != "NoneOnDryRun" or hook["failurePolicy"] != "Ignore":
                yield "webhook: sideEffects NoneOnDryRun and failurePolicy Ignore were expected"
            if hook["timeoutSeconds"] > 5 or hook["reinvocationPolicy"] != "IfNeeded":
                yield "webhook: timeoutSeconds 5 and reinvocationPolicy IfNeeded were expected"


def other_problems(items):
    [own] = by_kind(items, "StatefulSet")
    keys = [(item["kind"], item["metadata"]["name"]) for item in items]
    if len(keys) != len(set(keys)):
        yield f"two objects of one name: {sorted(keys)}"
    notes = own["spec"]["template"]["metadata"].get("annotations", {})
    if not {"checksum/config", "checksum/secrets"} <= set(notes):
        yield "a change of settings or secrets would not reach the pod"
    if own["spec"]["replicas"] != 1:
        yield "a database has one controller"
    for item in items:
        if item["kind"] in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"):
            yield f"the controller needs no rights, so no {item['kind']}"
        if "app.kubernetes.io/instance" not in item["metadata"].get("labels", {}):
            yield f"{item['kind']} {item['metadata']['name']} has no labels"


def problems(items, given=()):
    """Sentences on a rendered release."""
    return [*pod_problems(items, set(given)), *selection_problems(items), *webhook_problems(items),
            *other_problems(items)]
