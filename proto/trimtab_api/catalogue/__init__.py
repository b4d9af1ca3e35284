"""All that anyone must know of a scheme by its name, in one row: one list for each axis of a plan.

The CRD, validation, the controller's models and the registries of the trainer ask the row; none of them knows a scheme
by its name. Torch-free: what makes a scheme is named by text, and imported by who uses it.
"""

from trimtab_api.catalogue.collective import COLLECTIVES, CollectiveRow
from trimtab_api.catalogue.fusion import PLANNERS
from trimtab_api.catalogue.registry import Registry
from trimtab_api.catalogue.row import Option, Row
from trimtab_api.catalogue.schedule import SCHEDULES
from trimtab_api.catalogue.source import SOURCES
from trimtab_api.catalogue.sparsifier import SPARSIFIERS
from trimtab_api.catalogue.wire import WIRE_FORMATS

__all__ = [
    "DENSE_COLLECTIVES",
    "SPARSE_COLLECTIVES",
    "CollectiveRow",
    "Option",
    "Registry",
    "Row",
    "collectives",
    "planners",
    "schedules",
    "sources",
    "sparsifiers",
    "wire_formats",
]

collectives = Registry("collective", COLLECTIVES)
sparsifiers = Registry("sparsifier", SPARSIFIERS)
planners = Registry("fusion", PLANNERS)
schedules = Registry("schedule", SCHEDULES)
sources = Registry("source", SOURCES)
wire_formats = Registry("wire", WIRE_FORMATS)

#: Names of the collectives that send the whole gradient, and of those that send a selection of it.
DENSE_COLLECTIVES = tuple(row.name for row in COLLECTIVES if row.is_dense)
SPARSE_COLLECTIVES = tuple(row.name for row in COLLECTIVES if not row.is_dense)
