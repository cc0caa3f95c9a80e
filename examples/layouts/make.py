#!/usr/bin/env python3
"""Makes itch.bin and mdp3.bin: a few messages, invented, with the lengths and places that the exchanges' documents give."""

from pathlib import Path
from struct import pack

HERE = Path(__file__).parent


def itch(kind, locate, second, body):
    time = round(second * 1e9).to_bytes(6, "big")
    message = pack(">cHH", kind, locate, 0) + time + body
    return pack(">H", len(message)) + message


def price(value):
    return pack(">I", round(value * 10_000))


OPEN = 34_200  # 9:30, in seconds since midnight
ITCH = [
    itch(b"S", 0, 10_800, b"O"),
    itch(b"R", 7, 11_000, b"ACME    " + b"Q " + pack(">I", 100) + b"N" + b"C" + b"Z " + b"PN 1N" + pack(">I", 0) + b"N"),
    itch(b"H", 7, 11_001, b"ACME    " + b"T" + b" " + b"    "),
    itch(b"A", 7, OPEN, pack(">QcI", 1, b"B", 300) + b"ACME    " + price(123.45)),
    itch(b"F", 7, OPEN + 0.25, pack(">QcI", 2, b"S", 200) + b"ACME    " + price(123.5) + b"GSCO"),
    itch(b"E", 7, OPEN + 0.5, pack(">QIQ", 2, 50, 9001)),
    itch(b"N", 7, OPEN + 0.75, b"ACME    A"),  # not in the layout: a retail price improvement indicator
    itch(b"U", 7, OPEN + 1, pack(">QQI", 1, 3, 250) + price(123.4)),
    itch(b"X", 7, OPEN + 2, pack(">QI", 2, 100)),
    itch(b"D", 7, OPEN + 3, pack(">Q", 3)),
    itch(b"P", 7, OPEN + 4, pack(">QcI", 0, b"B", 10) + b"ACME    " + price(123.47) + pack(">Q", 9002)),
]


def mdp3(template, root, *parts, version=9):
    body = b"".join(parts)
    return pack("<HHHHH", 10 + len(root) + len(body), len(root), template, 1, version) + root + body


def group(block, elements, is_wide=False):
    head = pack("<H5xB" if is_wide else "<HB", block, len(elements))
    return head + b"".join(element.ljust(block, b"\0") for element in elements)


def entry(price, size, level, action, kind, sequence):
    return pack("<qiiIiBBc", round(price * 10**9), size, 5817, sequence, 2, level, action, kind)


NANOSECONDS = 1_700_000_000_123_456_789
NO_PRICE, NO_SIZE = 2**63 - 1, 2**31 - 1
RESET = pack("<qiiIiBBc", NO_PRICE, NO_SIZE, 5817, 3, NO_SIZE, 0, 0, b"J")
MDP3 = [
    mdp3(30, pack("<Q6s6siHBBBB", NANOSECONDS, b"ES", b"ES", 5817, 19_675, 128, 17, 0, 0)),
    mdp3(
        46,
        pack("<QBxx", NANOSECONDS, 132),
        group(32, [entry(4512.25, 10, 1, 0, b"0", 1), entry(4512.5, 7, 1, 1, b"1", 2)]),
        group(24, [pack("<QQiBBxx", 801, 11, 4, 1, 0), pack("<QQiBBxx", 802, 12, 6, 1, 0)], is_wide=True),
    ),
    # As a later version may be: eight bytes more in the root, eight in each entry.
    mdp3(46, pack("<QBxxQ", NANOSECONDS, 4, 1), group(40, [RESET]), group(24, [], is_wide=True), version=13),
    mdp3(
        48,
        pack("<QBxx", NANOSECONDS + 1000, 1),
        group(32, [pack("<qiiIiBBIxx", 4_512_500_000_000, 3, 5817, 4, 2, 1, 0, 77)]),
        group(16, [pack("<Qixxxx", 801, 3), pack("<Qixxxx", 950, 3)], is_wide=True),
    ),
    mdp3(50, pack("<QBxx", NANOSECONDS, 128), b"\0" * 5),  # a template that is not in the layout
]

if __name__ == "__main__":
    (HERE / "itch.bin").write_bytes(b"".join(ITCH))
    (HERE / "mdp3.bin").write_bytes(b"".join(MDP3))
