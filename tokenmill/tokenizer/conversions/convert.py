"""`convert` under the name that projects of 0.3 import."""

from collections.abc import Callable
from pathlib import Path

from tokenmill.features import PARTS, load

convert: Callable[..., list[Path]] = load(PARTS["imported"]["convert"])
