"""Devices, replicas and workers: strategies, collective operations, and how workers find each other."""
