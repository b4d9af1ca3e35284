"""Systems of papers, each registered in the catalogue by the same entry that a stranger's has. Nothing imports them."""
