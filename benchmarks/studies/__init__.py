"""Studies of the shipped packages on phantoms, whose figures stand in the docs."""
