"""The file formats of a token dataset, by their names in params.yaml."""

from collections.abc import Mapping

from tokenmill.formats.arrow import ARROW
from tokenmill.formats.datatrove import DATATROVE
from tokenmill.formats.interface import Format
from tokenmill.formats.litdata import LITDATA
from tokenmill.formats.llmc import LLMC
from tokenmill.formats.mds import MDS
from tokenmill.formats.megatron import MEGATRON
from tokenmill.formats.megatron_sft import MEGATRON_SFT
from tokenmill.formats.megatron_sft_parquet import MEGATRON_SFT_PARQUET
from tokenmill.formats.nanogpt import NANOGPT
from tokenmill.formats.olmo import OLMO
from tokenmill.formats.olmo_sft import OLMO_SFT
from tokenmill.formats.parquet import PARQUET
from tokenmill.formats.trl_dpo import TRL_DPO

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
        LLMC,
        LITDATA,
        OLMO_SFT,
        MEGATRON_SFT,
        MEGATRON_SFT_PARQUET,
        TRL_DPO,
    )
}
"""How the files of a set are written and read, by the format's name."""
