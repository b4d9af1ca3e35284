"""DeFT: exchanges hide behind computation, and updates are delayed and merged."""
