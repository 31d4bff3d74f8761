"""Stop signals reach a process at any instant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

UNDER_FIRE = """
import os, subprocess, sys, time
from shared.config.signals import stop_event

stop = stop_event()
shots = "import os, sys, time\\nwhile True: os.kill(int(sys.argv[1]), 15); time.sleep(5e-5)"
gun = subprocess.Popen([sys.executable, "-c", shots, str(os.getpid())])
assert stop.wait(30)
end = time.monotonic() + 3
while time.monotonic() < end:
    stop.wait(1e-4)
    stop.clear()
gun.kill()
"""


def test_a_signal_between_two_instructions_of_a_wait_does_not_block_the_process() -> None:
    """Setting the event in the handler itself would: the wait that was interrupted holds the event's lock."""
    subprocess.run([sys.executable, "-c", UNDER_FIRE], cwd=ROOT, check=True, timeout=60)
