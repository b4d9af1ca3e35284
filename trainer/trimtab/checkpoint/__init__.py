"""The parts of a training state, and how it is kept: in memory for trials, in files for a resumed run."""
