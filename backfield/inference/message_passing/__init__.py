"""Message passing: tree-reweighted and loopy belief propagation ([D13] §3.3), one update in five kernel families."""
