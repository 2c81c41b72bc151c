"""A training job that is compiled: its backends, what their graphs say, and a job as it then runs."""
