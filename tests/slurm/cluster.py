"""A real Slurm cluster on this machine: munged, slurmctld and one slurmd per network namespace.

Everything is in namespaces of its own: files that daemons expect at fixed places are laid over the
machine's, ports are free, and when the test ends, however it ends, every process ends with it.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = 4242  # who submits; laid over the machine's passwd
PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "munged", "unshare", "nsenter", "setpriv",
            "ip", "curl")
DEADLINE_S = 60 * int(os.environ.get("DEFT_TEST_SLOWNESS", "1"))
ISOLATED = "DEFT_TEST_SLURM_ISOLATED"
CONTROLLER = "http://10.77.0.1:7420"


def skip(why):
    print(f"SKIPPED: {why}")
    sys.exit(77)


def isolate():
    """Starts this program again as a child of the first process of new namespaces."""
    if os.environ.get(ISOLATED) != "1":
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            skip(f"there is no {missing[0]} here; scripts/packages --install slurm")
        if os.getuid() != 0:
            skip("a cluster needs root: its daemons start steps as the job's user")
        flags = ["--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--mount-proc"]
        if subprocess.run(["unshare", *flags, "true"], check=False,
                          stderr=subprocess.DEVNULL).returncode != 0:
            skip("namespaces cannot be made here")
        os.environ[ISOLATED] = "1"
        os.execvp("unshare", ["unshare", *flags, sys.executable, *sys.argv])
    child = os.fork()
    if child == 0:
        return
    while True:  # as the first process: what loses its parent is ours to reap
        try:
            pid, status = os.wait()
        except InterruptedError:
            continue
        if pid == child:
            sys.stdout.flush()
            os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def await_true(what, condition, deadline_s=DEADLINE_S):
    """What `condition` returns once it is true."""
    end = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s} s for {what}")
        time.sleep(0.02)


def processes():
    """{pid: command line} of everything in these namespaces but ourselves and zombies."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in (1, os.getpid()):
            continue
        try:
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (OSError, IndexError):
            continue
        if state != "Z":
            found[int(entry.name)] = line.strip()
    return found


FREEZER = Path("/sys/fs/cgroup/freezer")


def has_freezer():
    try:
        (FREEZER / "deft-slurm-probe").mkdir()
        (FREEZER / "deft-slurm-probe").rmdir()
    except OSError:
        return False
    return True


