"""The mixer of the order is that of splitmix64."""

import numpy as np

from tokenmill_reader.order import mix


def test_it_gives_the_published_values_of_splitmix64() -> None:
    seed, step = (
        1234567,
        0x9E3779B97F4A7C15,
    )  # of the generator, whose outputs are the mixes of seed + step, seed + 2 step, …
    values = np.array([(seed + i * step) % 2**64 for i in range(1, 6)], np.uint64)
    mix(values, np.empty_like(values))
    assert values.tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_each_bit_of_the_input_changes_about_half_of_the_output() -> None:
    values = np.arange(1, 1001, dtype=np.uint64)
    mixed = values.copy()
    mix(mixed, np.empty_like(mixed))
    for bit in range(64):
        other = values ^ np.uint64(1 << bit)
        mix(other, np.empty_like(other))
        assert 31 < np.unpackbits((mixed ^ other).view(np.uint8)).sum() / len(values) < 33
