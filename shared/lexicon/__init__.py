"""The plant's lexicon: its manuals and alarm texts as tokens, for drafts (`ringline lexicon build`)."""

from shared.lexicon.file import Passage, Passages, read_lexicon, write_lexicon

__all__ = ["Passage", "Passages", "read_lexicon", "write_lexicon"]
