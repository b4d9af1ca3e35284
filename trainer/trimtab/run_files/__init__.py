"""What a run directory holds (``docs/reference/run-directory.md``), who writes it and who reads it.

`run_directory` names the files. The launcher writes `result`; rank 0 writes steps and decisions by `recorder`. Status,
progress and report read them: growing files by `json_files.Tail`, finished runs by `run_reader`.
"""
