"""A client to be killed: python -m tests.integration.bus_peer RUNTIME ROLE [bind|connect]"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from shared.bus.client import BusClient
from shared.bus.endpoints import Endpoints
from shared.bus.messages.joining import Hello
from shared.config.settings import Paths


def main() -> None:
    runtime, role, *side = sys.argv[1:]
    proposals: Any = side[0] if side else None
    hello = Hello.model_validate({"role": role, "incarnation": time.monotonic_ns(), "pid": os.getpid()})
    client = BusClient(Endpoints.of(Paths(runtime=Path(runtime))), hello, proposals)
    client.start()
    while True:
        event = client.receive(60)
        print(type(event).__name__, flush=True)


if __name__ == "__main__":
    main()
