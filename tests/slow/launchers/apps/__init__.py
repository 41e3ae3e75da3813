"""The programs that the launchers start. Each process that does the user's work calls `present`."""
