"""The types of arrays, for annotations alone: nothing imports this while it runs, because numpy.typing takes as long as all of the
reader."""

from typing import Union

import numpy as np
import numpy.typing as npt

Ids = Union[npt.NDArray[np.uint16], npt.NDArray[np.uint32]]
FileIds = Union[npt.NDArray[np.uint16], npt.NDArray[np.int32], npt.NDArray[np.uint32]]
"""Token ids as a file has them: Megatron's are int32."""
Mask = npt.NDArray[np.int8]
"""A loss mask: 1 where the token is to be learned, else 0."""
Labels = npt.NDArray[np.int32]
Starts = npt.NDArray[np.int32]
"""Where documents begin in an item."""
Longs = npt.NDArray[np.int64]
