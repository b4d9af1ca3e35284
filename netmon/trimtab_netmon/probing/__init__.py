"""Measure one link: latency by UDP echo, bandwidth by iperf3 or the native engine."""
