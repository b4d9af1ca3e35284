"""Wire formats: how a value crosses the network. Collectives know them, so that they have no factory."""

from trimtab_api.catalogue.row import Row

WIRE_FORMATS = (Row(name="float32", meaning="As it is computed with, in 4 bytes."),)
