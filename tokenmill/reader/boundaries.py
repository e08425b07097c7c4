"""Gives the functions of tokenmill_reader.boundaries to programs that import them from here."""

from tokenmill_reader.boundaries import cu_seqlens as cu_seqlens
from tokenmill_reader.boundaries import labels as labels
from tokenmill_reader.boundaries import positions as positions
