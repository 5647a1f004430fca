#!/usr/bin/env python3
"""What a step gets, by every way to ask for it, on a real cluster of two nodes.

usage: steps_test.py BUILD_FOLDER [CASE...]
"""
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

import cluster as slurm

BUILD = Path(sys.argv[1]).resolve()
CLUSTER = None


def setUpModule():
    global CLUSTER
    CLUSTER = slurm.Cluster(BUILD)
    CLUSTER.__enter__()


def tearDownModule():
    CLUSTER.stop()


def environments(output):
    """[{name: value}] of the DEFT_ variables of each task of `srun env`, by rank."""
    tasks = {}
    for line in output.splitlines():
        match = re.match(r"(\d+): (DEFT_\w+)=(.*)", line)
        if match:
            tasks.setdefault(int(match.group(1)), {})[match.group(2)] = match.group(3)
    return [tasks[key] for key in sorted(tasks)]


def lines_of(output):
    return [line for line in output.splitlines() if "deft: " in line]


class Steps(unittest.TestCase):
    def tearDown(self):
        CLUSTER.await_nothing_left()
        CLUSTER.await_idle()

    def srun(self, *arguments, **options):
        done = CLUSTER.slurm("srun", "--label", *arguments, **options)
        return environments(done.stdout), lines_of(done.stderr), done

    # --- who gets what --------------------------------------------------------------------------

    def test_nothing_without_asking(self):
        tasks, lines, done = self.srun("-N2", "env")
        self.assertEqual((tasks, lines), ([], []))
        self.assertIn("SLURM_PROCID", done.stdout)

    def test_ranks_are_told_who_they_are_and_where_they_meet(self):
        tasks, lines, _ = self.srun("-N2", "--ntasks-per-node=2", "--deft=auto",
                                    "--deft-links=link0", "env")
        self.assertEqual([t["DEFT_RANK"] for t in tasks], ["0", "1", "2", "3"])
        self.assertEqual({t["DEFT_WORLD_SIZE"] for t in tasks}, {"4"})
        self.assertEqual([t["DEFT_LOCAL_RANK"] for t in tasks], ["0", "1", "0", "1"])
        self.assertEqual({t["DEFT_MASTER_ADDR"] for t in tasks}, {"10.77.0.1"})
        self.assertEqual({t["DEFT_LINKS"] for t in tasks}, {"gloo:link0"})
        self.assertEqual({t["DEFT_JOB_NAME"] for t in tasks}, {"env"})
        self.assertEqual(len({t["DEFT_MASTER_PORT"] for t in tasks}), 1)
        self.assertTrue(28000 <= int(tasks[0]["DEFT_MASTER_PORT"]) <= 29999)
        sockets = [t["DEFT_AGENT_SOCKET"] for t in tasks]
        self.assertEqual(len(set(sockets)), 2)
        self.assertEqual((sockets[0], sockets[2]), (sockets[1], sockets[3]))
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("auto, 4 ranks on 2 nodes, meeting at 10.77.0.1:", lines[0])

    def test_flag_over_environment_over_plugstack(self):
        tasks, _, _ = self.srun("env", env={"DEFT_MODE": "observe"})
        self.assertIn("DEFT_RANK", tasks[0])
        tasks, lines, _ = self.srun("--deft=off", "env", env={"DEFT_MODE": "auto"})
        self.assertNotIn("DEFT_RANK", tasks[0])
        self.assertEqual(lines, [])
        _, lines, _ = self.srun("--deft=observe", "--deft-controller=http://10.77.0.1:9", "true",
                                env={"DEFT_CONTROLLER": "http://10.77.0.1:8"})
        self.assertIn("controller http://10.77.0.1:9", lines[0])
        _, lines, _ = self.srun("--deft=observe", "true",
                                env={"DEFT_CONTROLLER": "http://10.77.0.1:8"})
        self.assertIn("controller http://10.77.0.1:8", lines[0])

    def test_without_the_callers_environment(self):
        tasks, lines, _ = self.srun("--export=NONE", "--deft=auto", "/usr/bin/env",
                                    env={"DEFT_LINKS": "gloo:none"})
        self.assertEqual(tasks[0]["DEFT_RANK"], "0")
        self.assertNotIn("DEFT_LINKS", tasks[0])
        self.assertEqual(len(lines), 1)

    def test_names_that_resolve_are_used(self):
        CLUSTER.name_hosts()
        try:
            tasks, _, _ = self.srun("-N2", "--deft=auto", "env")
        finally:
            CLUSTER.forget_hosts()
        self.assertEqual({t["DEFT_MASTER_ADDR"] for t in tasks}, {"n1"})

    def test_what_an_outer_step_left_does_not_count(self):
        stale = {"DEFT_RANK": "7", "DEFT_MASTER_ADDR": "10.9.9.9", "DEFT_MASTER_PORT": "5",
                 "DEFT_AGENT_SOCKET": "@old"}
        tasks, _, _ = self.srun("-N2", "--deft=auto", "env", env=stale)
        self.assertEqual([t["DEFT_RANK"] for t in tasks], ["0", "1"])
        self.assertEqual({t["DEFT_MASTER_ADDR"] for t in tasks}, {"10.77.0.1"})
        own = {"DEFT_MASTER_ADDR": "10.77.0.2", "DEFT_MASTER_PORT": "5555"}
        tasks, _, _ = self.srun("-N2", "--deft=auto", "env", env=own)
        self.assertEqual({(t["DEFT_MASTER_ADDR"], t["DEFT_MASTER_PORT"]) for t in tasks},
                         {("10.77.0.2", "5555")})
        tasks, _, _ = self.srun("-N2", "--deft=auto", "--deft-master=n9", "env", env=own)
        self.assertEqual({t["DEFT_MASTER_ADDR"] for t in tasks}, {"n9"})

    def test_wrong_values_are_refused_where_the_user_is(self):
        for flag, sentence in (("--deft=maybe", "--deft is 'maybe', expected off, observe or auto"),
                               ("--deft-max-merge=0", "--deft-max-merge is '0', expected"),
                               ("--deft-controller=x:1", "--deft-controller is 'x:1', expected")):
            for program in (["srun", flag, "true"], ["sbatch", flag, "--wrap=true"],
                            ["salloc", flag, "true"]):
                done = CLUSTER.slurm(*program, check=False)
                self.assertNotEqual(done.returncode, 0, program)
                self.assertIn(sentence, done.stderr)
        _, lines, done = self.srun("true", env={"DEFT_MODE": "maybe"})
        self.assertEqual(len(lines), 1)
        self.assertIn("off: DEFT_MODE is 'maybe', expected off, observe or auto", lines[0])

    def test_variables_that_are_too_long_matter_to_who_asks(self):
        long = {"DEFT_LINKS": "gloo:" + 600 * "a"}
        _, lines, _ = self.srun("true", env=long)
        self.assertEqual(lines, [])
        _, lines, _ = self.srun("--deft=auto", "true", env=long)
        self.assertIn("off: DEFT_LINKS has more than 511 characters", lines[0])

    def test_help_and_manual_page_tell_of_the_same_options(self):
        told = set(re.findall(r"--deft[a-z-]*", CLUSTER.slurm("srun", "--help").stdout))
        page = (slurm.ROOT / "docs" / "man" / "spank_deft.8").read_text().replace("\\-", "-")
        self.assertEqual(told, set(re.findall(r"--deft[a-z-]*", page)))
        self.assertEqual(len(told), 7)

    # --- jobs of every kind ---------------------------------------------------------------------

    def batch(self, script, *arguments):
        """Its output, once it has ended well."""
        path = CLUSTER.folder / "home" / "script"
        path.write_text(f"#!/bin/sh\n{script}\n")
        done = CLUSTER.slurm("sbatch", "-o", CLUSTER.folder / "home" / "out.%a", *arguments, path)
        job = CLUSTER.job_id(done.stdout)
        self.assertEqual(CLUSTER.await_job(job), ("COMPLETED", "0:0"))
        outputs = sorted((CLUSTER.folder / "home").glob("out.*"))
        texts = [path.read_text() for path in outputs]
        for path in outputs:
            path.unlink()
        return job, texts

    def test_batch_script_hands_the_wish_to_its_steps(self):
        job, (text,) = self.batch("env | grep ^DEFT_RANK; srun --label env\n"
                                  "srun --label --deft=off env\n"
                                  "srun --label env | sed s/^0/9/", "--deft=auto")
        tasks = environments(text)
        self.assertEqual([t["DEFT_JOB_ID"] for t in tasks], [job, f"{job}.2"])
        self.assertNotIn("\nDEFT_RANK", "\n" + text)  # the script is no rank
        self.assertEqual(len(lines_of(text)), 2, text)

    def test_arrays(self):
        job, texts = self.batch("srun --label env", "--array=0-1", "--deft=observe")
        self.assertEqual([environments(t)[0]["DEFT_JOB_ID"] for t in texts],
                         [f"{job}_0", f"{job}_1"])

    def test_requeued_jobs_say_so(self):
        mark = CLUSTER.folder / "home" / "mark"
        _, (text,) = self.batch(
            f"srun --label env; test -e {mark} || "
            f"{{ touch {mark}; scontrol requeue $SLURM_JOB_ID; sleep 600; }}",
            "--requeue", "--deft=auto", "--open-mode=append")
        counts = re.findall(r"DEFT_RESTART_COUNT=(\d+)", text)
        self.assertEqual(counts, ["0", "1"])

    def test_steps_side_by_side_and_on_part_of_the_nodes(self):
        done = CLUSTER.slurm(
            "salloc", "-N2", "-n4", "--deft=auto", "sh", "-c",
            "srun --label --overlap -N2 -n2 sh -c 'env; sleep 0.5' & "
            "srun --label --overlap -N1 -n1 -w n2 sh -c 'env; sleep 0.5' & wait")
        tasks = re.findall(r"DEFT_(JOB_ID|AGENT_SOCKET|MASTER_PORT|WORLD_SIZE)=(\S+)", done.stdout)
        values = {name: {v for n, v in tasks if n == name} for name, _ in tasks}
        self.assertEqual(len(values["JOB_ID"]), 2)
        self.assertEqual(len(values["AGENT_SOCKET"]), 3)
        self.assertEqual(len(values["MASTER_PORT"]), 2)
        self.assertEqual(values["WORLD_SIZE"], {"1", "2"})

    def test_heterogeneous_jobs_are_left_alone(self):
        done = CLUSTER.slurm("srun", "--label", "--deft=auto", "-n1", "env", ":", "-n1", "env")
        self.assertEqual(environments(done.stdout), [])
        self.assertEqual(len(lines_of(done.stderr)), 1, done.stderr)
        self.assertIn("heterogeneous", done.stderr)

    def test_jobs_of_root_are_left_alone(self):
        done = CLUSTER.on_host(0, "srun", "--label", "--deft=auto", "env",
                               env=CLUSTER.environment(), cwd="/")
        self.assertEqual(environments(done.stdout), [])
        self.assertIn("off: jobs of root are not tuned", done.stderr)

    # --- what is missing or broken --------------------------------------------------------------

    def with_plugstack(self, line, *arguments):
        CLUSTER.write_plugstack(line)
        try:
            return self.srun(*arguments)
        finally:
            CLUSTER.write_plugstack()

    def test_no_agent_on_the_nodes(self):
        plugin = f"optional {BUILD}/lib/spank_deft.so controller={slurm.CONTROLLER}"
        tasks, lines, _ = self.with_plugstack(f"{plugin} agent=/nowhere/deft-agent", "-N2",
                                              "--deft=auto", "env")
        self.assertEqual(len(lines), 2)  # one per node: it may be missing on one only
        self.assertIn("off on node n1: /nowhere/deft-agent cannot be run: No such file or",
                      " ".join(lines))
        self.assertEqual([t["DEFT_RANK"] for t in tasks], ["0", "1"])
        self.assertNotIn("DEFT_AGENT_SOCKET", tasks[0])

    def test_an_agent_that_does_not_fit_on_one_node(self):
        wrapper = CLUSTER.folder / "wrapper"
        wrapper.write_text("#!/bin/sh\ntest $(hostname) = n1 || set -- --option-of-tomorrow\n"
                           f"exec {BUILD}/bin/deft-agent \"$@\"\n")
        wrapper.chmod(0o755)
        tasks, lines, _ = self.with_plugstack(
            f"optional {BUILD}/lib/spank_deft.so controller={slurm.CONTROLLER} agent={wrapper}",
            "-N2", "--deft=auto", "env")
        self.assertEqual(len(lines), 2)
        self.assertIn(f"off on node n2: {wrapper} has ended with exit status 2", " ".join(lines))
        self.assertEqual(["DEFT_AGENT_SOCKET" in t for t in tasks], [True, False])

    def test_a_wrong_line_in_plugstack_is_off(self):
        plugin = f"optional {BUILD}/lib/spank_deft.so"
        for words, why in (("colour=red mode=auto", "'colour=red', which is no KEY=VALUE"),
                           ("mode=auto", "no controller is known"),
                           ("mode=auto controller=x", "controller in plugstack.conf is 'x'")):
            tasks, lines, _ = self.with_plugstack(f"{plugin} {words}", "--deft=auto", "env")
            self.assertEqual(tasks, [])
            self.assertEqual(len(lines), 1)
            self.assertIn(why, lines[0])
            if "colour" in words:  # nobody asks, nobody is told
                _, lines, _ = self.with_plugstack(f"{plugin} colour=red", "env")
                self.assertEqual(lines, [])

    def test_controller_that_is_away(self):
        done = CLUSTER.slurm("srun", "--label", "--deft=auto",
                             "--deft-controller=http://10.77.0.1:9", BUILD / "tests" / "run_rank",
                             "200")
        self.assertIn("0: done", done.stdout)
        self.assertIn("controller http://10.77.0.1:9", done.stderr)

    def test_limits_reach_the_controller(self):
        _, lines, _ = self.srun("--deft=observe", "--deft-epsilon=0.125", "--deft-max-merge=5",
                                "--deft-max-delay=7", BUILD / "tests" / "run_rank", "20")
        job = CLUSTER.get(f"/jobs/{re.search(r'deft: job (.+?):', lines[0]).group(1)}")
        self.assertEqual((job["epsilon"], job["max_merge"], job["max_delay"], job["mode"]),
                         (0.125, 5, 7, "observe"))

    def test_programs_that_cannot_run_end_as_without_us(self):
        plain = CLUSTER.slurm("srun", "/nowhere/program", check=False).returncode
        done = CLUSTER.slurm("srun", "--deft=auto", "/nowhere/program", check=False)
        self.assertEqual(done.returncode, plain)
        self.assertNotEqual(plain, 0)

    # --- who it is ------------------------------------------------------------------------------

    def test_the_agent_is_the_user_and_keeps_nothing(self):
        step = CLUSTER.begin("srun", "-n1", "--deft=auto", "sh", "-c", "echo begun; sleep 600")
        try:
            # A step's tasks begin once its agent is ready; before, it still loads its libraries.
            while (line := step.stdout.readline()) != "begun\n":
                self.assertTrue(line, "the step has ended")
            self.assert_agents_of_the_user()
        finally:
            CLUSTER.slurm("scancel", "-u", "tester")
        step.wait(timeout=slurm.DEADLINE_S)

    def assert_agents_of_the_user(self):
        agents = [pid for pid, line in slurm.processes().items() if "/deft-agent " in line]
        self.assertEqual(len(agents), 1)
        process = Path(f"/proc/{agents[0]}")
        status = (process / "status").read_text()
        user = "\t".join([str(slurm.USER)] * 4)
        self.assertIn(f"\nUid:\t{user}\n", status)
        self.assertIn(f"\nGid:\t{user}\n", status)
        for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
            self.assertRegex(status, f"{name}:\t0+\n")
        self.assertIn("NoNewPrivs:\t1\n", status)
        self.assertEqual(re.search(r"Groups:\t(.*)", status).group(1).split(),
                         [str(slurm.USER)])
        for fd in "012":
            self.assertEqual(os.readlink(process / "fd" / fd), "/dev/null")
        slurm.await_true("the agent to keep no file but its own",
                         lambda: not self.strange_files(process))
        words = (process / "environ").read_bytes().decode().split("\0")
        self.assertEqual([w for w in words if w.startswith(("SLURM", "LD_", "MUNGE"))], [])

    def strange_files(self, process):
        """What it has open and should not keep; for a moment it may read a file of the system."""
        allowed = re.compile(r"/dev/null|socket:|anon_inode:|pipe:|"
                             rf"{CLUSTER.folder}/(logs|home)/")
        targets = []
        for fd in os.listdir(process / "fd"):
            try:
                targets.append(os.readlink(process / "fd" / fd))
            except FileNotFoundError:
                continue
        return [target for target in targets if not allowed.match(target)]

    def test_only_what_slurm_looks_up_is_exported(self):
        done = subprocess.run(["nm", "-D", "--defined-only", "--format=just-symbols",
                               BUILD / "lib" / "spank_deft.so"], check=True, text=True,
                              stdout=subprocess.PIPE)
        names = done.stdout.split()
        self.assertEqual([n for n in names if not n.startswith(("plugin_", "slurm_spank_"))], [])
        self.assertIn("slurm_spank_task_exit", names)
        self.assertIn("plugin_version", names)

    def test_the_plug_in_is_hardened(self):
        done = subprocess.run(["readelf", "-W", "-d", "-l", BUILD / "lib" / "spank_deft.so"],
                              check=True, text=True, stdout=subprocess.PIPE)
        self.assertIn("GNU_RELRO", done.stdout)
        self.assertIn("BIND_NOW", done.stdout)
        self.assertRegex(done.stdout, r"GNU_STACK.* RW ")
        needed = re.findall(r"NEEDED.*\[(.+?)\]", done.stdout)
        self.assertEqual([n for n in needed if not n.startswith("libc.so")], [])


if __name__ == "__main__":
    slurm.isolate()
    unittest.main(argv=[sys.argv[0], *(f"Steps.{case}" for case in sys.argv[2:])], verbosity=2)
