"""The Hydra launcher that starts the jobs of a sweep on ranks of their own; Hydra finds it by its package's name."""
