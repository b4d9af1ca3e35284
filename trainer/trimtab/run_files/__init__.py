"""The files of a run directory (``docs/reference/run-directory.md``), their writers and readers.

`layout` names the files. The launcher writes `result`; rank 0 writes steps and decisions by `recorder`. Status,
progress and report read them: growing files by `json_files.Tail`, finished runs by `reader`.
"""
