"""The page of a training: what to expect of the network and the heads, with pictures.

It stands here because it needs both what training kept and the evaluation's own metrics, neither of which may import
the other.
"""
