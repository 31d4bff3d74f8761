"""Token tries: what drafters propose and the verifier picks from. Pure logic, no I/O."""

from shared.tree.draws import Drawn, Draws, Try
from shared.tree.survival import Survival
from shared.tree.trie import LOWEST_LOGQ, Node, Selection, TokenTrie, Weigh

__all__ = ["LOWEST_LOGQ", "Drawn", "Draws", "Node", "Selection", "Survival", "TokenTrie", "Try", "Weigh"]
