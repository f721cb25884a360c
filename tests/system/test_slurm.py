"""Run scripts/cluster/train.sbatch under a real Slurm, which this file starts for itself on this machine.

It has its own configuration, ports and keys, so a Slurm of the machine is not touched, and needs no rights of root.
"""

import contextlib
import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

from cyclegan.run.metrics_log import CHANGED
from cyclegan.run.run_directory import saved_checkpoints
from scripts.soak.comparison import log_lines
from tests.system import worker_processes
from tests.system.runs import ROOT, assert_same, variables

SCRIPT = (ROOT / "scripts" / "cluster" / "train.sbatch").read_text(encoding="utf-8")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
FLAGS = [*worker_processes.FLAGS, "--checkpoint_minutes", 0, "--steps_per_call", 1]
FLAGS += ["--lr_schedule", "constant", "--plot_every", 9999]
CREDENTIAL_SECONDS = 5  # of the first start of a job, until it may start again
SECONDS = 400  # for each event; the machine may be busy

pytestmark = pytest.mark.slow

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={expire}
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A Slurm of one node. `folder` holds its files and those of the jobs."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "TF_CONFIG"))},
            **{"PATH": PATH, "SLURM_CONF": str(folder / "slurm.conf"), "CUDA_VISIBLE_DEVICES": ""},
        }

    def call(self, *command, check=True):
        """Run a command of Slurm; return its output."""
        done = subprocess.run(
            list(map(str, command)), env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def start(self):
        """Start the daemons, unless this user may not."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        ports = [address.rpartition(":")[2] for address in worker_processes.free_addresses(2)]
        text = CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            ports=ports,
            folder=self.folder,
            user=getpass.getuser(),
            expire=CREDENTIAL_SECONDS,
        )
        (self.folder / "slurm.conf").write_text(text)
        munge = {"socket": "munge.socket", "key-file": key.name, "pid-file": "munged.pid", "log-file": "munged.log"}
        munge["seed-file"] = "munged.seed"
        files = [f"--{option}={self.folder / name}" for option, name in munge.items()]
        for command in (["munged", "--force", *files], ["slurmctld", "-c", "-i"], ["slurmd"]):
            try:
                self.call(*command)
            except AssertionError as error:
                if "ermi" in f"{error}":  # not permitted, permission denied
                    pytest.skip(f"{command[0]} is not allowed to start here: {error}")
                raise
        self.wait("an idle node", lambda: "idle" in self.call("sinfo", "-h", "-o", "%T", check=False))

    def stop(self):
        """Cancel all jobs and end the daemons."""
        self.call("scancel", "--user", getpass.getuser(), check=False)
        self.call("scancel", "--signal=KILL", "--user", getpass.getuser(), check=False)
        time.sleep(1)
        for name in ("slurmctld", "slurmd", "munged"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((self.folder / f"{name}.pid").read_text()), signal.SIGTERM)

    def submit(self, name, *flags):
        """Submit the script, with another size, for a run NAME; return the number of the job."""
        script = SCRIPT
        command = f"{sys.executable} {ROOT}/train.py {' '.join(map(str, flags))}"
        for pattern, text in (
            (r"--nodes=2", "--nodes=1"),
            (r"--ntasks-per-node=1", "--ntasks-per-node=2"),
            (r"#SBATCH --gpus-per-node=8\n", ""),
            (r"--cpus-per-task=32", "--cpus-per-task=1"),
            (r"--time=24:00:00", "--time=30"),
            (r"--signal=TERM@300", "--signal=TERM@150"),
            (r"\.venv/bin/python train.py .*?( \|\| code)", rf"{command}\1"),
        ):
            script, count = re.subn(pattern, text, script)
            assert count == 1, pattern
        (self.folder / f"{name}.sbatch").write_text(script)
        return self.call("sbatch", "--parsable", f"--job-name={name}", f"{name}.sbatch").strip()

    def state(self, job):
        """Return the state of a job."""
        return re.search(r"JobState=(\w+)", self.call("scontrol", "show", "job", job))[1]

    def log(self):
        """Return the output of all jobs."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*-*.log")))

    def wait(self, what, event):
        """Wait until a function returns something true."""
        until = time.monotonic() + SECONDS
        while not event():
            if time.monotonic() > until:
                logs = [*self.folder.glob("*-*.log"), *self.folder.glob("slurm*.log")]
                pytest.fail(f"no {what} within {SECONDS} s\n" + "\n".join(log.read_text()[-3000:] for log in logs))
            time.sleep(0.3)

    def end_soon(self, job):
        """Move the time limit of a job so near that Slurm sends the signal of --signal at its next look (30 s)."""
        hours, minutes, _ = re.search(r"RunTime=(\d+):(\d+):(\d+)", self.call("scontrol", "show", "job", job)).groups()
        self.call("scontrol", "update", f"jobid={job}", f"timelimit={60 * int(hours) + int(minutes) + 2}")

    def restarted(self, job, times):
        """Wait until a job was requeued a number of times, and let it start soon, with its first time limit."""
        self.wait(f"requeue {times}", lambda: self.state(job) == "PENDING")
        assert f"Restarts={times} " in self.call("scontrol", "show", "job", job)
        self.call("scontrol", "update", f"jobid={job}", "timelimit=30")
        time.sleep(CREDENTIAL_SECONDS + 2)  # until then, the node refuses the job
        self.call("scontrol", "update", f"jobid={job}", "starttime=now", check=False)  # it may have started

    def completed(self, job):
        """Wait until a job has completed."""
        self.wait("end of the job", lambda: self.state(job) not in ("PENDING", "RUNNING", "COMPLETING"))
        assert self.state(job) == "COMPLETED", self.log()


