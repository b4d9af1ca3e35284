"""Sources: what is compressed. The engine carries them, so that they have no factory."""

from trimtab_api.catalogue.row import Option, Row

SOURCES = (
    Row(name="gradient", meaning="The gradient; the optimizer steps with the mean of all ranks'."),
    Row(
        name="update",
        meaning="The update that the rank's own optimizer made in its local steps.",
        options=(Option("steps", "local steps of one round, H", default=1),),
    ),
)
