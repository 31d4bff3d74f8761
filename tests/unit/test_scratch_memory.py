"""What a scratch needs it takes at its start, so that no later pass makes its process grow."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TAKEN = """
import sys
from pathlib import Path
import psutil
from shared.config.settings import Paths
from shared.model.open import open_model
from shared.native import Scratch

model = open_model("smollm2-135m", Paths(data=Path(sys.argv[1]))).load(1)
before = psutil.Process().memory_info().rss
scratch = Scratch(model, 128, 65)
print((psutil.Process().memory_info().rss - before) / (65 * model.n_vocab * 4))
"""


def test_rows_of_logits_are_in_memory_from_the_start(data_dir: Path) -> None:
    """In a process of its own, which has no freed memory to give out again."""
    command = [sys.executable, "-c", TAKEN, str(data_dir)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert float(done.stdout) > 0.95
