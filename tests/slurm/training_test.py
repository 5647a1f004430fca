#!/usr/bin/env python3
"""Whole jobs on two nodes with a slow network between them: srun --deft=auto, and the job's gain in
the REST interface under its Slurm identity.

usage: training_test.py BUILD_FOLDER [CASE...]
"""
import os
import re
import sys
import time
import unittest
from pathlib import Path

import cluster as slurm

BUILD = Path(sys.argv[1]).resolve()
DATA = Path("/usr/share/datasets/fashion-mnist")
PYTORCH = slurm.ROOT / "agent" / "examples" / "pytorch_mnist.py"
PYTHON = os.environ.get("DEFT_PYTHON", "python3")
CLUSTER = None


def setUpModule():
    global CLUSTER
    CLUSTER = slurm.Cluster(BUILD, rates=(200,))
    CLUSTER.__enter__()


def tearDownModule():
    CLUSTER.stop()


@unittest.skipUnless(DATA.is_dir(), "Fashion-MNIST is not installed")
class Training(unittest.TestCase):
    def job_of(self, output):
        return re.search(r"deft: job (\S+): ", output).group(1)

    @unittest.skipUnless((BUILD / "bin" / "deft-train").exists(), "this build has no trainer")
    def test_the_c_trainer_gains(self):
        report = CLUSTER.folder / "home" / "report.json"
        step = CLUSTER.begin(
            "srun", "-N2", "--deft=auto", "--deft-links=link0", BUILD / "bin" / "deft-train",
            "--width", "256", "--depth", "2", "--batch", "256", "--seed", "3", "--lr", "0.02",
            "--epochs", "6", f"--json={report}", env={"OPENBLAS_NUM_THREADS": "1"})
        name = self.job_of(step.stdout.readline())
        gain = 0
        while step.poll() is None:  # at its end exact may be compared with the plan
            job = CLUSTER.get(f"/jobs/{name}") or {}
            gain = max(gain, job.get("gain") or 0)
            time.sleep(0.2)
        self.assertEqual(step.returncode, 0, step.stdout.read())
        job = CLUSTER.get(f"/jobs/{name}")
        self.assertRegex(name, r"^\d+$")
        self.assertEqual(job["user"], "tester")
        self.assertEqual(job["name"], "deft-train")
        self.assertEqual(job["mode"], "auto")
        self.assertGreaterEqual(job["n_switches"], 1)
        self.assertGreater(gain, 1.0, job)
        print(f"job {name}: gain {gain:.2f}")

    @unittest.skipUnless((BUILD / "bin" / "deft-train").exists(), "this build has no trainer")
    def test_a_cancelled_job_tells_its_last_iterations(self):
        report = CLUSTER.folder / "home" / "cancelled.json"
        step = CLUSTER.begin(
            "srun", "-N2", "--deft=observe", "--deft-links=link0", BUILD / "bin" / "deft-train",
            "--width", "64", "--depth", "1", "--batch", "64", "--epochs", "1000",
            f"--json={report}", env={"OPENBLAS_NUM_THREADS": "1"})
        name = self.job_of(step.stdout.readline())
        slurm.await_true("iterations", lambda: (
            CLUSTER.get(f"/jobs/{name}") or {}).get("iterations", 0) > 20)
        CLUSTER.slurm("scancel", "--signal=TERM", f"{name}.0")
        step.communicate(timeout=slurm.DEADLINE_S)
        said = slurm.json.loads(report.read_text())
        # Observed only, so that every iteration is one update.
        self.assertEqual(CLUSTER.get(f"/jobs/{name}")["iterations"], said["updates"])

    def test_pytorch(self):
        if slurm.subprocess.run([PYTHON, "-c", "import torch"], check=False,
                                stderr=slurm.subprocess.DEVNULL).returncode != 0:
            self.skipTest("there is no torch")
        done = CLUSTER.slurm(
            "srun", "-N2", "--deft=auto", "--deft-links=link0", PYTHON, PYTORCH, "1",
            env={"PYTHONPATH": slurm.ROOT / "agent" / "python", "OMP_NUM_THREADS": "1",
                 "DEFT_LIBRARY": BUILD / "lib" / "libdeft.so", "PYTHONDONTWRITEBYTECODE": "1"},
            timeout=300)
        self.assertIn("epoch 1: loss", done.stdout)
        job = CLUSTER.get(f"/jobs/{self.job_of(done.stderr)}")
        self.assertEqual(job["name"], Path(PYTHON).name)
        self.assertGreater(job["iterations"], 50)
        print(f"pytorch: gain {job.get('gain')}")


if __name__ == "__main__":
    slurm.isolate()
    unittest.main(argv=[sys.argv[0], *(f"Training.{case}" for case in sys.argv[2:])], verbosity=2)
