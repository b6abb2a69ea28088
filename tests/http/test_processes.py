"""Shards in processes of their own, started by mpirun: the answers of one process, and what is said when one is gone.
With TANDEM_BINARY=build/cuda-release/tandem and a GPU also on that, which the processes take turns on."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from tandem_server import TandemServer, read_until

NUM_SHARDS = 3  # the real model has 9 heads
SHARDS = ("--tensor-parallel-size", str(NUM_SHARDS), "--dtype", "fp32", "--cpu-threads", "2")
ON_A_GPU = ("--device", "cuda", "--gpu-sm-slices", str(NUM_SHARDS), "--profile-seconds", "1")
# Within this a shard that is gone or hangs has ended every stream.
NOTICED_S = 10
SCHEMA = {"type": "object", "properties": {"n": {"enum": [17, 23]}}, "required": ["n"], "additionalProperties": False}


def mpirun(num_processes=NUM_SHARDS):
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("mpirun is not installed")
    # Tests may run as root, and on fewer cores than there are processes.
    return (program, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", str(num_processes))


def processes_of(launcher):
    """The pids of an mpirun's processes by rank."""
    pids = {}
    for pid in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        rank = next(each for each in environment if each.startswith(b"OMPI_COMM_WORLD_RANK="))
        pids[int(rank.split(b"=")[1])] = int(pid)
    assert sorted(pids) == list(range(NUM_SHARDS)), pids
    return pids


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def wait_until_gone(pids):
    """mpirun may be gone before them: a process that is killed first gives back its memory."""
    deadline = time.monotonic() + NOTICED_S
    while left := {rank: pid for rank, pid in pids.items() if not is_gone(pid)}:
        assert time.monotonic() < deadline, f"shards by rank and pid that go on: {left}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def has_gpu(binary):
    tried = subprocess.run([binary, "generate", "--dummy", "tiny", "-p", "Hi", "-n", "1", "--device", "cuda",
                            "--strategy", "gpu-only"], capture_output=True, timeout=120)
    return tried.returncode == 0


@pytest.fixture(params=["host", "cuda"])
def flags(request):
    """Of a server with shards."""
    if request.param == "host":
        return SHARDS
    if not request.getfixturevalue("has_gpu"):
        pytest.skip("no GPU, or a build without the cuda backend")
    return SHARDS + ON_A_GPU


@pytest.fixture
def sharded(binary, model_path, flags):
    with TandemServer(binary, model_path, *flags, launcher=mpirun()) as server:
        yield server


def answers_of(server):
    plain = server.complete(max_tokens=10, logprobs=3)["choices"][0]
    drawn = server.complete(max_tokens=6, temperature=1, seed=5, prompt="Once upon a time")["choices"][0]
    status, answer = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "A number."}], "max_tokens": 20, "temperature": 0,
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}})
    assert status == 200, answer
    return plain["text"], plain["logprobs"], drawn["text"], answer["choices"][0]["message"]["content"]


def test_answers_are_those_of_one_process(binary, model_path, sharded, flags):
    tiers = ("--strategy", "async", "--cpu-kv-cache", "4096tok")

    def said(server):
        answers = answers_of(server)
        # Each process measures which product is the fastest on its GPU: the last bits are those of its choice.
        return answers if flags == SHARDS else (answers[0], *answers[2:])

    answers = said(sharded)
    # What a grammar allows only rank 0 knows.
    assert json.loads(answers[-1])["n"] in (17, 23)
    with TandemServer(binary, model_path, *flags) as one_process:
        assert said(one_process) == answers
    with TandemServer(binary, model_path, *flags, *tiers, launcher=mpirun()) as in_tiers:
        assert said(in_tiers) == answers
    # Rank 0 drains, and the others end with it.
    os.kill(processes_of(sharded.process)[0], signal.SIGTERM)
    assert sharded.process.wait(20) == 0, sharded.errors()


def test_generate_writes_the_text_of_one_process(binary, model_path):
    command = [binary, "generate", model_path, "-p", "The capital of France is", "-n", "8", "--temperature", "0", *SHARDS]
    texts = [subprocess.run([*launcher, *command], capture_output=True, text=True, timeout=60, check=True).stdout
             for launcher in ((), mpirun())]
    assert texts[0].strip() and texts[0] == texts[1]


@pytest.mark.parametrize("rank, number, sentence", [
    (2, signal.SIGKILL, "shard 2 of 3 has ended: its process is gone"),
    (1, signal.SIGSTOP, "shard 1 of 3 has not been heard of for 6 s"),
], ids=["killed", "hangs"])
def test_a_shard_that_is_gone_ends_all_with_one_sentence(sharded, rank, number, sentence):
    pids = processes_of(sharded.process)
    with sharded.open_stream(max_tokens=900) as stream:
        read_until(stream, b"data:")
        begin = time.monotonic()
        os.kill(pids[rank], number)
        received = read_until(stream, b'"error"') + read_until(stream, b"\n\n")
        assert time.monotonic() - begin < NOTICED_S
    assert sentence.encode() in received, received[-500:]
    # Its server ends with an error, and nobody is left over.
    if number == signal.SIGSTOP:
        assert sentence in wait_for_error(sharded)
        os.kill(pids[rank], signal.SIGKILL)
    assert sharded.process.wait(20) != 0
    assert f"tandem: {sentence}\n" in sharded.errors()
    wait_until_gone(pids)


def wait_for_error(server):
    deadline = time.monotonic() + NOTICED_S
    while "tandem: shard" not in server.errors():
        assert time.monotonic() < deadline, server.errors()
        time.sleep(0.05)
    return server.errors()


def test_without_rank_0_the_others_end(sharded):
    pids = processes_of(sharded.process)
    os.kill(pids[0], signal.SIGKILL)
    wait_until_gone(pids)
    assert sharded.process.wait(20) != 0


@pytest.mark.parametrize("num_processes, flags, sentence", [
    (2, SHARDS, "2 processes were started and --tensor-parallel-size is 3: each process has one shard"),
    (2, ("--tensor-parallel-size", "2"),
     "the model's 9 attention heads cannot be cut into 2 shards; tensor-parallel-size may be 1, 3"),
    (3, (*SHARDS, "--gpu-kv-cache", "1tok", "--kv-transit", "1"), "--kv-transit is too small"),
], ids=["processes", "heads", "rank 0 alone"])
def test_a_wrong_use_is_one_sentence(binary, model_path, num_processes, flags, sentence):
    ended = subprocess.run([*mpirun(num_processes), binary, "generate", model_path, "-p", "Hi", "-n", "1", *flags],
                           capture_output=True, text=True, timeout=60)
    assert ended.returncode != 0
    said = [line for line in ended.stderr.splitlines() if line.startswith("tandem: ")]
    assert len(said) == 1 and sentence in said[0], ended.stderr
