"""Starts and stops one server, and meters who used the CPUs meanwhile."""

import contextlib
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 180


@dataclass
class ServerCommand:
    """Words of a command; {port} in a word is filled in at every start."""

    words: list


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A context: a started server (a ServerCommand) or a running one (its address)."""

    def __init__(self, target, threads, log_path, start_timeout_s=START_TIMEOUT_S):
        self._target = target
        self._threads = threads
        self._log_path = log_path
        self._start_timeout_s = start_timeout_s
        self._process = None
        self.url = None
        self.pid = None

    def __enter__(self):
        if isinstance(self._target, str):
            self.url = self._target.rstrip("/")
            return self
        port = free_port()
        words = [word.replace("{port}", str(port)) for word in self._target.words]
        cpus = sorted(os.sched_getaffinity(0))[: self._threads]
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                words,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cpus),
            )
        self.url = f"http://127.0.0.1:{port}"
        self.pid = self._process.pid
        try:
            self._wait_until_healthy()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *exc):
        self._stop()

    def _wait_until_healthy(self):
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                tail = self._log_path.read_text(errors="replace")[-2000:]
                raise SystemExit(f"{self._target.words[0]} ended with {self._process.returncode}:\n{tail}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as reply:
                    if reply.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            time.sleep(0.1)
        raise SystemExit(f"{self._target.words[0]} was not healthy after {self._start_timeout_s:.0f} s")

    def _stop(self):
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # What it started itself and left behind; it has a session of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


def machine_busy_s():
    """CPU seconds that the machine has spent on anything; steal counts, since it is not ours."""
    fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def process_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class CpuMeter:
    """Share of the machine's CPU time used by neither the server nor this process, since construction."""

    def __init__(self, pid):
        self._pid = pid
        if pid is not None:
            self._start = (time.monotonic(), machine_busy_s(), process_s(pid) + process_s(os.getpid()))

    def other_share(self):
        """None when the server's process is not known."""
        if self._pid is None:
            return None
        wall, busy, ours = self._start
        elapsed = time.monotonic() - wall
        others = (machine_busy_s() - busy) - (process_s(self._pid) + process_s(os.getpid()) - ours)
        return max(0.0, others / (elapsed * os.cpu_count()))