@pytest.fixture
def slurm(tmp_path):
    missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: Debian's packages slurm-wlm and munge have them")
    made = Slurm(tmp_path)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def newest(run):
    """Return the name of the newest checkpoint of a run, or an empty text."""
    return next((path.name for path in reversed(saved_checkpoints(run / "checkpoints"))), "")


def test_preempted_and_killed_job_ends_as_an_undisturbed_one(slurm):
    flags = [*FLAGS]
    disturbed, undisturbed = slurm.folder / "disturbed", slurm.folder / "undisturbed"
    (slurm.folder / "epochs").write_text("9999")  # long enough for all signals
    job = slurm.submit("disturbed", *flags, "--epochs", "$(cat epochs)", "--output_dir", disturbed)
    slurm.wait("checkpoint within an epoch", lambda: "_pair_" in newest(disturbed))
    slurm.end_soon(job)
    slurm.restarted(job, 1)
    preempted = newest(disturbed)
    saved, log = disturbed / "checkpoints" / preempted, slurm.log()
    for worker in range(2):
        assert f"worker {worker}: stopped by SIGTERM" in log and log.count(f"saved in {saved};") == 2, log
    assert "Exited with exit code 143" in log, log

    slurm.wait("later checkpoint", lambda: newest(disturbed) != preempted)
    assert f"Resumed from {saved}: " in slurm.log()
    tasks = [line.split() for line in slurm.call("scontrol", "listpids", job).splitlines()]
    (task,) = (int(row[0]) for row in tasks if row[2:4] == ["0", "1"])  # task 1 of the step of srun
    os.kill(task, signal.SIGKILL)  # `scancel --signal=KILL` would kill both tasks
    epochs = int(newest(disturbed)[6:10]) + 2
    (slurm.folder / "epochs").write_text(f"{epochs}")
    slurm.restarted(job, 2)
    log = slurm.log()
    assert "task 1: Killed" in log and "worker 1 (" in log and "does not answer any more" in log, log
    slurm.completed(job)

    rare = ["--checkpoint_minutes", 60, "--checkpoint_every", epochs]
    slurm.completed(slurm.submit("undisturbed", *flags, *rare, "--epochs", epochs, "--output_dir", undisturbed))
    assert_same(*(variables(run / "checkpoints" / f"epoch_{epochs:04d}") for run in (disturbed, undisturbed)))
    lines = [line for line in log_lines(disturbed) if line.get("event") != CHANGED]  # its first start had more epochs
    assert lines == log_lines(undisturbed)
