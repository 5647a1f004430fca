"""A stand-in for a node of Kubernetes: runs the containers of a pod for real, as root.

Each container is a process in a root filesystem of its own, which charts/images/gather has made,
and which is read-only if the pod says so; as the user and groups that the pod says, without new
privileges; with its volumes, its variables and its own names of services. Init containers, native
sidecars and probes are as in Kubernetes. Limits of resources, capabilities and seccomp are not.
"""

import base64
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

import tools

ISOLATED = "DEFT_TEST_NODE_ISOLATED"
DEADLINE_S = 60 * int(os.environ.get("DEFT_TEST_SLOWNESS", "1"))
ADDRESS = "10.88.0.1"  # of the node, and of its pods that have no network of their own
DEVICES = ("null", "zero", "random", "urandom")
START = r"""
set -e
chroot=$1 root=$2 owner=$3 groups=$4 read_only=$5
shift 5
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
    shift 3
done
shift
[ "$read_only" = 0 ] || mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs "$chroot" --userspec="$owner" --groups="$groups" "$root" "$@"
"""


def isolate():
    """Starts this program again in namespaces of its own, which end with it."""
    if os.environ.get(ISOLATED) == "1":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for words in ("link add pods type bridge", f"address add {ADDRESS}/24 dev pods",
                      "link set pods up"):
            subprocess.run(["ip", *words.split()], check=True)
        return
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for name in ("unshare", "nsenter", "setpriv", "chroot", "ip", "mount"):
        if shutil.which(name) is None:
            tools.skip(f"there is no {name}")
    flags = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--mount-proc"]
    if os.getuid() != 0 or subprocess.run(["unshare", *flags, "true"], check=False,
                                          stderr=subprocess.DEVNULL).returncode != 0:
        tools.skip("containers need root, and namespaces that can be made")
    os.environ[ISOLATED] = "1"
    os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])


def await_true(what, look, seconds=DEADLINE_S):
    until = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < until, f"waited {seconds} s for {what}"
        time.sleep(0.02)


def field_of(pod, path):
    """The downward API."""
    match = re.match(r"metadata\.(annotations|labels)\['(.*)'\]$", path)
    if match:
        return pod["metadata"].get(match.group(1), {}).get(match.group(2), "")
    return str(pod["metadata"][path.split(".")[1]])


def environment_of(pod, own, image):
    """Variables in order; $(NAME) of one that precedes is expanded."""
    found = dict(image)
    for entry in own.get("env", []):
        if "valueFrom" in entry:
            value = field_of(pod, entry["valueFrom"]["fieldRef"]["fieldPath"])
        else:
            value = re.sub(r"\$\((\w+)\)", lambda m: found.get(m.group(1), m.group(0)),
                           entry.get("value", ""))
        found[entry["name"]] = value
    return found


class Network:
    """Of a pod: a namespace with an address on the node's bridge. It lives until `close`."""

    def __init__(self, number):
        self.address = f"10.88.0.{number + 2}"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "inf"],
                                       stdin=subprocess.DEVNULL)
        own = os.readlink("/proc/self/ns/net")
        path = f"/proc/{self.holder.pid}/ns/net"
        await_true("a network namespace", lambda: os.readlink(path) != own)
        here, there = f"pod{number}", "eth0"
        self.ip("link", "add", here, "type", "veth", "peer", "name", there, "netns",
                str(self.holder.pid))
        self.ip("link", "set", here, "master", "pods", "up")
        for words in ("link set lo up", f"address add {self.address}/24 dev {there}",
                      f"link set {there} up"):
            subprocess.run([*self.enter(), "ip", *words.split()], check=True)

    @staticmethod
    def ip(*words):
        subprocess.run(["ip", *words], check=True)

    def enter(self):
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--"]

    def close(self):
        self.holder.kill()
        self.holder.wait()


