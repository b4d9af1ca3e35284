"""How the monitors of one job find and reach each other."""
