"""Running a plan on this machine: workspace, configure, ninja, and knowing when nothing is to do."""
