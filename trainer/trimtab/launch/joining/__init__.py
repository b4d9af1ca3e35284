"""How a process joins its job: told by ``trimtab run`` or its pod, or started by a launcher that knows no jobs."""
