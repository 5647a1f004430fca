"""However the ranks were started, wrap() finds out who they are and where they meet."""
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist

import deft.torch
import ranks
from jobs import LOSS, WORLD, batch, equal, linear, momentum, parameters

EXAMPLE = Path(__file__).resolve().parents[2] / "agent" / "examples" / "pytorch_mnist.py"
DATA = Path("/usr/share/datasets/fashion-mnist")


def train(rank):
    model = linear(seed=rank)
    wrapped, optimizer = deft.torch.wrap(model, momentum(model))
    for step in range(5):
        optimizer.zero_grad()
        inputs, labels = batch(rank, step)
        LOSS(wrapped(inputs), labels).backward()
        optimizer.step()
    return deft.torch._of(wrapped).world, parameters(model)


def by_env():
    return train(int(os.environ["RANK"]))


def by_slurm():
    return train(int(os.environ["SLURM_PROCID"]))


def after_init():
    dist.init_process_group("gloo")
    result = train(dist.get_rank())
    dist.barrier()  # torch's own collectives go on working beside ours
    dist.destroy_process_group()
    return result


def twice():
    first, second = by_env(), by_env()
    return first if equal(first[1], second[1]) else None


def plain(rank, world, port):
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port)}


def slurm(rank, world, port):
    return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": str(world), "SLURM_JOB_ID": "4711",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


class Launchers(unittest.TestCase):
    def check(self, body, meet):
        results = ranks.run(WORLD, body, meet=meet)
        for world, _ in results:
            self.assertEqual(world, WORLD)
        self.assertTrue(equal(results[0][1], results[1][1]))

    def test_plain_variables(self):
        self.check(by_env, plain)

    def test_slurm_variables(self):
        self.check(by_slurm, slurm)

    def test_after_init_process_group(self):
        self.check(after_init, plain)

    def elastic(self, body, around=None):
        """What torchrun sets, with the store that its agent keeps, over what was `around` it."""
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

        def meet(rank, world, port):
            return {**(around or {}), **plain(rank, world, store.port),
                    "TORCHELASTIC_RUN_ID": "run",
                    "TORCHELASTIC_USE_AGENT_STORE": "True", "LOCAL_RANK": str(rank),
                    "TORCHELASTIC_RESTART_COUNT": "0"}
        self.check(body, meet)

    def test_torchrun_variables(self):
        self.elastic(by_env)

    def test_torchrun_as_the_task_of_a_node(self):
        self.elastic(by_env, {"DEFT_RANK": "0", "DEFT_WORLD_SIZE": "1", "DEFT_JOB_ID": "12",
                              "DEFT_MASTER_ADDR": "127.0.0.1", "DEFT_MASTER_PORT": "1"})

    def test_two_models_after_each_other(self):
        self.elastic(twice)

    def test_no_variables(self):
        results = ranks.run(1, lambda: train(0), meet=lambda *_: {})
        self.assertEqual(results[0][0], 1)


def run_example(launcher):
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run([*launcher, str(EXAMPLE), "1"], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False,
                              timeout=ranks.DEADLINE_S, env={**os.environ, "HOME": folder,
                                                            "XDG_STATE_HOME": folder})


@unittest.skipUnless(DATA.exists(), "the package dataset-fashion-mnist is not installed")
class Example(unittest.TestCase):
    """The script of the README, as a user starts it."""

    def check(self, done, launcher):
        output = done.stdout.decode(errors="replace")
        self.assertEqual(done.returncode, 0, output)
        self.assertRegex(output, r"epoch 1: loss [0-9.]+, test accuracy [78]\d\.\d\d %", launcher)

    def test_by_itself(self):
        self.check(run_example([sys.executable]), "python3")

    @unittest.skipUnless(os.environ.get("DEFT_CLI"), "this build has no deft program")
    def test_by_deft_run(self):
        done = run_example([os.environ["DEFT_CLI"], "run", "--nproc", "2", "--", sys.executable])
        self.check(done, "deft run")
        self.assertIn(b"ms", done.stdout)

    def test_by_torchrun(self):
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"]
        works = subprocess.run([*torchrun, os.devnull], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False)
        if works.returncode != 0:
            self.skipTest(f"torchrun of torch {torch.__version__} does not run here by itself")
        self.check(run_example(torchrun), "torchrun")


if __name__ == "__main__":
    ranks.main()
