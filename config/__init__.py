"""The project: settings, processes and their supervisor. Importing this package loads nothing else."""
