#!/usr/bin/env python3
"""The images, built for real from Debian 12 by buildah, and started as the chart says.

usage: images_test.py BUILD_FOLDER [CASE]

The base is made by debootstrap, so that no registry of images is asked. buildah runs the steps of
the build in a chroot, which needs no rights that containers lack.
"""

import json
import os
import shutil
import subprocess
import sys

import chart_test
import node
import pods_test
import release_test
import tools

BASE = "localhost/debian-base:12"
RUN = "DEFT_TEST_IMAGE_ROOTS"  # roots for the second half of the test
STORAGE = '[storage]\ndriver = "vfs"\ngraphroot = "{0}/store"\nrunroot = "{0}/run"\n'


class Builder:
    """buildah with a store of its own, in a folder that goes with the test."""

    def __init__(self, path):
        for name in ("buildah", "debootstrap"):
            if shutil.which(name) is None:
                tools.skip(f"there is no {name}; scripts/packages --install images")
        if os.getuid() != 0:
            tools.skip("debootstrap needs root")
        self.path = path
        with open(f"{path}/storage.conf", "w", encoding="ascii") as file:
            file.write(STORAGE.format(path))
        self.environment = {**os.environ, "CONTAINERS_STORAGE_CONF": file.name, "TMPDIR": path,
                            "BUILDAH_ISOLATION": "chroot", "CONTAINER_ENGINE": "buildah"}

    def run(self, *words, may_skip=False):
        done = subprocess.run(words, cwd=tools.ROOT, env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        text = done.stdout.decode(errors="replace")
        if done.returncode != 0 and may_skip:
            tools.skip(f"{words[0]} cannot do it here: {text[-400:]}")
        assert done.returncode == 0, f"{words}: {text[-4000:]}"
        return text.strip()

    def make_base(self):
        root = f"{self.path}/base"
        self.run("debootstrap", "--variant=minbase", "bookworm", root, may_skip=True)
        made = self.run("buildah", "from", "scratch").splitlines()[-1]
        self.run("buildah", "add", "--quiet", made, root, "/")
        self.run("buildah", "commit", "--quiet", made, BASE)
        self.run("buildah", "rm", made)
        shutil.rmtree(root)

    def build(self):
        self.run(f"{tools.ROOT}/scripts/build-images", "--base", BASE, "--prefix", "localhost/",
                 "--tag", "test", "--", "--build-arg", "GROUPS=build")

    def inspect(self, name):
        return json.loads(self.run("buildah", "inspect", "--type", "image",
                                   f"localhost/{name}:test"))["OCIv1"]

    def root(self, name):
        """The image's files, in a folder."""
        made = self.run("buildah", "from", "--pull-never", f"localhost/{name}:test")
        source = self.run("buildah", "mount", made.splitlines()[-1]).splitlines()[-1]
        root = f"{self.path}/root-{name}"
        shutil.copytree(source, root, symlinks=True)
        shutil.copystat(source, root)
        return root


def images_are_built_and_start_and_train(build):
    pods_test.need(build)
    with chart_test.folder() as path:
        os.chmod(path, 0o755)
        builder = Builder(path)
        builder.make_base()
        builder.build()
        roots = {}
        for name in ("deft-controller", "deft-agent"):
            config = builder.inspect(name)["config"]
            assert config["User"] == "10001:10001", config
            assert config["Labels"]["dev.deft.sbom"] == "/usr/share/doc/deft/sbom.spdx.json"
            root = roots[name] = builder.root(name)
            listed = tools.read_json(root + config["Labels"]["dev.deft.sbom"])["packages"]
            assert {"libc6", "libcurl4", "libgnutls30"} & {own["name"] for own in listed}, listed
            variables = dict(text.split("=", 1) for text in config["Env"])
            assert variables == release_test.IMAGES[name][1], variables
            for shell in ("bin/sh", "usr/bin/sh", "bin/bash", "usr/bin/env"):
                assert not os.path.exists(os.path.join(root, shell)), shell
        # What follows has no network but its own.
        done = subprocess.run([sys.executable, "-B", __file__, build, RUN], check=False,
                              env={**os.environ, RUN: json.dumps(roots)})
        assert done.returncode == 0, f"exit status {done.returncode}"


def run_images(build_folder):
    with release_test.release(build_folder, json.loads(os.environ[RUN])) as it:
        it.sync()
        with pods_test.Job(it, 200) as job:
            job.end()
            pods_test.await_state(it, "finished")


CASES = (images_are_built_and_start_and_train,)

if __name__ == "__main__":
    if sys.argv[2:] == [RUN]:
        node.isolate()
        run_images(os.path.abspath(sys.argv[1]))
    else:
        chart_test.main(CASES, sys.argv)