def version():
    """Of Slurm, such as "22.05.8"."""
    return subprocess.run(["slurmd", "-V"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split()[-1]


class Cluster:
    """`with Cluster(build_folder) as cluster:`; call isolate() first."""

    def __init__(self, build, nodes=2, rates=(0,), plugstack="", with_plugin=True,
                 proctrack="linuxproc"):
        self.build = Path(build)
        self.names = [f"n{i + 1}" for i in range(nodes)]
        self.rates = rates
        self.keys = plugstack
        self.with_plugin = with_plugin
        self.proctrack = proctrack
        self.folder = Path(tempfile.mkdtemp(prefix="deft-slurm-"))
        self.running = []
        self.controller = None
        self.token = ""
        self.hosts = None

    # --- start and stop -------------------------------------------------------------------------

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        for process in reversed(self.running):
            if process.poll() is None:
                process.kill()
                process.wait()
        self._leave_no_groups()
        subprocess.run(["umount", "-l", "/etc/passwd", "/etc/group"], check=False,
                       stderr=subprocess.DEVNULL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _leave_no_groups(self):
        """Control groups are the machine's; Slurm removes those of steps, not those of nodes."""
        for name in self.names if self.proctrack == "cgroup" else ():
            for folder, _, _ in os.walk(FREEZER / f"slurm_{name}", topdown=False):
                try:
                    await_true(f"{folder} to be empty", lambda f=folder: self._remove_group(f), 5)
                except AssertionError as error:
                    print(error, file=sys.stderr)

    def _remove_group(self, folder):
        try:
            os.rmdir(folder)
        except OSError:
            return False
        return True

    def log(self, name):
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _start(self):
        self.folder.chmod(0o755)
        for name in ("home", "logs", "data"):
            (self.folder / name).mkdir()
            os.chown(self.folder / name, USER, USER)
        self._lay_over("passwd", f"tester:x:{USER}:{USER}::{self.folder}/home:/bin/sh\n")
        self._lay_over("group", f"tester:x:{USER}:\n")
        subprocess.run(["hostname", "ctl"], check=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        self._start_hosts()
        self._start_munge()
        self.start_controller()
        self.write_plugstack()
        self._write_configuration()
        self._daemon("slurmctld", self.on(0, "slurmctld", "-D", "-f", self.folder / "slurm.conf"))
        for name in self.names:
            self.start_slurmd(name)
        self.await_idle()

    def _lay_over(self, name, line):
        path = self.folder / name
        path.write_text(Path("/etc", name).read_text() + line)
        subprocess.run(["mount", "--bind", path, f"/etc/{name}"], check=True)

    def name_hosts(self):
        """From now on the nodes' names resolve; at first only Slurm knows their addresses."""
        self._lay_over("hosts", "".join(f"10.77.0.{i + 1} {name}\n"
                                        for i, name in enumerate(self.names)))

    def forget_hosts(self):
        subprocess.run(["umount", "-l", "/etc/hosts"], check=True)

    def _daemon(self, name, command, **options):
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, **options)
        self.running.append(process)
        return process

    def _start_hosts(self):
        rates = " ".join(str(rate) for rate in self.rates)
        self.hosts_process = subprocess.Popen(
            ["bash", "-c", f". {ROOT}/scripts/hosts; hosts_create {len(self.names)} {rates} && "
             'echo "$HOSTS_DIR" && cat; hosts_remove'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "TMPDIR": str(self.folder)})
        self.running.append(self.hosts_process)
        self.hosts = Path(self.hosts_process.stdout.readline().strip() or "/nowhere")
        if not self.hosts.is_dir():
            raise AssertionError("hosts could not be made")

    def _start_munge(self):
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        # On a busy machine Slurm would give up steps whose credentials come late.
        self._daemon("munged", ["nice", "-n", "-10", "munged", "--foreground", "--force",
                                "--num-threads=8", f"--key-file={key}",
                                f"--socket={self.folder}/munge.socket",
                                f"--pid-file={self.folder}/munge.pid",
                                f"--seed-file={self.folder}/munge.seed",
                                f"--log-file={self.folder}/munge.own"])
        await_true("munged", (self.folder / "munge.socket").exists)

    def write_plugstack(self, line=None):
        if line is None:
            line = (f"optional {self.build}/lib/spank_deft.so controller={CONTROLLER} "
                    f"agent={self.build}/bin/deft-agent log_dir={self.folder}/logs "
                    f"token_file={self.folder}/agent.token {self.keys}")
        (self.folder / "plugstack.conf").write_text(f"{line if self.with_plugin else ''}\n")

    def _write_configuration(self):
        for name in ("state", *(f"spool.{n}" for n in self.names)):
            (self.folder / name).mkdir()
        nodes = "\n".join(f"NodeName={name} NodeAddr=10.77.0.{i + 1} CPUs=8 RealMemory=1000"
                          for i, name in enumerate(self.names))
        (self.folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (self.folder / "slurm.conf").write_text(f"""ClusterName=test
SlurmctldHost=ctl(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self.folder}/munge.socket,cred_expire=5
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool.%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd.%n.pid
PlugStackConfig={self.folder}/plugstack.conf
ProctrackType=proctrack/{self.proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
ReturnToService=2
KillWait=2
MaxArraySize=40000
FirstJobId=1000
MailProg=/bin/true
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
""")

    def start_slurmd(self, name):
        return self._daemon(f"slurmd.{name}", [
            "nsenter", f"--net={self._net(self.names.index(name))}", "--", "unshare", "--uts",
            "sh", "-c", f"hostname {name} && exec slurmd -D -f {self.folder}/slurm.conf"])

    def start_controller(self, port=7420):
        """With a token for agents; `self.token` is an operator's."""
        database = self.folder / "data" / "deft.db"
        program = self.build / "bin" / "deft-controller"
        if not self.token:
            self.token = self._as_user([program, "token", "create", "--db", database, "--name",
                                        "tester", "--role", "operator"]).strip()
            # Jobs count from 1000, so every id of this cluster begins like this.
            agents = self._as_user([program, "token", "create", "--db", database, "--name",
                                    "agents", "--role", "agent", "--job-prefix", "1"])
            (self.folder / "agent.token").write_text(agents)
        self.controller = self._daemon("controller", self.on(
            0, "setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", program,
            "--listen", "10.77.0.1", "--port", port, "--db", database))
        await_true("the controller", lambda: self.on_host(
            0, "curl", "-sf", f"http://10.77.0.1:{port}/readyz", check=False).returncode == 0)

    def _as_user(self, command):
        return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE,
                              text=True, user=USER, group=USER, extra_groups=[],
                              env=self.environment()).stdout

    def await_idle(self):
        def states():
            done = self.slurm("sinfo", "-h", "-N", "-o", "%T", check=False)
            found = done.stdout.split()
            return len(found) == len(self.names) and set(found) == {"idle"}
        await_true("all nodes to be idle", states)

    # --- use ------------------------------------------------------------------------------------

    def _net(self, host):
        return f"/proc/{(self.hosts / f'host{host}.pid').read_text().strip()}/ns/net"

    def on(self, host, *command):
        return ["nsenter", f"--net={self._net(host)}", "--", *command]

    def on_host(self, host, *command, **options):
        return subprocess.run([str(c) for c in self.on(host, *command)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, **{"check": True, **options})

    def environment(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": f"{self.folder}/home", "LANG": "C.UTF-8",
                "SLURM_CONF": f"{self.folder}/slurm.conf", **more}

    def command(self, *command):
        return [str(c) for c in self.on(0, "setpriv", f"--reuid={USER}", f"--regid={USER}",
                                        "--clear-groups", *command)]

    def slurm(self, *command, env=None, check=True, timeout=DEADLINE_S):
        """Runs a command of Slurm, or any other, as the user who submits."""
        done = subprocess.run(self.command(*command), stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                              cwd=self.folder / "home", env=self.environment(**(env or {})),
                              check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}\n"
                                 f"{done.stderr}")
        return done

    def run_quietly(self, command):
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, cwd=self.folder / "home",
                       env=self.environment())

    def begin(self, *command, env=None):
        """As slurm(), without waiting; its output goes to one pipe."""
        process = subprocess.Popen(self.command(*command), stdin=subprocess.DEVNULL, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   cwd=self.folder / "home",
                                   env=self.environment(**(env or {})))
        self.running.append(process)
        return process

    def get(self, path):
        """JSON of the controller's REST interface; None for 404."""
        done = self.on_host(0, "curl", "-s", "-w", "\n%{http_code}", "-H",
                            f"Authorization: Bearer {self.token}", f"{CONTROLLER}/api/v1{path}")
        body, code = done.stdout.rsplit("\n", 1)
        if code == "404":
            return None
        if code != "200":
            raise AssertionError(f"GET {path}: {code} {body}")
        return json.loads(body)

    def job_id(self, text):
        """Of "Submitted batch job 123"."""
        return re.search(r"\d+", text).group()

    def await_job(self, job):
        """Its state and exit code once it has ended, as scontrol tells them."""
        def ended():
            text = self.slurm("scontrol", "show", "job", job, check=False).stdout
            state = re.search(r"JobState=(\S+)", text)
            if state and state.group(1) not in ("PENDING", "RUNNING", "COMPLETING", "SUSPENDED",
                                                "CONFIGURING"):
                return state.group(1), re.search(r"ExitCode=(\S+)", text).group(1)
            return None
        return await_true(f"the end of job {job}", ended)

    def states(self):
        return self.slurm("sinfo", "-h", "-N", "-o", "%T").stdout.split()

    def leftovers(self):
        """Processes that no step should leave behind."""
        words = ("deft-agent", "slurmstepd", "run_rank", "deft-train", "sleep 6")
        return {pid: line for pid, line in processes().items()
                if any(word in line for word in words)}

    def await_nothing_left(self):
        await_true("the processes of the steps to end", lambda: not self.leftovers())

    def kill(self, pattern, number=signal.SIGKILL):
        """Signals every process in these namespaces whose command line fits; how many."""
        n = 0
        for pid, line in processes().items():
            if re.search(pattern, line):
                try:
                    os.kill(pid, number)
                    n += 1
                except ProcessLookupError:
                    pass
        return n
