"""The files of a run directory (``docs/reference/run-directory.md``), their writers and readers.

`layout` names the files. The launcher writes them by `run_lifecycle`; rank 0 writes steps and decisions by `recorder`.
`steps` and `schema` hold the records. Status, progress and report read them: growing files by `line_file.Tail`,
finished runs by `reader`.
"""
