"""The chart's Grafana dashboards, written as code: what panels there are, what each asks, and what to do about it."""
