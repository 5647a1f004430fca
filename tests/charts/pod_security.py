"""The restricted level of pod security, as Kubernetes documents it, for Linux pods."""

VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
           "projected", "secret"}
SECCOMP = ("RuntimeDefault", "Localhost")


def container_problems(own, pod):
    """Of one container; `pod`: the security context of its pod."""
    context = own.get("securityContext", {})
    name = own["name"]
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield f"{name}: capabilities.drop lacks ALL"
    if set(capabilities.get("add", [])) - {"NET_BIND_SERVICE"}:
        yield f"{name}: capabilities.add"
    if context.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: allowPrivilegeEscalation is not false"
    if context.get("privileged"):
        yield f"{name}: privileged"
    if context.get("procMount", "Default") != "Default":
        yield f"{name}: procMount"
    if context.get("runAsNonRoot", pod.get("runAsNonRoot")) is not True:
        yield f"{name}: runAsNonRoot is not true"
    if context.get("runAsUser", pod.get("runAsUser")) == 0:
        yield f"{name}: runAsUser is 0"
    profile = context.get("seccompProfile", pod.get("seccompProfile", {}))
    if profile.get("type") not in SECCOMP:
        yield f"{name}: seccompProfile is not {' or '.join(SECCOMP)}"
    for port in own.get("ports", []):
        if port.get("hostPort"):
            yield f"{name}: hostPort"


def problems(spec):
    """Sentences on a pod's spec; none for one that the level takes."""
    pod = spec.get("securityContext", {})
    found = [f"{name} is set" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    found += [f"sysctl {item['name']}" for item in pod.get("sysctls", [])]
    for volume in spec.get("volumes", []):
        kinds = set(volume) - {"name"}
        if not kinds or kinds - VOLUMES:
            found.append(f"volume {volume['name']} is {', '.join(kinds) or 'nothing'}")
    for own in spec.get("initContainers", []) + spec.get("containers", []):
        found += container_problems(own, pod)
    return found
