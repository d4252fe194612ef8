"""Executors own workers. One contract: serial, thread and process."""
