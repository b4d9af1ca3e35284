"""Development tools that measure Trimtab itself: the judge and the benches. Only `trimtab.cli` imports them."""
