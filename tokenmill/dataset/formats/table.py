"""The file formats of a token dataset, by their names in params.yaml."""

from collections.abc import Mapping

from tokenmill.dataset.formats.arrow import ARROW
from tokenmill.dataset.formats.datatrove import DATATROVE
from tokenmill.dataset.formats.interface import Format
from tokenmill.dataset.formats.litdata import LITDATA
from tokenmill.dataset.formats.mds import MDS
from tokenmill.dataset.formats.megatron import MEGATRON
from tokenmill.dataset.formats.megatron_sft import MEGATRON_SFT
from tokenmill.dataset.formats.megatron_sft_parquet import MEGATRON_SFT_PARQUET
from tokenmill.dataset.formats.nanogpt import NANOGPT
from tokenmill.dataset.formats.olmo import OLMO
from tokenmill.dataset.formats.parquet import PARQUET

SET_FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        PARQUET,
        ARROW,
        MEGATRON,
        DATATROVE,
        OLMO,
        MDS,
        NANOGPT,
        LITDATA,
        MEGATRON_SFT,
        MEGATRON_SFT_PARQUET,
    )
}
"""How the files of a set are written and read, by the format's name."""
