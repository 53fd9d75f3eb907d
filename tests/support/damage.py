"""Seeded damage to a file's content: truncations, flipped bits, swapped sections and zeroed ranges.

And to a Treelite model: a changed entry of one field of one tree.
"""

from __future__ import annotations

import random
from pathlib import Path

import treelite

KINDS = ("truncated", "flipped bits", "swapped sections", "zeroed range")

FIELDS = (
    *("node_type", "cleft", "cright", "split_index", "default_left", "cmp", "category_list_right_child"),
    *("leaf_vector_begin", "leaf_vector_end", "category_list", "category_list_begin", "category_list_end"),
)


def change_field(path: Path, number: int) -> None:
    """Change an entry of a field that FIL walks, in the checkpoint at ``path``; ``number`` decides."""
    rng = random.Random(number)
    model = treelite.Model.deserialize(path)
    tree = model.get_tree_accessor(rng.randrange(model.num_tree))
    fields = {name: values.copy() for name in FIELDS if len(values := tree.get_field(name))}
    name = rng.choice(list(fields))
    values = fields[name]
    at, bits = rng.randrange(len(values)), values.view(f"u{values.itemsize}")
    before = int(bits[at])
    while int(bits[at]) == before:
        flipped = before ^ (1 << rng.randrange(8 * values.itemsize))
        bits[at] = rng.choice((flipped, before + 1, 0)) % (1 << 8 * values.itemsize)
    tree.set_field(name, values)
    model.serialize(path)


def damaged(content: bytes, number: int) -> tuple[str, bytes]:
    """Return the kind of damage and the damaged content, both decided by ``number``; it always differs."""
    rng = random.Random(number)
    kind = KINDS[number % len(KINDS)]
    while True:
        changed = _damage(kind, content, rng)
        if changed != content:
            return kind, changed


def _damage(kind: str, content: bytes, rng: random.Random) -> bytes:
    # Half of the places are in the first 600 bytes: the header, where damage does the most.
    start = rng.randrange(min(600, len(content)) if rng.random() < 0.5 else len(content))
    length = rng.choice((1, 4, 8, 64, 512))
    if kind == "truncated":
        return content[:start]
    out = bytearray(content)
    if kind == "flipped bits":
        for _ in range(rng.choice((1, 1, 8, 64))):
            out[start] ^= 1 << rng.randrange(8)
            start = rng.randrange(len(out))
    elif kind == "swapped sections":
        other = rng.randrange(len(out))
        first, second = sorted((start, other))
        length = min(length, second - first)
        one, two = out[first : first + length], out[second : second + length]
        out[first : first + length], out[second : second + len(two)] = two + one[len(two) :], one[: len(two)]
    else:
        out[start : start + length] = bytes(len(out[start : start + length]))
    return bytes(out)
