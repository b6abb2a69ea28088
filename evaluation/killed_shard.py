#!/usr/bin/env python3
"""Kills one of two processes with a shard each amid a run, and says how long until the other said so.

    python3 evaluation/killed_shard.py build/cuda-release/tandem --dummy llama-3.2-1b --device cuda

All behind the program are flags of `tandem bench offline`, which mpirun starts in two processes. Exit code 1 unless rank 0
says within 10 s that shard 1 has ended or is silent.
"""

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

NOTICED_S = 10
START_S = 300
END_S = 60
# More than is done by then.
WORK = ("--workload", "synthetic:in=200,out=800", "--num-requests", "20000")
# Of the log, once requests run.
RUNS = "shards in processes of their own"
SAYS = "has "  # ended: its process is gone; not been heard of for 6 s; kept the others waiting


def pid_of(launcher, rank):
    for pid in pathlib.Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        if f"OMPI_COMM_WORLD_RANK={rank}".encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return int(pid)
    raise SystemExit(f"there is no process of rank {rank}")


class Lines:
    """Of a stream, with the time at which each came."""

    def __init__(self, stream):
        self._lines = []
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self):
        for line in self._stream:
            self._lines.append((time.monotonic(), line.rstrip()))

    def wait_for(self, is_it, timeout_s):
        """(time, line) of the first that is, or None."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            ended = not self._thread.is_alive()
            for at, line in list(self._lines):
                if is_it(line):
                    return at, line
            if ended:
                break
            time.sleep(0.01)
        return None

    def show(self):
        print("\n".join(line for _, line in self._lines[-20:]), file=sys.stderr)


def main(program, *flags):
    # Else mpirun would kill rank 0 before it says anything.
    launcher = ("mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--enable-recovery", "-n", "2")
    run = subprocess.Popen([*launcher, program, "bench", "offline", *flags, "--tensor-parallel-size", "2", *WORK],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = Lines(run.stderr)
    try:
        if lines.wait_for(lambda line: RUNS in line, START_S) is None:
            lines.show()
            print("the run has not begun")
            return 1
        time.sleep(3)
        killed = time.monotonic()
        os.kill(pid_of(run, 1), signal.SIGKILL)
        said = lines.wait_for(lambda line: "shard 1 of 2" in line and SAYS in line, NOTICED_S)
        if said is None:
            lines.show()
            print(f"nothing was said within {NOTICED_S} s")
            return 1
        print(f"{said[0] - killed:.2f} s after it was killed: {said[1]}")
        run.wait(END_S)
        ended = lines.wait_for(lambda line: line.startswith("tandem: "), 1)
        print(f"{time.monotonic() - killed:.2f} s after it was killed all had ended, with code {run.returncode}" + (f": {ended[1]}" if ended else ""))
        return 0
    finally:
        run.kill()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
