"""Run the examples in scripts/cluster/ and docs/scaling.md, and recompute the numbers of that page."""

import functools
import json
import os
import pathlib
import re
import subprocess
import time

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.methods import OBJECTIVES
from cyclegan.networks import discriminators, generators
from cyclegan.networks.network_set import NetworkSet

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())  # without the ends of lines
SLURM, YAML, SSH = (
    (ROOT / "scripts" / "cluster" / name).read_text(encoding="utf-8")
    for name in ("train.sbatch", "train.yaml", "train_by_ssh.sh")
)
SHELL = [SLURM, SSH, *re.findall(r"^```(?:sh|bash)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


def bash(text, folder, **environment):
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, **environment}
    return subprocess.run(["bash", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, timeout=30)


def expected(hosts, index):
    return {"cluster": {"worker": [f"{host}:20000" for host in hosts]}, "task": {"type": "worker", "index": index}}


@pytest.mark.parametrize("block", SHELL, ids=lambda block: block.strip().splitlines()[-1][:30])
def test_shell_examples_parse(block):
    result = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("code, requeued", [(0, ""), (1, ""), (2, ""), (137, "requeue 7\n"), (143, "requeue 7\n")])
@pytest.mark.parametrize("restarts", [None, "8", "9"])
def test_slurm_script_requeues_after_a_signal(tmp_path, code, requeued, restarts):
    program(tmp_path / "srun", f'echo "$@"; exit {code}')
    program(tmp_path / "scontrol", 'echo "$@" >>requeued')
    (tmp_path / "requeued").touch()
    count = {} if restarts is None else {"SLURM_RESTART_COUNT": restarts}
    result = bash(SLURM, tmp_path, SLURM_CPUS_PER_TASK="32", SLURM_JOB_ID="7", **count)
    assert (result.returncode, result.stderr) == (code, "")
    assert (tmp_path / "requeued").read_text() == ("" if (code, restarts) == (137, "9") else requeued)
    assert re.search(
        r"^--cpus-per-task=32 .*--wait=300 \S*python train.py .*--output_dir runs/horse2zebra", result.stdout
    )


@pytest.mark.parametrize("index", range(3))
def test_tf_config_of_a_pod(tmp_path, index):
    (command,) = re.findall(r"- \|\n((?: {14}.*\n)+)", YAML)
    program(tmp_path / "python", 'printf "%s" "$TF_CONFIG"; echo "$@" >&2')
    result = bash(command, tmp_path, WORKERS="3", JOB_COMPLETION_INDEX=str(index))
    assert json.loads(result.stdout) == expected([f"cyclegan-{i}.cyclegan" for i in range(3)], index)
    assert result.stderr.startswith("train.py --dataset /data/horse2zebra --output_dir /data/runs/horse2zebra ")


def test_yaml_is_consistent():
    documents = list(pytest.importorskip("yaml").safe_load_all(YAML))
    service, policy, claim, job = documents
    assert [document["kind"] for document in documents] == ["Service", "NetworkPolicy", "PersistentVolumeClaim", "Job"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    workers = {entry["name"]: entry["value"] for entry in container["env"]}["WORKERS"]
    assert str(spec["completions"]) == str(spec["parallelism"]) == workers == "3"
    labels = spec["template"]["metadata"]["labels"]
    peers = policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert service["spec"]["selector"] == policy["spec"]["podSelector"]["matchLabels"] == peers == labels
    assert job["metadata"]["name"] == "cyclegan" and pod["subdomain"] == service["metadata"]["name"] == "cyclegan"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes.keys() == {mount["name"] for mount in container["volumeMounts"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    limit = re.search(r"--start_timeout (\d+)", container["args"][0])
    assert int(limit.group(1)) > 600 and pod["restartPolicy"] == "Never"


def test_ssh_script_starts_a_worker_per_host(tmp_path):
    program(tmp_path / "ssh", 'echo "$1" >>hosts; exec bash -c "$2"')
    program(tmp_path / ".venv" / "bin" / "python", 'echo "$$ $# $@"; echo "$TF_CONFIG"')
    script = SSH.replace("/shared/cyclegan", str(tmp_path))
    result = bash(script, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    hosts = [f"10.0.0.{i}" for i in (1, 2, 3)]
    assert (tmp_path / "hosts").read_text().split() == hosts
    for index in range(3):
        log = tmp_path / f"worker_{index}.log"
        until = time.monotonic() + 20
        while log.read_text().count("\n") < 2 and time.monotonic() < until:
            time.sleep(0.02)
        command, config = log.read_text().splitlines()
        process = (tmp_path / f"worker_{index}.pid").read_text().strip()
        assert command == f"{process} 5 train.py --dataset cycle_gan/horse2zebra --output_dir runs/horse2zebra"
        assert json.loads(config) == expected(hosts, index)


@functools.lru_cache(None)
def network_costs():
    """Return (gradients in bytes, FLOP per pair) of the default networks at 256 px."""
    config = parse_args([])
    # One of each instead of two, because building them takes seconds.
    G, D = generators.make_generator(config.networks), discriminators.make_discriminator(config.networks)
    networks = NetworkSet({"G": G, "F": G}, {"D_X": D, "D_Y": D}, {}, joins_inputs=True)
    flops = OBJECTIVES["cyclegan"](config.objective, 1).flops(networks, 256, 256)
    return 4 * 2 * sum(networks.parameter_counts()), flops


LINKS = {"11": ((250e9, 5e-6), (11e9, 25e-6)), "1.1": ((25e9, 10e-6), (1.1e9, 25e-6))}  # bytes/s, seconds per hop


def efficiency(n, links):
    """Return the images/s per GPU with batch 1 on n GPUs of 50 TFLOP/s in one ring, relative to one GPU."""
    size, flop = network_costs()
    bandwidth, latency = LINKS[links][n > 8]
    reduction = 2 * (n - 1) / n * size / bandwidth + 2 * (n - 1) * latency
    return 1 / (1 + reduction * 50e12 / flop)


def test_table_of_efficiencies():
    size, flop = network_costs()
    assert f"({size / 1e6:.1f} MB)" in TEXT and f"{flop / 1e12:.3f} TFLOP" in TEXT
    for links in LINKS:
        cells = (f"{efficiency(n, links):.0%}".replace("%", " %") for n in (8, 16))
        assert f"between machines: {links} GB/s | {' | '.join(cells)} |\n" in PAGE