class Node:
    """`images`: repository of an image to (programs of the build, variables of the image); `roots`:
    to a root that is there already."""

    def __init__(self, folder, build, cluster, images, roots=None):
        self.folder = folder
        self.build = build
        self.cluster = cluster
        self.images = images
        self.roots = roots or {}
        self.hosts = os.path.join(folder, "hosts")
        os.chmod(folder, 0o755)

    def name_service(self, name):
        with open(self.hosts, "a", encoding="ascii") as file:
            file.write(f"{ADDRESS} {name}\n")

    def image(self, reference):
        """(root, variables) of an image."""
        repository = re.split("[:@]", reference.rsplit("/", 1)[-1])[0]
        programs, variables = self.images[repository]
        root = self.roots.get(repository, os.path.join(self.folder, "image-" + repository))
        if not os.path.isdir(root):
            subprocess.run([os.path.join(tools.ROOT, "charts", "images", "gather"), root] +
                           [os.path.join(self.build, "bin", name) for name in programs], check=True)
        return root, variables

    # --- volumes ----------------------------------------------------------------------------------

    def fill(self, pod, path, volume, mode):
        """The files of a Secret, a ConfigMap or the downward API."""
        for part in volume.get("projected", {}).get("sources", [volume]):
            mode = volume.get("projected", {}).get("defaultMode", mode)
            files = {}
            if "secret" in part:
                own = part["secret"]
                mode = own.get("defaultMode", mode)
                data = self.cluster.find("secrets", own.get("secretName", own.get("name")))["data"]
                files = {key: base64.b64decode(text) for key, text in data.items()}
                items = own.get("items")
            elif "configMap" in part:
                own = part["configMap"]
                data = self.cluster.find("configmaps", own["name"])["data"]
                files = {key: text.encode() for key, text in data.items()}
                items = own.get("items")
            else:
                items = None
                for own in part["downwardAPI"]["items"]:
                    files[own["path"]] = field_of(pod, own["fieldRef"]["fieldPath"]).encode()
            for key, name in ([(key, key) for key in files] if items is None else
                              [(item["key"], item["path"]) for item in items]):
                with open(os.path.join(path, name), "wb") as file:
                    file.write(files[key])
                os.chmod(os.path.join(path, name), mode)

    def volumes(self, pod, place):
        """{name: folder}, made with the pod; claims are there for as long as the node."""
        group = pod["spec"].get("securityContext", {}).get("fsGroup")
        found = {}
        for volume in pod["spec"].get("volumes", []):
            claim = volume.get("persistentVolumeClaim")
            path = os.path.join(self.folder, "claim-" + claim["claimName"]) if claim else \
                os.path.join(place, "volume-" + volume["name"])
            found[volume["name"]] = path
            os.makedirs(path, exist_ok=True)
            if not claim and "emptyDir" not in volume:
                self.fill(pod, path, volume, 0o644)
            os.chmod(path, 0o2770 if claim else 0o777)
            if group is not None:
                for folder, _, names in os.walk(path):
                    for own in [folder] + [os.path.join(folder, name) for name in names]:
                        os.chown(own, -1, group)
        return found


