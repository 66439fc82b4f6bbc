"""Running a plan on this machine: workspace, cmake, ninja, and knowing when nothing is to do."""
