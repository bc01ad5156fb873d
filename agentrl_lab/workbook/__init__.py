"""What notebooks and the command line use: plots, reports, play."""
