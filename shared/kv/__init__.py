"""The two shared-memory files: kv.pool holds K/V, kv.ctl says what is where."""

from shared.kv.attach import Attached, attach
from shared.kv.geometry import DRAFT_PLANE, TARGET_PLANE, KvGeometry, blocks_of, describe_plane
from shared.kv.late import LatePool
from shared.kv.layout import ControlSpec
from shared.kv.segment import Segment, open_segment, remove_unowned

__all__ = [
    "DRAFT_PLANE",
    "TARGET_PLANE",
    "Attached",
    "ControlSpec",
    "KvGeometry",
    "LatePool",
    "Segment",
    "attach",
    "blocks_of",
    "describe_plane",
    "open_segment",
    "remove_unowned",
]
