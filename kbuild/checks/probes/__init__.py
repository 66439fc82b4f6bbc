"""Programs that a check runs with another interpreter; they import nothing of kbuild."""