class Pod:
    """One that runs. `network`: None for the node's own."""

    def __init__(self, node, item, network=None):
        self.node = node
        self.item = item
        self.network = network
        self.place = os.path.join(node.folder, f"pod-{item['metadata']['uid']}")
        os.makedirs(self.place)
        self.volumes = node.volumes(item, self.place)
        self.sidecars, self.containers, self.logs = [], [], {}

    def log(self, name):
        with open(self.logs[name], encoding="utf-8", errors="replace") as file:
            return file.read()

    def launch(self, own):
        node, spec = self.node, self.item["spec"]
        context = {**spec.get("securityContext", {}), **own.get("securityContext", {})}
        source, variables = node.image(own["image"])
        root = os.path.join(self.place, "root-" + own["name"])
        subprocess.run(["cp", "-a", source, root], check=True)
        mounts = []
        for mount in own.get("volumeMounts", []):
            os.makedirs(root + mount["mountPath"], exist_ok=True)
            mounts += [self.volumes[mount["name"]], mount["mountPath"],
                       "ro" if mount.get("readOnly") else "rw"]
        for name in DEVICES:
            with open(f"{root}/dev/{name}", "wb"):
                pass
            mounts += [f"/dev/{name}", f"/dev/{name}", "rw"]
        with open(f"{root}/etc/hosts", "wb"):
            pass
        mounts += [node.hosts, "/etc/hosts", "ro", "/proc", "/proc", "ro"]
        user = context["runAsUser"]
        group = context.get("runAsGroup", 0)
        groups = str(context.get("fsGroup", group))
        words = (self.network.enter() if self.network else []) + [
            "unshare", "--mount", "bash", "-c", START, "start", shutil.which("chroot"), root,
            f"{user}:{group}", groups, "1" if context.get("readOnlyRootFilesystem") else "0",
            *mounts, "--", *own["command"], *own.get("args", [])]
        self.logs[own["name"]] = os.path.join(self.place, own["name"] + ".log")
        with open(self.logs[own["name"]], "wb") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    env=environment_of(self.item, own, variables))

    def start(self):
        for own in self.item["spec"].get("initContainers", []):
            process = self.launch(own)
            if own.get("restartPolicy") == "Always":
                self.sidecars.append((own, process))
                continue
            status = process.wait(DEADLINE_S)
            assert status == 0, f"{own['name']}: {status} {self.log(own['name'])}"
        for own in self.item["spec"]["containers"]:
            self.containers.append((own, self.launch(own)))
        return self

    def wait(self, seconds=DEADLINE_S):
        """Exit statuses: {container: status}, sidecars last, when all containers have ended."""
        found = {own["name"]: process.wait(seconds) for own, process in self.containers}
        return {**found, **self.end_sidecars()}

    def end_sidecars(self):
        seconds = self.item["spec"].get("terminationGracePeriodSeconds", 30)
        found = {}
        for own, process in reversed(self.sidecars):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            found[own["name"]] = process.wait(seconds + DEADLINE_S)
        return found

    def stop(self):
        """As a pod is deleted; {container: status}."""
        for _, process in self.containers:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self):
        for _, process in self.sidecars + self.containers:
            if process.poll() is None:
                process.kill()
                process.wait()

    def probe(self, name, which):
        """Whether the probe of the container succeeds, and what it says."""
        [own] = [item for item, _ in self.containers if item["name"] == name]
        get = own[which]["httpGet"]
        [port] = [port["containerPort"] for port in own["ports"] if port["name"] == get["port"]]
        context = ssl.create_default_context()
        context.check_hostname = False  # so does the kubelet
        context.verify_mode = ssl.CERT_NONE
        url = f"{get['scheme'].lower()}://{ADDRESS}:{port}{get['path']}"
        try:
            with urllib.request.urlopen(url, timeout=own[which].get("timeoutSeconds", 1),
                                        context=context) as answer:
                return answer.status == 200, answer.read()
        except (urllib.error.URLError, OSError) as error:
            return False, str(error)

    def await_ready(self):
        for name, process in ((own["name"], process) for own, process in self.containers):
            for which in ("startupProbe", "livenessProbe", "readinessProbe"):
                await_true(f"{which} of {name}: {self.log(name)}",
                           lambda n=name, w=which, p=process: self.probe(n, w)[0] or
                           p.poll() is not None)
            assert process.poll() is None, f"{name}: {process.poll()} {self.log(name)}"
        return self


def pod_of_set(item):
    """The pod that a StatefulSet of one makes."""
    template = item["spec"]["template"]
    name = item["metadata"]["name"] + "-0"
    spec = {**template["spec"], "volumes": list(template["spec"].get("volumes", []))}
    for claim in item["spec"].get("volumeClaimTemplates", []):
        own = claim["metadata"]["name"]
        spec["volumes"].append({"name": own, "persistentVolumeClaim": {
            "claimName": f"{own}-{name}"}})
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {**template["metadata"], "name": name,
                         "uid": f"{name}-{item['metadata']['generation']}"}}
